"""The kernels of the elementary functions are the proven ones (NUMERICS 5.6): their fingerprints,
of 2^18 sampled arguments, are those of docs/proofs/elementary.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tallystick import _core

RECORDED = json.loads(
    (Path(__file__).parents[3] / "docs" / "proofs" / "elementary.json").read_text()
)
ISA_NUMBERS = {"scalar": 0, "avx2": 1, "avx512": 2, "neon": 3}  # dispatch.hpp
BLOCK, BLOCKS = 256, 1024
ADDED = np.uint64(0x9E3779B97F4A7C15)
FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
SHIFTS = np.array([30, 27, 31], np.uint64)


def mix(z: np.ndarray) -> np.ndarray:
    """splitmix64, native/include/tallystick/input_digest.hpp."""
    z = z + ADDED
    z ^= z >> SHIFTS[0]
    z *= FACTORS[0]
    z ^= z >> SHIFTS[1]
    z *= FACTORS[1]
    z ^= z >> SHIFTS[2]
    return z


def test_the_recorded_fingerprints_are_those_of_this_build() -> None:
    count = BLOCK * BLOCKS
    x = mix(np.arange(count, dtype=np.uint64)).astype(np.uint32).view(np.float32)
    results = np.empty((count, len(RECORDED)), np.uint64)
    for i, record in enumerate(RECORDED):
        y = np.empty_like(x)
        _core.elementary(record["function"], x, y)
        results[:, i] = y.view(np.uint32)
    # All functions at once: their chains of 2^18 links do not meet.
    marks = np.array([r["shards"] * 1000003 + 4096 for r in RECORDED], np.uint64)
    for row in results:
        marks = mix(marks ^ row)
    for i, record in enumerate(RECORDED):
        mark = marks[i : i + 1]
        for isa in (*record["compared_isas"], record["isa"]):
            mark = mix(mark ^ np.uint64(ISA_NUMBERS[isa]))
        assert f"{int(mark[0]):016x}" == record["fingerprint"], record["function"]
