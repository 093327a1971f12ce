"""Pieces of mm, bmm and addmm (NUMERICS 13.3; 2.4, 2.5), and of sums and means (3.3, 3.4),
among them a convolution's bias gradient (2.7)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.reduction import extents, reduced_rows
from tallystick.contracts.rounded.cpu import rounded_kernel
from tallystick.contracts.rounded.cpu.pieces import (
    DotTerms,
    Gathered,
    Piece,
    SumTerms,
    add_last,
    depth_share,
    per_gather,
)
from tallystick.devices.device import Arrays, Outputs, operand
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs
from tallystick.products.engines import ProductEngine, current_engine
from tallystick.products.following import canonical, scale_and_add
from tallystick.products.operators import MATRIX_OPERATORS, Matrices, matrices
from tallystick.products.squares import term_factor
from tallystick.products.tiles import BUDGET, SCRATCH, product_tiles, ranges, widened


def _accumulated(
    engine: ProductEngine, a: np.ndarray, b: np.ndarray, kt: int, w: np.ndarray
) -> None:
    """w = a·b for f32 tiles a [m,K], b [K,n]; the contraction is added in parts of kt."""
    k = a.shape[1]
    if kt >= k:
        engine.mm(widened("a", a), widened("b", b), w)
        return
    part = SCRATCH.get("part", w.shape)
    for number_, (begin, end) in enumerate(ranges(k, kt)):
        target = part if number_ else w
        engine.mm(widened("a", a[:, begin:end]), widened("b", b[begin:end]), target)
        if number_:
            np.add(w, part, out=w)


def _matrix_pieces(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, out: np.ndarray, start: int = 0
) -> Iterator[Piece]:
    """Pieces of a·b + c: f32 [M,K], [K,N]; c broadcasts to [M,N] and is the last term (13.3). The
    operator's output has `out` from position `start` on."""
    m, k = a.shape
    n = b.shape[1]
    engine, with_last = current_engine(), c is not None
    factor = term_factor(k + with_last)
    with np.errstate(over="ignore", invalid="ignore"):
        ea = factor * np.sqrt(_core.square_sums_rows(a))
        eb = np.sqrt(_core.square_sums_columns(b)).reshape(1, n)
    last = None if c is None else np.broadcast_to(c, (m, n))
    by_column = c is not None and (c.ndim == 0 or c.shape[:-1] in ((), (1,)))
    mt, nt, kt = product_tiles(m, n, k)
    share = depth_share(k + with_last, kt + with_last, -(-k // kt))
    terms = _matrix_terms(a, b, last, start)
    for j0, j1 in ranges(n, nt):
        for i0, i1 in ranges(m, mt):
            w = SCRATCH.get("w", (i1 - i0, j1 - j0))
            _accumulated(engine, a[i0:i1], b[:, j0:j1], kt, w)
            ec = None
            if last is not None:
                ec = add_last(w, last[0, j0:j1] if by_column else last[i0:i1, j0:j1], factor)
            part = out[i0:i1, j0:j1]
            at = start + i0 * n + j0
            yield Piece(0, w, ea[i0:i1], eb[:, j0:j1], ec, part, at, n, terms, share)


def _matrix_terms(a: np.ndarray, b: np.ndarray, last: np.ndarray | None, start: int) -> DotTerms:
    n = b.shape[1]

    def gather(at: np.ndarray) -> Gathered:
        return (a, b, *np.divmod(at - start, n))

    return DotTerms(gather, None if last is None else lambda at: last[at // n, at % n])


def _batch_pieces(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Iterator[Piece]:
    """Pieces of a·b: f32 [G,M,K], [G,K,N]. Small matrices share a piece; each other one is treated
    as in aten.mm."""
    (batch, m, k), n = a.shape, b.shape[2]
    each = m * k + k * n + m * n
    if each > BUDGET:
        for g in range(batch):
            yield from _matrix_pieces(a[g], b[g], None, out[g], g * m * n)
        return
    engine, factor, terms = current_engine(), term_factor(k), _batch_terms(a, b)
    for g0, g1 in ranges(batch, max(1, BUDGET // max(1, each))):
        ea, eb = np.empty((g1 - g0, m)), np.empty((g1 - g0, n))
        for g in range(g0, g1):
            ea[g - g0] = _core.square_sums_rows(a[g])
            eb[g - g0] = _core.square_sums_columns(b[g])
        w = SCRATCH.get("w", (g1 - g0, m, n))
        engine.mm(widened("a", a[g0:g1]), widened("b", b[g0:g1]), w)
        rows, part = w.reshape(-1, n), out[g0:g1].reshape(-1, n)
        bound = factor * np.sqrt(ea).reshape(-1), np.sqrt(eb)
        yield Piece(0, rows, *bound, None, part, g0 * m * n, n, terms)


def _batch_terms(a: np.ndarray, b: np.ndarray) -> DotTerms:
    m, k, n = a.shape[1], a.shape[2], b.shape[2]

    def gather(at: np.ndarray) -> Gathered:
        rows, j = np.divmod(at, n)
        g, i = np.divmod(rows, m)
        own = np.arange(len(at))
        return a[g, i], b[g, :, j].T, own, own

    return DotTerms(gather, None, per_gather(k))


def _pieces(product: Matrices[np.ndarray]) -> Iterator[Piece]:
    if product.out.size == 0:
        return iter(())
    if product.a.ndim == 3:
        return _batch_pieces(product.a, product.b, product.out)
    last = product.c if product.adds_term else None
    return _matrix_pieces(product.a, product.b, last, product.out)


@rounded_kernel(*MATRIX_OPERATORS, named=True)
def products(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.mm, aten.bmm and aten.addmm, where 2.5 goes on from R if C is no term (13.3)."""
    product = matrices(op, attrs, inputs, outputs)
    yield from _pieces(product)
    if product.c is not None and not product.adds_term:
        scale_and_add(product.out, product.c, product.alpha, product.beta)


# --- sums and means -------------------------------------------------------------------------------
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
        terms, values = SumTerms(part, start + r0), out[r0:r1].reshape(-1, 1)
        yield Piece(output, w.reshape(-1, 1), ea, _ONE, None, values, start + r0, 1, terms)


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
