"""The calls of the golden vectors: quantised weights (NUMERICS 19)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Call
from reference.data import Gen
from reference.quantised import SIZES

# Where a block's binary16 numbers begin.
HALVES = {
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,),
    "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
}  # fmt: skip
# Ordinary, negative, zero, subnormal (smallest, largest), smallest normal, largest, infinite, NaN.
SCALES = (
    0x3C00, 0x2E66, 0xB155, 0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00,
    0x7C01, 0xFE01,
)  # fmt: skip


def with_scale(raw: np.ndarray, name: str, bits: int, which: int) -> None:
    """Put a binary16 number into a block."""
    at = HALVES[name][which]
    raw[at : at + 2] = (bits & 255, bits >> 8)


def dequantize() -> Iterator[Call]:
    """Random bytes; every kind of scale; every byte of small formats; no rows, and more axes."""
    g = Gen("quantised")
    for name, (elements, size) in SIZES.items():
        attrs = {"format": name}
        raw = g.ints(0, 256, len(SCALES), size).astype(np.uint8)
        for row, bits in zip(raw, SCALES, strict=True):
            for which in range(len(HALVES[name])):
                with_scale(row, name, bits if which == 0 else SCALES[(bits >> 3) % 8], which)
        yield "tallystick.dequantize", attrs, [raw]
        if elements == 32:
            # Each value of a byte, once in each place's turn.
            count = 256 // 16
            bytes_ = np.tile(np.arange(256, dtype=np.uint8), 2)
            blocks = np.stack([bytes_[16 * i : 16 * i + size] for i in range(count)])
            for row in blocks:
                for which in range(len(HALVES[name])):
                    with_scale(row, name, 0x2C01 + which, which)
            yield "tallystick.dequantize", attrs, [blocks.reshape(4, 4 * size)]
        else:
            yield "tallystick.dequantize", attrs, [g.ints(0, 256, 1, 2, size).astype(np.uint8)]
        yield "tallystick.dequantize", attrs, [np.zeros((0, size), np.uint8)]
