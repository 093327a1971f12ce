"""The formats of quantised weights: the numbers and the bytes of a block (NUMERICS 19.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class BlockShape(NamedTuple):
    """Numbers of a block, and its bytes."""

    elements: int
    size: int


BLOCKS: dict[str, BlockShape] = {
    "q4_0": BlockShape(32, 18),
    "q4_1": BlockShape(32, 20),
    "q5_0": BlockShape(32, 22),
    "q5_1": BlockShape(32, 24),
    "q8_0": BlockShape(32, 34),
    "q4_k": BlockShape(256, 144),
    "q5_k": BlockShape(256, 176),
    "q6_k": BlockShape(256, 210),
}
# A whole block as an element. A field of bytes keeps it from being taken for something else, and
# its name says the format to kernels that read blocks in their place (program/fused.py).
BLOCK_DTYPES: dict[str, np.dtype[np.generic]] = {
    name: np.dtype([(name, f"V{shape.size}")]) for name, shape in BLOCKS.items()
}


def block_format(dtype: np.dtype[np.generic]) -> str | None:
    """The format whose blocks are the elements of an array of this dtype; None of another."""
    names = dtype.names
    return names[0] if names is not None and names[0] in BLOCKS else None
