"""Phase 3 below an element: from two claimed values to at most 256 executed terms (PROTOCOL 6).

The phase is a generator. It yields `Ask` (both parties state values) and `Open` (elements of the
node's operands, on whose digests both agree), and returns an `Outcome`. The caller fetches and
verifies the answers. For `Ask` it sends back a pair of tuples of numpy scalars of the requested
dtypes. For `Open` it adds the elements to the source and sends None.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallystick.numerics.grid import Doubt
from tallystick.opening.quantity import (
    BLOCK,
    Chain,
    Extremum,
    Index,
    Local,
    Logged,
    MissingElements,
    Needs,
    Quantity,
    Scalar,
    Source,
    TermsQuantity,
    TreeQuantity,
)
from tallystick.opening.values import best_index, scalar, stated, sum_block, top_level
from tallystick.opening.views import (
    FAN_OUT,
    NEEDS,
    WITNESS,
    Path,
    View,
    positions,
    view_dtypes,
)

Pair = tuple[Scalar, Scalar]


@dataclass(frozen=True)
class Ask:
    """Both parties state the values of `view` of the quantity at `path`."""

    path: Path
    view: View
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Open:
    """Elements `flat` of operand `operand` are needed."""

    operand: int
    flat: Index


@dataclass(frozen=True)
class ElementOutcome:
    """The wrong parties, the clause that they broke, and the executed quantity, for a person.

    `claimed` holds the two claims. `value` is the contract's value, None where the referee executed
    no term because the claim contradicts itself. No party is wrong where each claim is the value
    that the party's own log gives to the element (6.12). `choices` are the number that the logs
    leave at the element and the number taken (NUMERICS 14.8). `why` and `shown` explain the outcome
    to a person, where the values alone do not.
    """

    convicted: tuple[bool, bool]
    clause: str
    quantity: str
    path: Path
    terms: int
    claimed: Pair
    value: Scalar | None
    choices: tuple[int, int] = (0, 0)
    why: tuple[str, str] = ("", "")
    shown: tuple[str, str] | None = None


# The direction of each party's entry for an element, None without one (NUMERICS 14.2).
Entries = tuple[int | None, int | None]
Resolving = Generator[Ask | Open, Any, ElementOutcome]


def same_bits(a: Any, b: Any) -> bool:
    """True if two numpy scalars have the same bytes."""
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _first_difference(a: tuple[Scalar, ...], b: tuple[Scalar, ...]) -> int | None:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=True)) if not same_bits(x, y)), None)


def _execute(source: Source, work: Callable[[Source], Any]) -> Generator[Open, None, Any]:
    """`work(source)`; opens the elements that it lacks. Each retry adds elements, so it ends."""
    while True:
        try:
            return work(source)
        except MissingElements as missing:
            yield Open(missing.operand, missing.flat)


def _judged(q: Quantity, path: Path, claims: Pair, value: Scalar, terms: int) -> ElementOutcome:
    wrong = (not same_bits(claims[0], value), not same_bits(claims[1], value))
    return ElementOutcome(wrong, "6.5", q.name, path, terms, claims, value)


def resolve(
    q: Quantity,
    claims: Pair,
    source: Source,
    path: Path = (),
    entries: Entries = (None, None),
    published: bool = False,
) -> Resolving:
    """The outcome about `q`, where `claims` have different bits (PROTOCOL 6.3 to 6.11).

    `entries` are those of the parties' logs; in a `published` log None stands for 1.
    """
    needs: Needs = ()
    while q.needs:
        mine, theirs = yield Ask(path, NEEDS, view_dtypes(q, NEEDS))
        k = _first_difference(mine, theirs)
        if k is None:
            needs = mine
            break
        q, claims, path = q.needs[k], (mine[k], theirs[k]), (*path, k)
    if isinstance(q, Local):
        local = q
        value = yield from _execute(source, lambda s: scalar(q.dtype, local.compute(s, needs)))
        return _judged(q, path, claims, value, 1)
    if isinstance(q, (TreeQuantity, TermsQuantity)):
        return (yield from _resolve_tree(q, claims, source, path, needs))
    if isinstance(q, Chain):
        return (yield from _resolve_chain(q, claims, source, path, needs))
    if isinstance(q, Logged):
        logged = q
        rule = partial(_by_reach if published else _by_entries, entries)
        ruled = yield from _execute(source, lambda s: rule(logged, claims, s, needs))
        assert isinstance(ruled, ElementOutcome)
        return replace(ruled, path=path)
    return (yield from _resolve_extremum(q, claims, source, path, needs))


def _by_entries(
    entries: Entries, q: Logged, claims: Pair, source: Source, needs: Needs
) -> ElementOutcome:
    """6.11, 6.12: each value must be the one that the party's own entry gives to the element."""
    due = tuple(scalar(q.dtype, q.compute(source, needs, entry)) for entry in entries)
    wrong = (not same_bits(claims[0], due[0]), not same_bits(claims[1], due[1]))
    found = q.doubtful(source, needs)
    plain = scalar(q.dtype, q.compute(source, needs, None))
    left = found is not None and found.open and any(entry is not None for entry in entries)
    taken = left and any(not same_bits(value, plain) for value in due)
    why = tuple(
        f"it is {due[k]!s}, the stated {claims[k]!s} is not in its log: "
        + _entry_words(entries[k], found)
        for k in (0, 1)
    )
    value = due[0] if wrong[0] else due[1]
    choices = (int(left), int(taken))
    return ElementOutcome(wrong, "6.11", q.name, (), 1, claims, value, choices, (why[0], why[1]))


def _forged(found: Doubt | None, entry: int | None) -> bool:
    """True if the entry is forged (NUMERICS 14.7); any is where a term is not finite (None)."""
    return entry is not None and (found is None or found.forged(entry))


def _entry_words(entry: int | None, found: Doubt | None) -> str:
    if entry is None:
        return "it has no entry"
    what = "is forged" if _forged(found, entry) else "has no effect"
    if found is not None and found.open:
        what = "names the other value"
    return f"its entry ({'up' if entry else 'down'}) {what}"


def _by_reach(
    entries: Entries, q: Logged, claims: Pair, source: Source, needs: Needs
) -> ElementOutcome:
    """6.11, NUMERICS 14.10: the outcome for two values of a published log.

    A value is false if no kernel rounds to it, or if the party's own entry gives it for no kernel's
    result.
    """
    reach, plain = q.reach(source, needs), scalar(q.dtype, q.compute(source, needs, None))
    if reach is None:
        return ElementOutcome((False, False), "6.11", q.name, (), 1, claims, plain)
    at = [reach.grid.index(claim) for claim in claims]
    wrong = tuple(not reach.true(*pair) for pair in zip(at, entries, strict=True))
    taken = reach.open and any(index != reach.nearest for index in at)
    choices = (int(reach.open), int(taken))
    return ElementOutcome((wrong[0], wrong[1]), "6.11", q.name, (), 1, claims, plain, choices)


def examine(
    q: Logged, entries: Entries, value: Scalar, source: Source, published: bool
) -> Resolving:
    """The parties whose entry is forged or gives another value than `value` (PROTOCOL 6.13).

    Both agree on `value`, and their `entries` differ. `published` says that the entries are of a
    published log, where None stands for 1. There both are wrong if no kernel rounds to `value`.
    """
    mine, theirs = yield Ask((), NEEDS, view_dtypes(q, NEEDS))
    k = _first_difference(mine, theirs)
    if k is not None:
        return (yield from resolve(q.needs[k], (mine[k], theirs[k]), source, (k,)))
    lacking = "entry 1" if published else "no entry"
    shown = tuple(lacking if e is None else f"entry {e}" for e in entries)
    why, wrong, unmade = ["", ""], [False, False], False
    if published:
        reach = yield from _execute(source, lambda s: q.reach(s, mine))
        left = reach is not None and reach.open
        index = None if reach is None else reach.grid.index(value)
        unmade = reach is not None and not reach.allows(index, None)
    else:
        found = yield from _execute(source, lambda s: q.doubtful(s, mine))
        left = found is not None and found.open
    for party, entry in enumerate(entries):
        if published:
            forged = reach is not None and reach.forged(entry)
            denied = reach is not None and not reach.true(index, entry)
        else:
            forged = _forged(found, entry)
            due = yield from _execute(source, partial(_made, q, mine, entry))
            denied = not same_bits(scalar(q.dtype, due), value)
        wrong[party] = bool(forged or denied)
        if forged:
            why[party] = f"the {shown[party]} in its log is forged: no kernel leads to it"
        elif unmade:
            why[party] = f"no kernel rounds to its value {value!s}, whatever {shown[party]} says"
        else:
            why[party] = f"its value {value!s} does not follow from the {shown[party]} in its log"
    return ElementOutcome(
        (wrong[0], wrong[1]), "6.13", q.name, (), 1, (mine[0], theirs[0]), None,
        (int(left), 0), (why[0], why[1]), (shown[0], shown[1]),
    )  # fmt: skip


def _made(q: Logged, needs: Needs, entry: int | None, source: Source) -> Any:
    return q.compute(source, needs, entry)


def _resolve_tree(
    q: TreeQuantity | TermsQuantity, claims: Pair, source: Source, path: Path, needs: Needs
) -> Resolving:
    level, index = top_level(q.count), 0
    while level > 0:  # PROTOCOL 6.6
        view = View("blocks", level, index)
        below = yield Ask(path, view, view_dtypes(q, view))
        split = _split(q, claims, path, below, "6.6")
        if isinstance(split, ElementOutcome):
            return split
        k, claims = split
        level, index = level - 1, index * BLOCK + k
    first, last = index * BLOCK, min(q.count, (index + 1) * BLOCK)
    if isinstance(q, TermsQuantity) and first < last:  # PROTOCOL 6.9
        view = View("terms", first, last)
        below = yield Ask(path, view, view_dtypes(q, view))
        split = _split(q, claims, path, below, "6.9")
        if isinstance(split, ElementOutcome):
            return split
        at = first + split[0]
        return (yield from resolve(q.term(at), split[1], source, (*path, len(q.needs) + at)))
    terms = np.arange(first, last, dtype=np.int64)
    value = scalar(q.dtype, 0)
    if len(terms):
        value = yield from _execute(source, lambda s: sum_block(q.terms(s, needs, terms)))
    return _judged(q, path, claims, value, len(terms))


def _split(
    q: Quantity, claims: Pair, path: Path, below: tuple[tuple[Scalar, ...], ...], clause: str
) -> ElementOutcome | tuple[int, Pair]:
    """The first part of a block that the two state differently, and their claims about it.

    The result is an outcome instead, where a party's parts do not give its claim about the whole.
    """
    wrong = tuple(
        not same_bits(sum_block(np.array(values)), claim)
        for values, claim in zip(below, claims, strict=True)
    )
    if any(wrong):
        return ElementOutcome((wrong[0], wrong[1]), clause, q.name, path, 0, claims, None)
    k = _first_difference(*below)
    assert k is not None  # equal parts would have had equal sums
    return k, (below[0][k], below[1][k])


def _resolve_chain(q: Chain, claims: Pair, source: Source, path: Path, needs: Needs) -> Resolving:
    low, high, state = 0, q.count, q.start
    while high - low > q.stretch:  # PROTOCOL 6.7
        pieces = -(-(high - low) // q.stretch)
        view = View("states", low, high, q.stretch * -(-pieces // FAN_OUT))
        states = yield Ask(path, view, view_dtypes(q, view))
        at = list(positions(view))
        k = _first_difference(*states)
        if k is None:
            low, state = at[-1], states[0][-1]
        else:
            high, claims = at[k], (states[0][k], states[1][k])
            if k > 0:
                low, state = at[k - 1], states[0][k - 1]
    value = state
    if high > low:
        value = yield from _execute(source, lambda s: q.advance(s, needs, state, low, high))
    terms = (high - low) * q.weight
    return _judged(q, path, claims, stated(q, value), terms)


def _resolve_extremum(
    q: Extremum, claims: Pair, source: Source, path: Path, needs: Needs
) -> Resolving:
    if q.kind == "argmax":
        witnesses = [int(np.asarray(claim)) for claim in claims]
    else:
        stated = yield Ask(path, WITNESS, view_dtypes(q, WITNESS))
        witnesses = [int(np.asarray(w[0])) for w in stated]
    outside = tuple(not 0 <= w < q.count for w in witnesses)
    if any(outside):  # PROTOCOL 6.8
        return ElementOutcome((outside[0], outside[1]), "6.8", q.name, path, 0, claims, None)
    index = np.array(witnesses, dtype=np.int64)
    elements = yield from _execute(source, lambda s: q.element(s, needs, index))
    if q.kind != "argmax":
        false = tuple(
            not same_bits(scalar(q.dtype, e), c) for e, c in zip(elements, claims, strict=True)
        )
        if any(false):
            return ElementOutcome((false[0], false[1]), "6.8", q.name, path, 2, claims, None)
    order = np.argsort(index, kind="stable")
    winner = int(order[best_index(np.asarray(elements)[order], q.kind)])
    wrong = (winner != 0, winner != 1)
    return ElementOutcome(wrong, "6.8", q.name, path, 2, claims, claims[winner])
