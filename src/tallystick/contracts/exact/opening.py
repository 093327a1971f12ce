"""Opening rules of `exact/1`: blocks of integers, one after the other (NUMERICS 17, OPENING 12).

An element is a chain over its segments. In each segment, links of 128 elements first find the
largest magnitude of the left group, then that of the right one; then links of 128 terms add the
products of integers. The chain's state is a record of the total, the block's sum, and the two
magnitudes, so that every link is made of 128 terms and the record alone, however large a group is.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tallystick.contracts.exact import BLOCK_LENGTHS, outer_values
from tallystick.opening.dot import Products, canonical, dot
from tallystick.opening.parts import summed
from tallystick.opening.quantity import (
    BLOCKS,
    CHUNK,
    Array,
    Chain,
    Local,
    Needs,
    Quantity,
    Scalar,
    Site,
    Source,
    TreeQuantity,
)

_LAYOUT = struct.Struct("<dqII")  # total, sum, the bits of the two magnitudes
_INFINITY = 0x7F800000
# The elements of a group that a prover reads at once; the number bounds working memory.
_AT_ONCE = 1 << 20


# --- the record (OPENING 12.3) --------------------------------------------------------------------
def _wrapped(n: int) -> int:
    """n modulo 2^64, in the range of i64 (12.4)."""
    return (n + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass
class ExactRecord:
    """The state of the chain. `mu` and `nu` are bits of magnitudes."""

    total: float
    sum: int
    mu: int
    nu: int

    @classmethod
    def of(cls, state: Any) -> ExactRecord:
        return cls(*_LAYOUT.unpack(np.asarray(state, BLOCKS).tobytes()))

    @property
    def packed(self) -> Scalar:
        total = math.nan if self.total != self.total else self.total  # 1.5: the canonical NaN
        data = _LAYOUT.pack(total, _wrapped(self.sum), self.mu, self.nu)
        return cast(Scalar, np.frombuffer(data, BLOCKS)[0])

    def end_block(self, width: int) -> None:
        """Add the block to the total (NUMERICS 17.5, 17.6)."""
        if self.mu >= _INFINITY or self.nu >= _INFINITY:
            value = math.nan  # 17.7: it stays in the total
        elif self.mu == 0 or self.nu == 0:
            value = 0.0
        else:
            shift = _exponent(self.mu) + _exponent(self.nu) - 2 * (width - 1)
            value = math.ldexp(float(_wrapped(self.sum)), shift) + 0.0
        self.total, self.sum = self.total + value, 0


START = ExactRecord(0.0, 0, 0, 0).packed


def _exponent(mu: int) -> int:
    """e of 17.4, of the bits of a magnitude that is finite and not 0."""
    return (mu >> 23) - 126 if mu >> 23 else mu.bit_length() - 149


def _most(x: Array) -> int:
    """The bits of the largest magnitude."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0x7FFFFFFF)
    return int(bits.max(initial=0))


@np.errstate(all="ignore")
def integers_in_group(x: Array, mu: int, width: int) -> Array:
    """m(x), i64, of elements in a group of magnitude mu (17.4).

    Two liars may agree on a magnitude that a group does not have: then integers beyond the range
    are cut to it, and an element that is not finite counts as 0 (OPENING 12.4).
    """
    wide = np.asarray(x, np.float32).astype(np.float64)
    if mu == 0 or mu >= _INFINITY:
        return np.zeros(wide.shape, np.int64)
    high = 2.0 ** (width - 1)
    m = np.rint(np.ldexp(np.where(np.isfinite(wide), wide, 0.0), width - 1 - _exponent(mu)))
    cut: Array = np.clip(m, -high, 127.0 if width == 8 else high).astype(np.int64)
    return cut


# --- the chain (OPENING 12.2) ---------------------------------------------------------------------
def _links(count: int) -> int:
    return -(-count // CHUNK)


class _Plan:
    """The links of an element: which segment, phase and terms each has."""

    def __init__(self, terms: Products, width: int) -> None:
        self.terms, self.width, self.inner = terms, width, max(1, terms.inner)
        self.left, self.right = terms.groups()
        # The outer values of all segments, and of one (17.2).
        self.outer = terms.count // self.inner
        self.each = outer_values(width, self.inner)

    def phases(self, outer: int) -> tuple[int, int, int]:
        """The elements or terms of the three phases of a segment of `outer` outer values."""
        return outer * self.left.each, outer * self.right.each, outer * self.inner

    @property
    def per_segment(self) -> int:
        """Links of a segment that is no shorter one."""
        return sum(_links(n) for n in self.phases(self.each))

    @property
    def count(self) -> int:
        """Links of all segments."""
        whole, rest = divmod(self.outer, self.each)
        last = sum(_links(n) for n in self.phases(rest)) if rest else 0
        return whole * self.per_segment + last

    def advance(self, source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        record = ExactRecord.of(state)
        while first < last:
            number, link = divmod(first, self.per_segment)
            start = number * self.each
            sizes = self.phases(min(self.each, self.outer - start))
            phase = 0
            while link >= _links(sizes[phase]):
                link -= _links(sizes[phase])
                phase += 1
            end = min(link + last - first, _links(sizes[phase]))
            first += end - link
            begin, stop = link * CHUNK, min(end * CHUNK, sizes[phase])
            if phase == 2:
                self._add(source, record, start * self.inner, begin, stop, sizes[2])
            else:
                self._greatest(source, record, phase, start, begin, stop)
        return record.packed

    def _greatest(
        self, source: Source, record: ExactRecord, phase: int, start: int, begin: int, stop: int
    ) -> None:
        group = self.right if phase else self.left
        if phase == 0 and begin == 0:
            record.sum, record.mu, record.nu = 0, 0, 0
        offset = start * group.each
        for at in range(begin, stop, _AT_ONCE):
            index = np.arange(offset + at, offset + min(at + _AT_ONCE, stop), dtype=np.int64)
            found = _most(group.members(source, index))
            if phase:
                record.nu = max(record.nu, found)
            else:
                record.mu = max(record.mu, found)

    def _add(
        self, source: Source, record: ExactRecord, offset: int, begin: int, stop: int, size: int
    ) -> None:
        length = BLOCK_LENGTHS[self.width]
        while begin < stop:
            to = min(stop, begin - begin % length + length)
            index = np.arange(offset + begin, offset + to, dtype=np.int64)
            a, b = self.terms.factors(source, index)
            left, right = (
                integers_in_group(x, mu, self.width) for x, mu in ((a, record.mu), (b, record.nu))
            )
            record.sum += int((left * right).sum())
            if to % length == 0 or to == size:
                record.end_block(self.width)
            begin = to


def exact_rule(site: Site, width: int) -> Quantity | None:
    """The quantity of an element of a DOT by integers of B = `width`; None for the bias gradient,
    which is no DOT."""
    found = summed(site)
    if isinstance(found.terms, TreeQuantity):
        return None
    plan = _Plan(found.terms, width)
    chain = Chain("blocks", "blk", plan.count, 1, START, plan.advance, weight=CHUNK)

    def compute(source: Source, needs: Needs) -> Array:
        total = ExactRecord.of(needs[0]).total
        with np.errstate(all="ignore"):
            d = needs[1] if math.isnan(total) else np.float32(total)
        return canonical(found.made_of(d, source))

    return Local("RN32(total)", "f32", compute, (chain, dot(found.terms)))


def shown(state: Any) -> str:
    """A record for a person."""
    record = ExactRecord.of(state)
    return (
        f"the total {record.total!r}, the block's sum {record.sum}, "
        f"magnitudes 0x{record.mu:08x} and 0x{record.nu:08x}"
    )
