"""Figures of "Optimistic Verifiable Training" (Srivastava, Arora, Boneh 2024) to stand beside ours.

Table 2: bytes of a step's log; Table 3: corrections of a step (mean, deviation); Table 4:
thresholds at b = 32; Table 5: seconds of a step. Their models: ResNet-50 on CIFAR-10 at batch 64,
GPT-2 at 8 sequences of 64 tokens, on NVIDIA A40, Titan XP and RTX 2080 Ti.
"""

from __future__ import annotations

MB = 1_000_000

# model -> encoding -> bytes, at b = 32 and for the compressed form at b = 26 too
TABLE_2: dict[str, dict[str, int]] = {
    "resnet50": {"naive": 456 * MB, "packed": 105 * MB, "zstd": 96 * MB, "zstd_b26": 91 * MB},
    "gpt2": {"naive": 92 * MB, "packed": 22 * MB, "zstd": 20 * MB, "zstd_b26": 18 * MB},
}
# The bytes that proof-of-learning stores of GPT-2 each step, by the paper's reckoning.
WEIGHTS: dict[str, int] = {"gpt2": 2780 * MB}

BITS = (32, 31, 30, 29, 28, 27, 26)
# model -> direction -> (mean, deviation) for each of BITS; None where the paper gives none
TABLE_3: dict[str, dict[str, tuple[tuple[float, float | None], ...]]] = {
    "resnet50": {
        "forward": ((15, 3), (6, 2), (3, 1), (3, 1), (0, None), (0, None), (0, None)),
        "backward": ((10, 0.6), (6, 0.6), (2, 1), (0.7, 0.7), (0, 0), (0, 0), (0, 0)),
    },
    "gpt2": {
        "forward": ((2, 0.7), (2.3, 0.8), (2.2, 0.4), (0.2, 0.2), (0.4, 0.2), (0, 0), (0, 0)),
        "backward": ((19, 13), (0.75, 0.3), (1.2, 0.4), (0.2, 0.2), (0, 0), (0, 0), (0, 0)),
    },
}
# layer -> threshold in units of 2^-23
TABLE_4: dict[str, float] = {
    "convolution": 0.305,
    "batch_norm": 0.499,
    "linear": 0.465,
    "layer_norm": 0.499,
}
# model -> (without rounding or log, trainer, auditor) in seconds
TABLE_5: dict[str, tuple[float, float, float]] = {
    "resnet50": (24.0, 28.0, 31.0),
    "gpt2": (8.0, 11.0, 13.5),
}


def family(model: str) -> str:
    """The paper's model beside one of ours: "resnet50" or "gpt2"."""
    return "gpt2" if model.startswith("gpt2") else "resnet50"
