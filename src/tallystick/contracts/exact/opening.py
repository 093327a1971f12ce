"""Opening rules of `exact/1`: blocks of integers, one after the other (NUMERICS 17, OPENING 12).

An element is a chain over its segments. In each segment, links of 128 elements first find the
largest magnitude of the left group, then that of the right one; then links of 128 terms add the
products of integers. The chain's state is a record of the total, the block's sum, and the two
magnitudes, so that every link is made of 128 terms and the record alone, however large a group is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tallystick.contracts.exact.contract import BLOCK_LENGTHS, Exact
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.operators.dot import geometry, output_mask
from tallystick.opening.arithmetic import canonical
from tallystick.opening.dot import (
    Products,
    dot,
    gradient,
    place_of_bias,
    product,
    scaled,
    seen_by,
)
from tallystick.opening.quantity import (
    BLOCKS,
    CHUNK,
    Array,
    Chain,
    Index,
    Local,
    Needs,
    Quantity,
    Scalar,
    Site,
    Source,
)

_LAYOUT = struct.Struct("<dqII")  # total, sum, the bits of the two magnitudes
_INFINITY = 0x7F800000
# The elements of a group that a prover reads at once; the number bounds working memory.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Group:
    """The members of a group: `each` adjacent elements of an operand for every outer value u, the
    first at base + u·stride (NUMERICS 17.3)."""

    operand: int
    base: int
    stride: int
    each: int = 1

    def positions(self, first: int, index: Index) -> Index:
        """Row-major positions of members number `index`, `first` being the first outer value."""
        return self.base + (first + index // self.each) * self.stride + index % self.each


@dataclass(frozen=True)
class Blocks:
    """The terms of a DOT, and where its groups lie; `outer` and I of NUMERICS 17.2."""

    terms: Products
    outer: int
    inner: int
    left: Group
    right: Group


blocks_of: Attachments[Callable[[Site], Blocks | None]] = Attachments(
    "exact opening rule", "tallystick.contracts.exact.opening"
)


# --- groups (17.3) --------------------------------------------------------------------------------
def _matrix(site: Site, left: int) -> Blocks:
    rows, length = site.type_of(left).shape[-2:]
    columns = site.type_of(left + 1).shape[-1]
    row, j = divmod(site.element, columns)
    right = Group(left + 1, row // rows * length * columns + j, columns)
    return Blocks(product(site, left), length, 1, Group(left, row * length, 1), right)


@blocks_of("aten.mm", "aten.bmm")
def _products(site: Site) -> Blocks:
    return _matrix(site, 0)


@blocks_of("aten.addmm")
def _addmm(site: Site) -> Blocks:
    return _matrix(site, 1)


def _place(site: Site) -> list[int]:
    return [int(v) for v in np.unravel_index(site.element, site.outputs[site.out].shape)]


@blocks_of("aten.convolution")
def _convolution(site: Site) -> Blocks:
    groups = geometry(site.op, site.attrs)[3]
    (_, channels, h, w), weight = site.type_of(0).shape, site.type_of(1).shape
    n, o = _place(site)[:2]
    taps, first = weight[2] * weight[3], o // (weight[0] // groups) * weight[1]
    left = Group(0, (n * channels + first) * h * w, h * w, h * w)
    right = Group(1, o * weight[1] * taps, taps, taps)
    return Blocks(seen_by(site), weight[1], taps, left, right)


@blocks_of("aten.convolution_backward")
def _gradient(site: Site) -> Blocks | None:
    """None for the bias gradient, which is no DOT."""
    terms, groups = gradient(site), geometry(site.op, site.attrs)[3]
    if not isinstance(terms, Products):
        return None
    which = [k for k, wanted in enumerate(output_mask(site.attrs)) if wanted][site.out]
    grad, image, weight = (site.type_of(k).shape for k in range(3))
    taps, plane, places = weight[2] * weight[3], image[2] * image[3], grad[2] * grad[3]
    a, b = _place(site)[:2]
    if which == 0:  # a is the image, b the input channel
        group, own = divmod(b, weight[1])
        outs = weight[0] // groups
        left = Group(0, (a * grad[1] + group * outs) * places, places, places)
        right = Group(2, (group * outs * weight[1] + own) * taps, weight[1] * taps, taps)
        return Blocks(terms, outs, taps, left, right)
    # a is the output channel, b the input channel of its group
    channel = a // (weight[0] // groups) * weight[1] + b
    left = Group(0, a * places, grad[1] * places, places)
    right = Group(1, channel * plane, image[1] * plane, plane)
    return Blocks(terms, grad[0], places, left, right)


# --- the record (OPENING 12.3) --------------------------------------------------------------------
def _wrapped(n: int) -> int:
    """n modulo 2^64, in the range of i64 (12.4)."""
    return (n + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass
class Record:
    """The state of the chain. `mu` and `nu` are bits of magnitudes."""

    total: float
    sum: int
    mu: int
    nu: int

    @classmethod
    def of(cls, state: Any) -> Record:
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


START = Record(0.0, 0, 0, 0).packed


def _exponent(mu: int) -> int:
    """e of 17.4, of the bits of a magnitude that is finite and not 0."""
    return (mu >> 23) - 126 if mu >> 23 else mu.bit_length() - 149


def _most(x: Array) -> int:
    """The bits of the largest magnitude."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0x7FFFFFFF)
    return int(bits.max(initial=0))


@np.errstate(all="ignore")
def _integers(x: Array, mu: int, width: int) -> Array:
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


@dataclass(frozen=True)
class _Plan:
    """The links of an element: which segment, phase and terms each has."""

    blocks: Blocks
    width: int

    @property
    def each(self) -> int:
        """Outer values of a segment (17.2)."""
        return max(1, BLOCK_LENGTHS[self.width] // max(1, self.blocks.inner))

    def phases(self, outer: int) -> tuple[int, int, int]:
        """The elements or terms of the three phases of a segment of `outer` outer values."""
        b = self.blocks
        return outer * b.left.each, outer * b.right.each, outer * b.inner

    @property
    def per_segment(self) -> int:
        """Links of a segment that is no shorter one."""
        return sum(_links(n) for n in self.phases(self.each))

    @property
    def count(self) -> int:
        """Links of all segments."""
        whole, rest = divmod(self.blocks.outer, self.each)
        last = sum(_links(n) for n in self.phases(rest)) if rest else 0
        return whole * self.per_segment + last

    def advance(self, source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        record = Record.of(state)
        while first < last:
            number, link = divmod(first, self.per_segment)
            start = number * self.each
            sizes = self.phases(min(self.each, self.blocks.outer - start))
            phase = 0
            while link >= _links(sizes[phase]):
                link -= _links(sizes[phase])
                phase += 1
            end = min(link + last - first, _links(sizes[phase]))
            first += end - link
            begin, stop = link * CHUNK, min(end * CHUNK, sizes[phase])
            if phase == 2:
                self._add(source, record, start * self.blocks.inner, begin, stop, sizes[2])
            else:
                self._greatest(source, record, phase, start, begin, stop)
        return record.packed

    def _greatest(
        self, source: Source, record: Record, phase: int, start: int, begin: int, stop: int
    ) -> None:
        group = self.blocks.right if phase else self.blocks.left
        if phase == 0 and begin == 0:
            record.sum, record.mu, record.nu = 0, 0, 0
        for at in range(begin, stop, _AT_ONCE):
            index = np.arange(at, min(at + _AT_ONCE, stop), dtype=np.int64)
            found = _most(source.read(group.operand, group.positions(start, index)))
            if phase:
                record.nu = max(record.nu, found)
            else:
                record.mu = max(record.mu, found)

    def _add(
        self, source: Source, record: Record, offset: int, begin: int, stop: int, size: int
    ) -> None:
        length = BLOCK_LENGTHS[self.width]
        while begin < stop:
            to = min(stop, begin - begin % length + length)
            index = np.arange(offset + begin, offset + to, dtype=np.int64)
            a, b = self.blocks.terms.factors(source, index)
            left, right = (
                _integers(x, mu, self.width) for x, mu in ((a, record.mu), (b, record.nu))
            )
            record.sum += int((left * right).sum())
            if to % length == 0 or to == size:
                record.end_block(self.width)
            begin = to


def exact_rule(site: Site) -> Quantity | None:
    """The quantity of an element of a DOT of `exact/1`; None where the rule is `ordered/1`'s."""
    contract = parse_contract(site.contract)
    if not isinstance(contract, Exact) or site.op not in contract.own_operators:
        return None
    found = blocks_of[site.op](site)
    if found is None:
        return None
    plan = _Plan(found, contract.width)
    chain = Chain("blocks", "blk", plan.count, 1, START, plan.advance, weight=CHUNK)
    at = place_of_bias(site) if site.op == "aten.convolution" else None

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        total = Record.of(needs[0]).total
        d = needs[1] if math.isnan(total) else np.float32(total)
        if site.op == "aten.addmm":
            return scaled(site, source, d)
        if at is not None:
            d = d + source.read(2, np.array([at], dtype=np.int64))[0]
        return canonical(d)

    return Local("RN32(total)", "f32", compute, (chain, dot(found.terms)))


def shown(state: Any) -> str:
    """A record for a person."""
    record = Record.of(state)
    return (
        f"the total {record.total!r}, the block's sum {record.sum}, "
        f"magnitudes 0x{record.mu:08x} and 0x{record.nu:08x}"
    )
