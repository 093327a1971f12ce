"""What is assumed and was not measured by us: each number with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumption:
    """`value` in `unit`; `source` says where it is from, or that it is ours."""

    value: float
    unit: str
    what: str
    source: str


_LLAMA = "The Llama 3 Herd of Models (Meta, 2024)"
_OURS = "ours; vary it"
HOUR, DAY, YEAR = 3600.0, 86400.0, 365.0 * 86400

ASSUMED: dict[str, Assumption] = {
    "gpu_flops": Assumption(
        40e12, "FLOP/s", "what a GPU does under `ordered/1`",
        "ours: 60 % of an H100's 66.9 TFLOP/s in float32. We had no GPU; NOTES predicts up to 55",
    ),
    "flops_a_token": Assumption(
        6.0, "FLOP a parameter and token", "forward and backward pass, without attention's scores",
        "Kaplan et al. 2020, Scaling Laws for Neural Language Models",
    ),
    "tokens_a_parameter": Assumption(
        20.0, "tokens a parameter", "length of a training",
        "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models",
    ),
    "gpu_bytes": Assumption(80e9, "B", "memory of a GPU", "NVIDIA H100 data sheet"),
    "nic_bytes_s": Assumption(
        50e9, "B/s", "network of a GPU, each way: 400 Gbit/s", _LLAMA,
    ),
    "network_share": Assumption(0.7, "", "of it that is reached", _OURS),
    "message_s": Assumption(
        20e-6, "s", "fixed time of one message to one other worker", _OURS,
    ),
    "cores_a_gpu": Assumption(
        14.0, "cores", "host cores for each GPU: they hash and fold",
        "a DGX H100 has 112 cores for 8 GPUs; that rates grow with cores is ours",
    ),
    "store_bytes_s": Assumption(
        2e12, "B/s", "shared store, all workers together", _LLAMA + ": Tectonic, sustained",
    ),
    "gpu_mtbf_s": Assumption(
        54 * DAY * 16384 / 419, "s", "mean time between failures, of one GPU",
        _LLAMA + ": 419 unexpected interruptions in 54 days on 16,384 GPUs",
    ),
    "restart_s": Assumption(
        300.0, "s", "from a failure until steps run again, without loading", _OURS,
    ),
    "repair_s": Assumption(6 * HOUR, "s", "mean time until a failed machine is back", _OURS),
    "store_every_s": Assumption(
        600.0, "s", "a state is stored about so often, and not before the last one is",
        _OURS,
    ),
    "straggler_sigma": Assumption(
        0.05, "", "sigma of the log-normal time of one worker's step",
        "ours; that stragglers cost much is known (Lin et al. 2025, arXiv:2505.05713)",
    ),
    "dispute_s": Assumption(
        600.0, "s", "from an alarm to a verdict, while the run stands still", _OURS,
    ),
}  # fmt: skip


def value(name: str) -> float:
    """The number of an assumption."""
    return ASSUMED[name].value
