"""`bench ovt`, thresholds: Algorithm 4 over four layers' outputs on every pair of kinds.

This is the paper's Table 4. Only elements that two kinds of hardware rounded apart count: their
distance from the rounded value, in parts of the element's power of two (`scale=binary`) or of ten
(`scale=decimal`, as in the authors' code).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.layers import SHAPES, apart, elements_of, threshold
from tallystick_bench.ovt.parties.arms import hardware
from tallystick_bench.ovt.parties.lockstep import Child
from tallystick_bench.ovt.results.store import PartFile

ELEMENTS, QUICK_ELEMENTS = 100_000_000, 100_000
# Data sets that a process goes through for one command.
_AT_ONCE = 16


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries."""
    return {
        "elements of a layer": QUICK_ELEMENTS if quick else ELEMENTS,
        "inputs": "normal numbers",
        "hardware": {kind.name: kind.settings for kind in hardware()},
    }


def measure(part: PartFile, context: Context) -> None:
    """One entry a layer."""
    missing = [layer for layer in SHAPES if layer not in part.entries]
    if not missing:
        return
    wanted = QUICK_ELEMENTS if context.quick else ELEMENTS
    made = context.children()
    for layer in missing:

        def run(layer: str = layer) -> dict[str, Any]:
            return calibrated(made, layer, wanted)

        part.get(layer, run)


def calibrated(made: list[Child], layer: str, wanted: int) -> dict[str, Any]:
    """Elements rounded apart among at least `wanted`, for every pair, and both thresholds."""
    results: list[tuple[np.ndarray, np.ndarray]] = []
    seeds = -(-wanted // elements_of(layer))
    compared = 0
    for begin in range(0, seeds, _AT_ONCE):
        end = min(begin + _AT_ONCE, seeds)
        for child in made:
            child.ask(do="layer", layer=layer, begin=begin, end=end)
        found = [child.answer() for child in made]
        compared += found[0]["elements"]
        results += [apart(mine, other) for mine, other in itertools.combinations(found, 2)]
    tau, disagreements = threshold(results, decimal=False)
    return {
        "shape": SHAPES[layer],
        "elements": compared,
        "pairs": len(made) * (len(made) - 1) // 2,
        "disagreements": disagreements,
        "tau": tau,
        "tau_decimal": threshold(results, decimal=True)[0],
    }
