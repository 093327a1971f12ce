"""`bench paper`, proofs: signed, audited runs beside the times of zero-knowledge proofs.

Logistic regression on 2^18 records of 1024 numbers, one pass in batches of 2014; VGG-11 on CIFAR-10
at batch 16. The sizes are those of Garg et al. and Abbaszadeh et al., as OVT 6.4 quotes them.
"""

from __future__ import annotations

from pathlib import Path

from tallystick_bench.paper.context import Context
from tallystick_bench.paper.parts import runs


def measure(out: Path, context: Context) -> None:
    """As the part `runs`, of other models."""
    runs.measure(out, context, "proofs")
