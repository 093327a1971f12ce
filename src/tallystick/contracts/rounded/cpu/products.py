"""Pieces of mm, bmm and addmm (NUMERICS 13.3; 2.4, 2.5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tallystick import _core
from tallystick.contracts.rounded.cpu.operators import rounded_kernel
from tallystick.contracts.rounded.cpu.pieces import (
    DotTerms,
    Gathered,
    Piece,
    depth_share,
    per_gather,
    term_factor,
)
from tallystick.devices.arrays import Arrays, Outputs, operand
from tallystick.numerics.operators.common import number, rn32
from tallystick.numerics.types import Attrs
from tallystick.products.engines import ProductEngine, current_engine
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


def matrix_pieces(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, out: np.ndarray
) -> Iterator[Piece]:
    """Pieces of a·b + c: f32 [M,K], [K,N]; c broadcasts to [M,N] and is the last term (13.3)."""
    m, k = a.shape
    n = b.shape[1]
    if out.size == 0:
        return
    engine = current_engine()
    factor = term_factor(k + (c is not None))
    with np.errstate(over="ignore", invalid="ignore"):
        ea = factor * np.sqrt(_core.square_sums_rows(a))
        eb = np.sqrt(_core.square_sums_columns(b)).reshape(1, n)
    last = None if c is None else np.broadcast_to(c, (m, n))
    by_column = c is not None and (c.ndim == 0 or c.shape[:-1] in ((), (1,)))
    mt, nt, kt = product_tiles(m, n, k)
    with_last = c is not None
    share = depth_share(k + with_last, kt + with_last, -(-k // kt))
    for j0, j1 in ranges(n, nt):
        for i0, i1 in ranges(m, mt):
            w = SCRATCH.get("w", (i1 - i0, j1 - j0))
            _accumulated(engine, a[i0:i1], b[:, j0:j1], kt, w)
            ec = None
            if last is not None:
                ec = (last[0, j0:j1] if by_column else last[i0:i1, j0:j1]).astype(np.float64)
                with np.errstate(over="ignore", invalid="ignore"):
                    np.add(w, ec, out=w)
                    ec = factor * np.abs(ec)
            yield Piece(
                0,
                w,
                ea[i0:i1],
                eb[:, j0:j1],
                ec,
                out[i0:i1, j0:j1],
                i0 * n + j0,
                n,
                _matrix_terms(a[i0:i1], b[:, j0:j1], last if last is None else last[i0:i1, j0:j1]),
                share,
            )


def _matrix_terms(a: np.ndarray, b: np.ndarray, last: np.ndarray | None) -> DotTerms:
    n = b.shape[1]

    def gather(at: np.ndarray) -> Gathered:
        return (a, b, *np.divmod(at, n))

    return DotTerms(gather, None if last is None else lambda at: last[at // n, at % n])


@rounded_kernel("aten.mm")
def mm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.mm."""
    yield from matrix_pieces(operand(inputs, 0), operand(inputs, 1), None, outputs[0])


@rounded_kernel("aten.bmm")
def bmm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.bmm: small matrices share a piece; each other one is treated as in aten.mm."""
    a, b, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    batch, m, k = a.shape
    n = b.shape[2]
    if out.size == 0:
        return
    each = m * k + k * n + m * n
    if each > BUDGET:
        for g in range(batch):
            for piece in matrix_pieces(a[g], b[g], None, out[g]):
                piece.start += g * m * n
                yield piece
        return
    engine, factor = current_engine(), term_factor(k)
    for g0, g1 in ranges(batch, max(1, BUDGET // max(1, each))):
        ea, eb = np.empty((g1 - g0, m)), np.empty((g1 - g0, n))
        for g in range(g0, g1):
            ea[g - g0] = _core.square_sums_rows(a[g])
            eb[g - g0] = _core.square_sums_columns(b[g])
        w = SCRATCH.get("w", (g1 - g0, m, n))
        engine.mm(widened("a", a[g0:g1]), widened("b", b[g0:g1]), w)
        yield Piece(
            0,
            w.reshape(-1, n),
            factor * np.sqrt(ea).reshape(-1),
            np.sqrt(eb),
            None,
            out[g0:g1].reshape(-1, n),
            g0 * m * n,
            n,
            _batch_terms(a[g0:g1], b[g0:g1]),
        )


def _batch_terms(a: np.ndarray, b: np.ndarray) -> DotTerms:
    m, k, n = a.shape[1], a.shape[2], b.shape[2]

    def gather(at: np.ndarray) -> Gathered:
        rows, j = np.divmod(at, n)
        g, i = np.divmod(rows, m)
        own = np.arange(len(at))
        return a[g, i], b[g, :, j].T, own, own

    return DotTerms(gather, None, per_gather(k))


@rounded_kernel("aten.addmm")
def addmm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.addmm: C is a term where alpha and beta are 1; else 2.5 goes on from R (13.3)."""
    c, a, b, out = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2), outputs[0]
    alpha, beta = number(attrs, "alpha"), number(attrs, "beta")
    if alpha == 1 and beta == 1:
        yield from matrix_pieces(a, b, c, out)
        return
    yield from matrix_pieces(a, b, None, out)
    with np.errstate(all="ignore"):
        if alpha != 1:
            np.multiply(out, rn32(alpha), out=out)
        if beta != 0:
            np.add(out, c if beta == 1 else c * rn32(beta), out=out)
    canonical(out)


def canonical(out: np.ndarray) -> None:
    """Give every NaN of a float32 array the canonical pattern (NUMERICS 1.5)."""
    if out.ndim == 0:
        out = out.reshape(1)
    bad = np.isnan(out)
    if bad.any():
        out[bad] = rn32(float("nan"))
