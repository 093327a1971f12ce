"""A piece: a part of an operator's output before it is rounded, with the data to decide it.

An operator under `rounded/1` or bounded `replay/1` is a generator of pieces. The consumer writes
each piece's values before it takes the next piece. `exactly` writes R(v*) (NUMERICS 13). A log's
recorder or follower writes the values that 14.5 gives. The generator does the operations that
follow R (alpha, beta, a mean's division: 13.3) after its last piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tallystick import _core

_NAN = np.array(0x7FC00000, dtype=np.uint32).view(np.float32)
# The number of operand values gathered at a time for exact sums: 16 MiB of binary32.
GATHER = 4 << 20


def depth_share(terms: int, longest: int, parts: int) -> float:
    """The share of E (14.4) that bounds the error of a sum of `terms` terms added in parts.

    There are `parts` parts of at most `longest` terms each, and they are added one after the other.
    The share is 14.4.1 with the number of additions on the longest path, which is below `longest` +
    `parts`, in place of K.
    """
    return 1.0 if parts <= 1 else min(1.0, (longest + parts) / terms)


class ExactTerms(Protocol):
    """The exact terms (13.3) of an output's elements, by row-major position in the output."""

    def rounded(self, at: np.ndarray, bits: int) -> np.ndarray:
        """f32[k]: R(v*) of the elements at i64[k]."""
        ...

    def accumulators(self, at: np.ndarray) -> np.ndarray:
        """u8[k,80]: the accumulator records (13.5) of the elements at i64[k]."""
        ...


@dataclass
class Piece:
    """Elements of output number `output` (of the node's outputs), as a matrix of R rows, N columns.

    w: f64[R,N], C-contiguous, each within E of v* (14.3, 14.4); valid until the next piece.
    Bound: E[r,j] = ea[r]·eb[r // (R/G), j] + ec, in binary64, with ea f64[R], eb f64[G,N] and
    ec None, f64[N] or broadcasting to [R,N].
    out: f32[R,N], a view of the output (any strides), which receives the values.
    Position r·N + j of the piece is element `start + r·row_step + j` of the output, row-major.
    """

    output: int
    w: np.ndarray
    ea: np.ndarray
    eb: np.ndarray
    ec: np.ndarray | None
    out: np.ndarray
    start: int
    row_step: int
    terms: ExactTerms
    # |w − v*| ≤ share·E. The share is below 1 where the contraction was added in parts
    # (depth_share).
    share: float = 1.0

    def flat(self, at: np.ndarray) -> np.ndarray:
        """i64[k]: row-major positions in the output of the piece's elements `at`; ascending if
        `at` is."""
        n = self.w.shape[1]
        places: np.ndarray = self.start + at // n * self.row_step + at % n
        return places

    def bound(self, at: np.ndarray) -> np.ndarray:
        """f64[k]: E (14.4) of the piece's elements `at`; not finite where an operand is not."""
        rows, n = self.w.shape
        i, j = np.divmod(at, n)
        per_group = max(1, rows // len(self.eb))
        with np.errstate(all="ignore"):
            e: np.ndarray = self.ea[i] * self.eb[i // per_group, j]
            if self.ec is not None:
                e = e + np.broadcast_to(self.ec, self.w.shape)[i, j]
        return e

    def doubtful(self, factor: float, bits: int, out: np.ndarray) -> np.ndarray:
        """Write R(w) to `out`, f32[R,N] C-contiguous; return i64[k], ascending: the elements where
        R(w − factor·E) ≠ R(w + factor·E), or where w or E is not finite."""
        if self.ec is not None and self.ec.ndim != 1:
            return self._doubtful_anywhere(factor, bits, out)
        groups = len(self.eb)
        if groups == 1:
            return np.asarray(
                _core.round_doubt(self.w, self.ea, self.eb[0], self.ec, factor, bits, out)
            )
        size = self.w.shape[0] // groups
        found = []
        for g in range(groups):
            rows = slice(g * size, (g + 1) * size)
            at = _core.round_doubt(
                self.w[rows], self.ea[rows], self.eb[g], self.ec, factor, bits, out[rows]
            )
            if len(at):
                found.append(np.asarray(at) + g * size * self.w.shape[1])
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _doubtful_anywhere(self, factor: float, bits: int, out: np.ndarray) -> np.ndarray:
        """As `doubtful`, by plain evaluation, for a bound whose last term is not one number per
        column (a matrix C, or a convolution's bias)."""
        _core.round_grid(self.w, out, bits)
        everywhere = self.bound(np.arange(self.w.size)).reshape(self.w.shape)
        with np.errstate(all="ignore"):
            reach = factor * everywhere
            low, high = np.nextafter(self.w - reach, -np.inf), np.nextafter(self.w + reach, np.inf)
        ends = [np.empty(self.w.shape, np.float32) for _ in range(2)]
        for end, values in zip(ends, (low, high), strict=True):
            _core.round_grid(values, end, bits)
        sure = (ends[0] == ends[1]) & np.isfinite(everywhere) & np.isfinite(self.w)
        return np.flatnonzero(~sure)

    def rounded(self, at: np.ndarray, bits: int) -> np.ndarray:
        """f32[k]: R(v*) of the elements `at` (13.3, 13.4), summed exactly."""
        rows, n = self.w.shape
        i, j = np.divmod(at, n)
        # 13.4: a NaN operand makes every element of its row or column NaN. The sums of squares
        # show it, so that a diverged run does not sum millions of elements exactly.
        nan = np.isnan(self.ea)[i] | np.isnan(self.eb)[i // max(1, rows // len(self.eb)), j]
        if not nan.any():
            return self.terms.rounded(self.flat(at), bits)
        values = np.full(len(at), _NAN)
        rest = np.flatnonzero(~nan)
        if len(rest):
            values[rest] = self.terms.rounded(self.flat(at[rest]), bits)
        return values

    def accumulators(self, at: np.ndarray) -> np.ndarray:
        """u8[k,80]: the accumulator records (13.5) of the elements `at`."""
        return self.terms.accumulators(self.flat(at))

    def store(self, values: np.ndarray) -> None:
        """Write f32[R,N] to the output; do nothing where the values were made there."""
        if values is not self.out:
            self.out[...] = values

    def room(self) -> np.ndarray:
        """f32[R,N], C-contiguous, for the values: the output itself, if that is C-contiguous."""
        return self.out if self.out.flags.c_contiguous else np.empty(self.w.shape, np.float32)


Decide = Callable[[Piece], None]


def exactly(bits: int) -> Decide:
    """The decision of `rounded/1` about a piece: R(v*) everywhere (13.3)."""

    def decide(piece: Piece) -> None:
        values = piece.room()
        at = piece.doubtful(piece.share, bits, values)
        if len(at):
            values.reshape(-1)[at] = piece.rounded(at, bits)
        piece.store(values)

    return decide


# Operands of k elements: A [m,K], B [K,n]. Element e is row i[e] of A times column j[e] of B.
Gathered = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Gather = Callable[[np.ndarray], Gathered]


@dataclass(frozen=True)
class DotTerms:
    """The terms of a DOT. `gather` finds the operands of positions. `last`, if there is one, gives
    f32[k], the last terms of positions. The class gathers at most `batch` positions at a time."""

    gather: Gather
    last: Callable[[np.ndarray], np.ndarray] | None = None
    batch: int = 1 << 62

    def _parts(self, at: np.ndarray) -> Iterator[tuple[slice, Gathered, np.ndarray | None]]:
        step = max(1, min(self.batch, len(at)))
        for begin in range(0, len(at), step):
            part = slice(begin, begin + step)
            last = None if self.last is None else np.ascontiguousarray(self.last(at[part]))
            yield part, self.gather(at[part]), last

    def rounded(self, at: np.ndarray, bits: int) -> np.ndarray:
        values = np.empty(len(at), np.float32)
        for part, operands, last in self._parts(at):
            values[part] = _core.exact_dots(*operands, last, bits)
        return values

    def accumulators(self, at: np.ndarray) -> np.ndarray:
        records = np.empty((len(at), 80), np.uint8)
        for part, operands, last in self._parts(at):
            records[part] = _core.exact_accs(*operands, last)
        return records


@dataclass(frozen=True)
class SumTerms:
    """The terms of sums: the rows of x f32[R,n], of any strides; position `first` is row 0."""

    x: np.ndarray
    first: int = 0

    def rounded(self, at: np.ndarray, bits: int) -> np.ndarray:
        return np.asarray(_core.exact_sums(self.x, at - self.first, bits))

    def accumulators(self, at: np.ndarray) -> np.ndarray:
        return np.asarray(_core.exact_sum_accs(self.x, at - self.first))


def add_last(w: np.ndarray, last: np.ndarray, factor: float) -> np.ndarray:
    """Add the last terms to w f64[R,N], to which they are broadcast; return their part of the
    bound."""
    wide = last.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(w, wide, out=w)
        share: np.ndarray = factor * np.abs(wide)
    return share


def per_gather(terms: int) -> int:
    """The number of elements, of `terms` terms each, to gather at a time."""
    return max(1, GATHER // max(1, terms))
