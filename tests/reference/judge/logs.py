"""Rounding logs: sections, blocks, entries, and what an entry allows (PROTOCOL 6.10 to 6.13)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reference.judge import messages as ask
from reference.judge.encoding import MalformedError, sha, tag, u8, u64
from reference.judge.game import Referee
from reference.judge.merkle import by_inclusion, digest_of_bytes, elements, leaf_hash, root
from reference.judge.rounds import BOTH, CHAIN, Play, both, convict
from reference.judge.trees_exact import ROUNDED
from reference.judge.trees_move import MOVE
from reference.logs import number, order
from reference.rounded import UNIT, grid_pattern

SCATTERS = {
    "aten.embedding_dense_backward",
    "aten.index_add",
    "aten.max_pool2d_with_indices_backward",
}
# Operators without a section in the published form: data movement, and NUMERICS 10.12.
MOVES = (set(MOVE) - SCATTERS) | {"tallystick.fold"}
TOP = 0x7F800000


@dataclass(frozen=True)
class Section:
    node: int
    output: int
    elements: int
    published: bool

    @property
    def per_block(self) -> int:
        return 10240 if self.published else 4096

    @property
    def blocks(self) -> int:
        return -(-self.elements // self.per_block)

    def digest(self, tree: bytes) -> bytes:
        """COMMITMENTS 10.4."""
        head = tag("log-section/1") + u64(self.node) + u64(self.output) + u64(self.elements)
        return sha(head + u8(1 + self.published) + u64(self.blocks) + tree)


def published(contract: str) -> bool:
    return "form=published" in contract


def sections(game: Referee) -> list[Section]:
    """COMMITMENTS 10.1, NUMERICS 14.9."""
    form = published(game.terms.contract)
    return [
        Section(j, k, elements(kind), form)
        for j, node in enumerate(game.program.nodes)
        for k, kind in enumerate(node.types)
        if kind[0] == "f32" and (node.op not in MOVES if form else node.op in ROUNDED)
    ]


def entries(section: Section, block: int, data: bytes) -> dict[int, int]:
    """position -> entry of a block (10.2, 10.3); MalformedError if it is none.

    Of a published block the entries 1 are left out: they are those of a party without one.
    """
    first = block * section.per_block
    if not section.published:
        if len(data) % 2:
            raise MalformedError("half an entry")
        words = struct.unpack(f"<{len(data) // 2}H", data)
        places = [w // 2 for w in words]
        if any(w > 8191 for w in words) or places != sorted(set(places)):
            raise MalformedError("positions that do not ascend")
        return {first + w // 2: w % 2 for w in words}
    size = min(2048, -(-section.elements // 5) - block * 2048)
    if len(data) != size or any(b > 242 for b in data):
        raise MalformedError("no bytes of entries")
    found = {}
    for i, b in enumerate(data):
        for k in range(5):
            if b // 3**k % 3 != 1:
                found[first + 5 * i + k] = b // 3**k % 3
    if found and max(found) >= section.elements:
        raise MalformedError("a filler that is not 1")
    return found


def open_logs(game: Referee) -> Play:
    """(section digests, chain after the step) by party (6.10)."""
    t, all_sections = game.step, sections(game)
    found = yield from both(ask.log(t))
    wrong, out = [], {}
    for p in BOTH:
        before, first, digests, last = found[p]
        tree = root([leaf_hash(d) for d in digests])
        log = sha(tag("log/1") + u64(t) + u64(len(digests)) + tree)
        after = sha(tag("log-chain/1") + before + u64(t) + log)
        stated = game.parties[p].stated
        fits = game.slot_root("chain.log", digest_of_bytes(CHAIN, before), first) == stated[t]
        mine = game.slot_root("chain.log", digest_of_bytes(CHAIN, after), last)
        fits = fits and len(digests) == len(all_sections)
        wrong.append((p, not fits or mine != stated[t + 1]))
        out[p] = (digests, after)
    convict(wrong, "6.10")
    return out


def open_block(game: Referee, number_of: int, block: int, digests: list[bytes]) -> Play:
    """The entries of a block, by party; digests: the section's, by party (6.10)."""
    section = sections(game)[number_of]
    found = yield from both(ask.log_block(game.step, number_of, block))
    wrong, out = [], {}
    for p in BOTH:
        data, proof = found[p]
        tree = by_inclusion(leaf_hash(data), block, section.blocks, proof)
        bad = section.digest(tree) != digests[p]
        try:
            out[p] = entries(section, block, data)
        except MalformedError:
            bad = True
        wrong.append((p, bad))
    convict(wrong, "6.10")
    return out


@dataclass
class Bounded:
    """v*, E and V of a finite exact sum (OPENING 8.6)."""

    true: Fraction
    bound: float
    b: int

    @property
    def step(self) -> int:
        return 1 << (32 - self.b)

    def v(self) -> tuple[int, int]:
        e = Fraction(self.bound)
        low, high = (order(grid_pattern(self.true + d, self.b)) for d in (-e, e))
        return low, high

    def two(self) -> bool:
        low, high = self.v()
        return high - low == self.step

    def value(self, entry: int | None) -> int:
        """The bits of what an entry makes of it (8.6.4)."""
        if entry is None or not self.two():
            return grid_pattern(self.true, self.b)
        at = self.v()[entry]
        return at if at >= 0 else 0x80000000 | -at

    def forged(self, entry: int) -> bool:
        """8.7.1."""
        if self.two():
            return False
        r = order(grid_pattern(self.true, self.b))
        far: list[Fraction | None] = []
        for side in (self.step, -self.step) if entry == 0 else (-self.step, self.step):
            beyond = abs(r + side) > TOP
            middle = None if beyond else (number(r) + number(r + side)) / 2
            far.append(None if middle is None else abs(self.true - middle))
        if far[0] is None:
            return True
        e = Fraction(self.bound)
        return far[0] > 3 * e and far[1] is not None and far[1] < far[0]

    def reach(self, c: int) -> tuple[int, int]:
        """V(c) from its least to its greatest element (9.4.2)."""
        e = Fraction(self.bound)
        return rev(self.true - e, c, self.b), rev(self.true + e, c, self.b)


def rev(x: Fraction, c: int, b: int) -> int:
    """9.4.2, in the order of the grid."""
    step = 1 << (32 - b)
    r = order(grid_pattern(x, b))
    if c == 1:
        return r
    if abs(r) == TOP:
        inward = r - step if r > 0 else r + step
        return inward if (c == 0) == (r > 0) else r
    if c == 0:
        return r - step if number(r) > x else r
    return r + step if number(r) < x else r


def true_sum(acc: bytes) -> Fraction:
    return int.from_bytes(acc[:79], "little", signed=True) * UNIT


def false_value(of: Bounded, claim: bytes, c: int) -> bool:
    """Whether a published value is not in V(1), or not in V(c) (9.5)."""
    bits = int(np.frombuffer(claim, "<u4")[0])
    if bits & 0x7FFFFFFF > TOP or bits & (of.step - 1):
        return True
    at = order(bits)
    return not all(low <= at <= high for low, high in (of.reach(1), of.reach(c)))


def forged_choice(of: Bounded, c: int) -> bool:
    """9.6: V(c) and V(1) have no element in common."""
    (a, b), (low, high) = of.reach(c), of.reach(1)
    return b < low or high < a
