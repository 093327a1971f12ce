"""`bench ovt`, corrections: the number of roundings that an auditor corrects in a step.

This is the paper's Table 3, by bits kept, over the models of the divergence part, on every pair of
kinds of hardware.
"""

from __future__ import annotations

from typing import Any

from tallystick.contracts.replay.sections import sections_of
from tallystick.numerics.contracts import find_contract
from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.parties.arms import hardware
from tallystick_bench.ovt.parties.lockstep import run_arm
from tallystick_bench.ovt.results.paper import BITS
from tallystick_bench.ovt.results.store import PartFile

PUBLISHED = find_contract("replay/1;form=published")
STEPS, QUICK_STEPS = 10, 1


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries, beside the model."""
    return {
        "steps": QUICK_STEPS if quick else STEPS,
        "thresholds": "a quarter of the grid's spacing, 2^-25 at b = 32 (the paper's least)",
        "hardware": {kind.name: kind.settings for kind in hardware()},
    }


def measure(part: PartFile, context: Context) -> None:
    """One entry for each number of bits: corrections forward and backward, for every pair."""
    bits = (BITS[0], BITS[-1]) if context.quick else BITS
    if all(f"b{b}" in part.entries for b in bits):
        return
    job = context.job(part.model)
    steps = QUICK_STEPS if context.quick else STEPS
    entries = sum(section.elements for section in sections_of(job.program, PUBLISHED))
    made = context.children()
    for b in bits:

        def run(contract: str = f"replay/1;b={b};form=published") -> dict[str, Any]:
            found = run_arm(made, job.directory, "published", contract, steps, logged=True)
            return {"pairs": found["pairs"], "entries": entries}

        part.get(f"b{b}", run)
