"""Equal outputs and different logs, and what comes after them (PROTOCOL 6.13, 6.14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.judge import messages as ask
from reference.judge.element import Below
from reference.judge.encoding import MalformedError
from reference.judge.game import Referee
from reference.judge.logs import Section, open_block, sections
from reference.judge.merkle import (
    LEAF,
    Type,
    canonical,
    elements,
    join,
    leaf_hash,
    leaves_of,
    parts,
    root,
    tensor_digest,
    width,
)
from reference.judge.quantities import Element
from reference.judge.rounds import (
    BOTH,
    Play,
    UndecidedError,
    VerdictError,
    asked,
    convict,
    descend,
)
from reference.judge.trees import quantity

FALSE = "6.13"


def equal_outputs(game: Referee, digests: Sequence[list[bytes]]) -> Play:
    """6.13; goes on with 6.14."""
    pairs = enumerate(zip(digests[0], digests[1], strict=True))
    number = next(n for n, (x, y) in pairs if x != y)
    section = sections(game)[number]
    mine = [digests[p][number] for p in BOTH]
    if section.blocks == 0:
        convict([(p, mine[p] != section.digest(root([]))) for p in BOTH], FALSE)
    block, _ = yield from descend(
        lambda first, count: hashes(game, number, section, first, count),
        section.blocks,
        lambda p, whole: section.digest(whole) == mine[p],
        FALSE,
    )
    found = yield from open_block(game, number, block, mine)
    every = sorted(set(found[0]) | set(found[1]))
    e = next((i for i in every if found[0].get(i) != found[1].get(i)), None)
    if e is not None:
        yield from entry_differs(game, section, e, [found[p].get(e) for p in BOTH])
    yield from after_equal_values(game)


def hashes(game: Referee, number: int, section: Section, first: int, count: int) -> ask.Query:
    query = ask.log_hashes(game.step, number, first, count)

    def read(r: Any) -> list[bytes]:
        blocks, found = query.read(r)
        if blocks != section.blocks:
            raise MalformedError("another number of blocks")
        return list(found)

    return ask.Query(query.data, read)


def entry_differs(game: Referee, section: Section, e: int, own: list[int | None]) -> Play:
    """OPENING 8.7, 9.6."""
    j, output = section.node, section.output
    node = game.program.nodes[j]
    kind = node.types[output]
    found = yield from asked({0: ask.node(game.step, j)})
    record = found[0]
    convict([(0, not game.in_tree(record, j, game.trees[0]))], FALSE)
    if not game.fits_program(record, node):
        raise VerdictError([(0, FALSE), (1, FALSE)])
    if e >= elements(kind):
        convict([(p, own[p] is not None) for p in BOTH], FALSE)
    place = ask.Place(game.step, j, 1, output)
    value = yield from element_of(place, kind, record.outputs[output], e)
    operands = [None if o is None else game.program.type_of(o) for o in node.operands]
    element = Element(node.op, node.attrs, operands, kind, output, e)
    present = [k for k, o in enumerate(node.operands) if o is not None]
    inputs = dict(zip(present, record.inputs, strict=True))
    below = Below(game, place, element, inputs)
    below.entries, below.value = own, value
    q = quantity(element, game.terms.contract)
    if q.kind == "logged":
        yield from below.settle(q, [value, value])


def element_of(place: ask.Place, kind: Type, digest: bytes, e: int) -> Play:
    """An element that both agree on, opened by party 0."""
    w = width(kind[0])
    leaf = e * w // LEAF
    first, count, known = 0, leaves_of(kind), None
    while count > 1:
        found = yield from asked({0: ask.tensor_hashes(place, first, count)})
        whole = join(list(found[0]), count)
        fits = whole == known if known else tensor_digest(kind, whole) == digest
        convict([(0, not fits)], FALSE)
        pieces = parts(first, count)
        at = next(i for i, (a, n) in enumerate(pieces) if a <= leaf < a + n)
        known, (first, count) = found[0][at], pieces[at]
    found = yield from asked({0: ask.leaf(place, leaf, kind)})
    hashed = leaf_hash(found[0])
    fits = hashed == known if known else tensor_digest(kind, hashed) == digest
    convict([(0, not fits)], FALSE)
    convict([(p, not canonical(kind[0], found[0])) for p in BOTH], FALSE)
    start = e * w - leaf * LEAF
    return found[0][start : start + w]


def after_equal_values(game: Referee) -> Play:
    """6.14."""
    a, b = game.parties
    i, t = game.terms.interval, game.step
    last = min(a.final, b.final)
    known: dict[int, bool] = {}

    def same(step: int) -> Play:
        if step not in known:
            known[step] = yield from compare(game, step)
        return known[step]

    if (yield from same(last)):
        if a.final == b.final:
            raise UndecidedError
        yield from game.last_loss(last, a.stated[last])
    lo, hi = (t + 1) // i, -(-last // i)
    while hi > lo + 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if (yield from same(middle * i)) else (lo, middle)
    lo, hi = max(lo * i, t + 1), min(hi * i, last)
    while hi > lo + 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if (yield from same(middle)) else (lo, middle)
    yield from same(lo)
    game.step = lo
    game.log_before = game.logs_at[lo]
    yield from game.diverging_node()


def compare(game: Referee, step: int) -> Play:
    """Whether two states differ in their log chains only."""
    a, b = game.parties
    i = game.terms.interval
    ends = step == a.final == b.final
    common = step % i == 0 or ends
    index = a.checkpoints - 1 if ends else step // i
    missing = []
    for p, x in game.each():
        if common and index in x.proved:
            x.stated[step] = x.proved[index]
        elif step == x.final:
            x.stated[step] = x.final_root
        elif step not in x.stated:
            missing.append(p)
    if missing and common:
        yield from game.prove({p: [index] for p in missing})
        for p in missing:
            game.parties[p].stated[step] = game.parties[p].proved[index]
    elif missing:
        found = yield from asked({p: ask.states([step]) for p in missing})
        for p in missing:
            game.parties[p].stated[step] = found[p][step]
    query = ask.slot(step, "chain.log")
    found = yield from asked({0: query, 1: query})
    roots = [game.slot_root("chain.log", *found[p]) for p in BOTH]
    convict([(p, roots[p] != game.parties[p].stated[step]) for p in BOTH], "6.14")
    game.logs_at[step] = [found[p][0] for p in BOTH]
    return found[0][1] == found[1][1]
