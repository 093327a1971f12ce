"""Pieces of sums, means and a convolution's bias gradient (NUMERICS 13.3; 3.3, 3.4, 2.7)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.reduction import extents, reduced_rows
from tallystick.contracts.rounded.cpu.operators import rounded_kernel
from tallystick.contracts.rounded.cpu.pieces import Piece, SumTerms
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs
from tallystick.products.engines import current_engine
from tallystick.products.following import canonical
from tallystick.products.squares import term_factor
from tallystick.products.tiles import BUDGET, ranges, widened

_ONE = np.ones((1, 1))
# A reduction with more outer elements than this is cheaper on a copy.
_MAX_OUTER = 16


def row_pieces(x: np.ndarray, out: np.ndarray, start: int = 0, output: int = 0) -> Iterator[Piece]:
    """Pieces of the row sums of x f32[R,n], of any strides. Their values go to out f32[R], which
    begins at position `start` of the operator's output."""
    rows, n = x.shape
    if rows == 0:
        return
    engine, factor = current_engine(), term_factor(n)
    for r0, r1 in ranges(rows, max(1, BUDGET // max(1, n))):
        part = x[r0:r1]
        w = np.zeros(r1 - r0)
        with np.errstate(over="ignore", invalid="ignore"):
            for k0, k1 in ranges(n, BUDGET):
                w += engine.sums(widened("a", part[:, k0:k1]))
            ea = factor * np.asarray(_core.abs_sums_rows(part))
        yield Piece(
            output,
            w.reshape(-1, 1),
            ea,
            _ONE,
            None,
            out[r0:r1].reshape(-1, 1),
            start + r0,
            1,
            SumTerms(part, start + r0),
        )


def _sum_pieces(x: np.ndarray, axes: tuple[int, ...], out: np.ndarray) -> Iterator[Piece]:
    found = extents(x.shape, axes)
    flat = out.reshape(-1)
    if found is not None and (found[2] == 1 or found[0] <= _MAX_OUTER):
        outer, n, inner = found
        if inner == 1:
            yield from row_pieces(x.reshape(outer, n), flat)
            return
        for o, part in enumerate(x.reshape(outer, n, inner)):
            yield from row_pieces(part.T, flat[o * inner : (o + 1) * inner], o * inner)
        return
    n = math.prod(x.shape[i] for i in axes)
    yield from row_pieces(reduced_rows(x, axes).reshape(flat.size, n), flat)


@rounded_kernel("aten.sum", "aten.sum.dim_IntList", "aten.mean", "aten.mean.dim", named=True)
def sum_of(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.sum, aten.sum.dim_IntList, aten.mean and aten.mean.dim of f32."""
    x, out = operand(inputs, 0), outputs[0]
    axes = reduced_axes(op, attrs, x.ndim)
    if out.size == 0:
        return
    yield from _sum_pieces(x, axes, out)
    if op.startswith("aten.mean"):
        count = np.float32(math.prod(x.shape[i] for i in axes))
        with np.errstate(all="ignore"):
            np.divide(out, count, out=out)
        canonical(out)
