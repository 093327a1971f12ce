"""`bench paper`, rounding: sums in two orders, before and after a rounding (OVT's Table 1).

The paper's table has one sum whose error a rounding to float16 erases and one whose error survives
it. Here such sums are drawn, and counted.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context

TRIPLES, QUICK_TRIPLES = 1 << 22, 1 << 16
_PAIRS = {
    "float32 to float16": (np.float32, np.float16),
    "float64 to float32": (np.float64, np.float32),
}


def measure(out: Path, context: Context) -> None:
    """One entry a pair of precisions: counts and two examples."""
    triples = QUICK_TRIPLES if context.quick else TRIPLES
    about = {"triples": triples, "inputs": "normal numbers of the higher precision"}
    with part_file(out, "rounding", "sums", about, "paper") as part:
        for name, (high, low) in _PAIRS.items():
            part.get(name, partial(_counted, triples, high, low))


def _counted(triples: int, high: Any, low: Any) -> dict[str, Any]:
    a, b, c = np.random.default_rng(1).standard_normal((3, triples)).astype(high)
    one, two = (a + b) + c, a + (b + c)
    apart = one != two
    after = one.astype(low) != two.astype(low)
    return {
        "triples": triples,
        "apart": int(apart.sum()),
        "apart_after_rounding": int(after.sum()),
        "erased": _example(np.flatnonzero(apart & ~after), (a, b, c, one, two), low),
        "survives": _example(np.flatnonzero(apart & after), (a, b, c, one, two), low),
    }


def _example(at: np.ndarray, columns: tuple[np.ndarray, ...], low: Any) -> dict[str, str] | None:
    if not len(at):
        return None
    a, b, c, one, two = (column[at[0]] for column in columns)
    return {
        "terms": f"{a!s}, {b!s}, {c!s}",
        "(a+b)+c": str(one),
        "a+(b+c)": str(two),
        "rounded": f"{low(one)!s} and {low(two)!s}",
    }
