"""Where two traces call an operator: one that has no partner may be called in both of them, in
another order or another number of times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tallystick.comparing.programs import calls_of
from tallystick.comparing.steps import ExecutedOperator
from tallystick.comparing.traced_pair import TracedPair
from tallystick.job.numbers import count
from tallystick.protocol.verdict import PARTIES

Entries = Sequence[ExecutedOperator]

_PHASE = re.compile(r"(backward|optimizer), ")


def only_said(pair: TracedPair, entry: ExecutedOperator, name: str, step: int, verb: str) -> str:
    """Says that one loop alone has an operator: of the whole loops only if it is true of them.
    Where the other loop calls it in this step too, says where, or how often."""
    side = PARTIES.index(name)
    both = _operators(pair, step)
    if calls_of(entry, both[1 - side]):
        return _said_of_both(both, entry, step)
    elsewhere = (entry.operator, entry.place) in pair.readers[1 - side].called()
    begin = f"In step {step} only {name}" if elsewhere else f"Only {name}"
    return f"{begin} {verb}{entry.operator}{_in(entry)}."


def _operators(pair: TracedPair, step: int) -> tuple[Entries, Entries]:
    """The operators of the step at hand, or of the earlier one that had other operators."""
    if pair.absent is not None and pair.absent[0] == step:
        return pair.absent[2]
    return pair.steps[0].operators, pair.steps[1].operators


def _in(entry: ExecutedOperator) -> str:
    return f" in {entry.place}" if entry.place else ""


def _said_of_both(both: tuple[Entries, Entries], entry: ExecutedOperator, step: int) -> str:
    times = [calls_of(entry, own) for own in both]
    if times[0] != times[1]:
        counts = f"{count(times[0], 'time')} in A and {count(times[1], 'time')} in B"
        return f"In step {step} {entry.operator} is called {counts}{_in(entry)}."
    if _is_of_module(entry):
        beside = _beside(both, entry.place, [_numbers(own, entry.place) for own in both])
        if beside:
            said = f"In step {step} {entry.place} is called at another place"
            return f"{said}: {beside[0]} {beside[1]} in A and {beside[2]} it in B."
        own = [
            [e.number for e in one if (e.operator, e.place) == (entry.operator, entry.place)]
            for one in both
        ]
        beside = _beside(both, entry.place, own)
        if beside:
            said = f"In step {step} A calls {entry.operator}{_in(entry)} {beside[0]} {beside[1]}"
            return f"{said}; B calls it {beside[2]} {beside[1]}."
    return f"In step {step} A and B call {entry.operator}{_in(entry)} at different places."


def _is_of_module(entry: ExecutedOperator) -> bool:
    return bool(entry.place) and not _PHASE.match(entry.place)


def _numbers(entries: Entries, place: str) -> list[int]:
    return [entry.number for entry in entries if entry.place == place]


def _beside(
    both: tuple[Entries, Entries], place: str, numbers: Sequence[Sequence[int]]
) -> tuple[str, str, str] | None:
    """The module nearest in A that lies wholly on another side of some operators in B than in A,
    between "before" and "after" in A, and those in B; `place` is that of the operators."""
    ours, theirs = (_spans(own, place) for own in both)
    found = []
    for other, span in ours.items():
        sides = _side(numbers[0], span), _side(numbers[1], theirs.get(other, (0, 0)))
        if other in theirs and sides[0] and sides[1] and sides[0] != sides[1]:
            distance = min(abs(end - n) for end in span for n in numbers[0])
            found.append((distance, (sides[0], other, sides[1])))
    return min(found)[1] if found else None


def _spans(entries: Entries, without: str) -> dict[str, tuple[int, int]]:
    """The first and the last operator of each module but one."""
    found: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if _is_of_module(entry) and entry.place != without:
            first, _ = found.get(entry.place, (entry.number, 0))
            found[entry.place] = first, entry.number
    return found


def _side(numbers: Iterable[int], span: tuple[int, int]) -> str:
    """On which side of a module all of some operators are; empty where they are on none."""
    own = list(numbers)
    if max(own) < span[0]:
        return "before"
    return "after" if min(own) > span[1] else ""
