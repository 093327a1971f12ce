"""Figures of the papers to stand beside ours; those of OVT's tables are `ovt.results.paper`'s.

OVT: Srivastava, Arora, Boneh 2024. Verde: Arun et al. 2025. What others published is quoted as OVT
6.4 and Verde 1 quote it.
"""

from __future__ import annotations

OVT_GPUS = "NVIDIA A40, TITAN Xp, RTX 2080 Ti"
A100_40, A100_80, T4 = "NVIDIA A100 40 GB", "NVIDIA A100 80 GB", "NVIDIA T4 16 GB"
UNSTATED = "not stated where quoted"

# Verde's Tables 1 and 2: (model, task) -> GPU -> overhead over PyTorch with cuDNN.
VERDE: dict[tuple[str, str], dict[str, float]] = {
    ("distilbert", "inference"): {T4: 0.74, A100_40: 0.84},
    ("distilbert", "training"): {T4: 2.58, A100_40: 3.12},
    ("llama-1b", "inference"): {T4: 2.18, A100_40: 0.58},
    ("llama-1b", "training"): {T4: 3.74, A100_40: 0.67},
    ("llama-8b", "inference"): {A100_80: 0.98},
    ("llama-8b", "lora"): {A100_80: 1.26},
}
# Verde's Figure 3 is a plot. Its text (3.3 and 4.1) states these overheads.
FIGURE_3: dict[str, tuple[float, float]] = {"RTX 3090": (0.60, 0.70), "T4": (0.35, 0.35)}
SMALL_PRODUCT = 2.0  # about, at dimension 256

# Bytes of weights that proof-of-learning (Jia et al. 2021) stores of a step, by OVT's reckoning.
PROOF_OF_LEARNING = {"gpt2-124m": 2_780_000_000, "logreg-2^18x1024": 9_200_000}

# Task -> who -> (seconds, bytes or None); OVT's seconds are of training and audit together.
LOGREG = {
    "zero-knowledge proof (Garg et al. 2023)": (72.0, 350_000_000),
    "OVT": (7.0, 106_000),
}
VGG = {
    "zero-knowledge proof (Abbaszadeh et al. 2024)": (22 * 60.0, 1_360_000),
    "OVT": (6.0, 1_200_000),
}
GPT2 = {
    "two-party computation (Gupta et al. 2023), scaled by OVT": (983.0, 189_000_000_000),
    "OVT": (11.0 + 13.5, 18_000_000),
    "zero-knowledge proof of a training step (Abbaszadeh et al. 2024, quoted by Verde)": (
        15 * 60.0,
        None,
    ),
}
