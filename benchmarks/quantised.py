"""Products over quantised weights, beside the same numbers in float32.

    python benchmarks/quantised.py [--rows 1] [--threads 1] [--turns 15] [--isa avx512] [--json]

The shapes are SmolLM2-135M's. Every product reads as many copies of its weight in turn as no cache
holds. Sides take their turns one after the other. The least tenth and the median of the processor's
time and of the clock's are given, since other work on a machine slows each side at times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.generation.panels import Panels
from tallystick.numerics.operators.quantised import BLOCK_DTYPES, BLOCKS
from tallystick_bench.machine import machine
from tallystick_bench.step_time import load

# Columns and terms of a product, and how many of them a token of SmolLM2-135M needs.
SHAPES = {
    (576, 576): 60,
    (192, 576): 60,
    (1536, 576): 60,
    (576, 1536): 30,
    (49152, 576): 1,
}
_CACHES = 96 << 20  # bytes; more than any cache that such a machine shares
Array = np.ndarray[Any, Any]


def weights(name: str, columns: int, terms: int, copies: int) -> Array:
    """Rows of random blocks with scales of ordinary size, [copies, columns, bytes of a row]."""
    shape = BLOCKS[name]
    random = np.random.default_rng(0)
    count = copies * columns * terms // shape.elements
    raw = random.integers(0, 256, (count, shape.size), dtype=np.uint8)
    scales = {"q4_1": 2, "q5_1": 2, "q4_k": 2, "q5_k": 2}.get(name, 1)
    at = 208 if name == "q6_k" else 0
    halves = random.uniform(1e-3, 2e-3, (count, scales)).astype(np.float16)
    raw[:, at : at + 2 * scales] = halves.view(np.uint8)
    return raw.reshape(copies, columns, -1)


def sides(name: str, rows: int, columns: int, terms: int) -> dict[str, Callable[[int], None]]:
    """What computes the product with copy number i of the weight: in blocks, as panels of blocks
    and as panels of float32."""
    random = np.random.default_rng(1)
    a = random.standard_normal((rows, terms), np.float32)
    out = np.empty((rows, columns), np.float32)
    found: dict[str, Callable[[int], None]] = {}
    row_bytes = terms // BLOCKS[name].elements * BLOCKS[name].size
    copies = max(1, _CACHES // (columns * row_bytes))
    raw = weights(name, columns, terms, copies)
    found["blocks"] = lambda i: _core.mm_quantised(name, a, raw[i % copies], out)
    held = Panels()
    quantised = [held.of(one.view(BLOCK_DTYPES[name]).T) for one in raw]
    found["panels"] = lambda i: _core.mm_panels_quantised(name, a, quantised[i % copies], out, None)
    few = max(1, _CACHES // (4 * columns * terms))
    wide = random.standard_normal((few, -(-columns // 32), terms, 32), np.float32)
    found["float32"] = lambda i: _core.mm_panels(a, wide[i % few], out, None)
    return found


def clock() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def measure(name: str, rows: int, columns: int, terms: int, turns: int) -> dict[str, Any]:
    """Microseconds of a product by side: [least tenth, median] of the clock and the processor."""
    calls = sides(name, rows, columns, terms)
    each = max(1, 10_000_000 // (rows * columns * terms))
    seen: dict[str, list[tuple[float, float]]] = {side: [] for side in calls}
    at = 0
    for turn in range(turns + 1):  # the first one warms up
        for side, call in calls.items():
            began = clock()
            for i in range(at, at + each):
                call(i)
            took = [1e6 * (b - a) / each for a, b in zip(began, clock(), strict=True)]
            if turn:
                seen[side].append((took[0], took[1]))
        at += each
    return {
        side: {kind: _spread([t[i] for t in took]) for i, kind in enumerate(("wall", "cpu"))}
        for side, took in seen.items()
    }


def _spread(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [round(ordered[len(ordered) // 10], 1), round(statistics.median(ordered), 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--isa", default=_core.supported_isas()[-1])
    parser.add_argument("--format", action="append", choices=list(BLOCKS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    before = load()
    found = []
    with ExecutionContext(given.threads, given.isa).entered():
        for name in given.format or BLOCKS:
            for columns, terms in SHAPES:
                if terms % BLOCKS[name].elements:
                    continue
                took = measure(name, given.rows, columns, terms, given.turns)
                row = {"format": name, "columns": columns, "terms": terms, "us": took}
                found.append(row)
                if not given.json:
                    cells = "  ".join(
                        f"{side} {t['cpu'][0]:8.1f} {t['cpu'][1]:8.1f}" for side, t in took.items()
                    )
                    print(f"{name:6} {columns:6} x {terms:5}  {cells}", flush=True)
    about = {"machine": machine(), "load": [before, load()]} | vars(given)
    if given.json:
        print(json.dumps({"about": about, "products": found}, indent=1))
    else:
        print(f"load {before} to {load()}")


if __name__ == "__main__":
    main()
