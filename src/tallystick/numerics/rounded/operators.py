"""The table of rounded operators (NUMERICS 13.1), and how one runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tallystick.numerics.ops._common import Arrays, Outputs
from tallystick.numerics.rounded.convolution import convolution, convolution_backward
from tallystick.numerics.rounded.pieces import Decide, Piece
from tallystick.numerics.rounded.products import addmm, bmm, mm
from tallystick.numerics.rounded.sums import sum_of
from tallystick.numerics.types import Attrs

# Over attributes, inputs and preallocated C-contiguous outputs; the consumer decides every piece
# before it asks for the next.
Pieces = Callable[[Attrs, Arrays, Outputs], Iterator[Piece]]

_PIECES: dict[str, Pieces] = {
    "aten.mm": mm,
    "aten.bmm": bmm,
    "aten.addmm": addmm,
    "aten.convolution": convolution,
    "aten.convolution_backward": convolution_backward,
    "aten.sum": partial(sum_of, "aten.sum"),
    "aten.sum.dim_IntList": partial(sum_of, "aten.sum.dim_IntList"),
    "aten.mean": partial(sum_of, "aten.mean"),
    "aten.mean.dim": partial(sum_of, "aten.mean.dim"),
}


def is_rounded(op: str, inputs: Arrays) -> bool:
    """Whether `op` on these operands is a rounded operator (13.1)."""
    return op in _PIECES and all(x is None or x.dtype == np.float32 for x in inputs)


def run_rounded(op: str, decide: Decide, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    """Fill the outputs of rounded operator `op`, each piece decided by `decide`."""
    for piece in _PIECES[op](attrs, inputs, outputs):
        decide(piece)
