"""`bench ovt`, divergence: the paper's Figure 5 on every pair of kinds of hardware.

Plain float32 and round-only runs part. Runs that follow a log, or need none, must
not part, but for NUMERICS 14.9.2.
"""

from __future__ import annotations

import time
from typing import Any

from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.parties.arms import hardware
from tallystick_bench.ovt.parties.lockstep import run_arm
from tallystick_bench.ovt.results.store import PartFile

STEPS, QUICK_STEPS = 200, 3
# Arm -> its contract (None: stock kernels without one), and True if it has a log.
CONTRACTS: dict[str, tuple[str | None, bool]] = {
    "float32": (None, False),
    "round": (None, False),
    "published": ("replay/1;form=published", True),
    "bounded": ("replay/1;form=bounded", True),
    "rounded": ("rounded/1", False),
}


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries, beside the model."""
    return {
        "steps": QUICK_STEPS if quick else STEPS,
        "threads of each party": 1,
        "hardware": {kind.name: kind.settings for kind in hardware()},
    }


def measure(part: PartFile, context: Context) -> None:
    """One entry an arm: for every pair, the distance after each step."""
    steps = QUICK_STEPS if context.quick else STEPS
    missing = [arm for arm in CONTRACTS if arm not in part.entries]
    if not missing:
        return
    job, made = context.job(part.model).directory, context.children()
    for arm in missing:
        contract, logged = CONTRACTS[arm]

        def run(
            arm: str = arm, contract: str | None = contract, logged: bool = logged
        ) -> dict[str, Any]:
            start = time.perf_counter()
            found = run_arm(made, job, arm, contract, steps, logged)
            return {**found, "seconds": time.perf_counter() - start}

        part.get(arm, run)
