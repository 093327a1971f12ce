"""`bench paper`, ovt: the parts of `bench ovt` that are tables of the paper, measured by it."""

from __future__ import annotations

from pathlib import Path

from tallystick_bench.ovt.measure import measure as measure_ovt
from tallystick_bench.paper.context import Context

PARTS = ("storage", "thresholds", "corrections", "time", "divergence")
# The others start a process for each kind of hardware, which takes seconds by itself.
QUICK_PARTS = ("storage",)


def measure(out: Path, context: Context) -> None:
    """All of them; what `out` holds already is not measured again."""
    measure_ovt(QUICK_PARTS if context.quick else PARTS, out, context)
