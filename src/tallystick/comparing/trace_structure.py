"""Operators that only one of two traces has, or calls in another order or another number of times,
and what that means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tallystick.comparing.causes import is_dropout, relative
from tallystick.comparing.found import Cause
from tallystick.comparing.programs import calls_of, passes_through
from tallystick.comparing.steps import ExecutedOperator, StepApart
from tallystick.comparing.trace_arguments import of_arguments
from tallystick.comparing.trace_loading import moves_records
from tallystick.comparing.trace_modules import mode_said, module_of, only_modules, replaced
from tallystick.comparing.trace_updates import of_gradients, other_updates, rates
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


# Relative to the greatest value: below it a difference is of rounding. Two types round more.
_ROUNDING = 2.0**-14
_ROUNDING_OF_SHORT = {"f16": 2.0**-7, "bf16": 2.0**-4}
_SHORT_TYPES = ("bf16", "f16")
_DRAWS = re.compile(r"aten\.(rand|normal|uniform|bernoulli|multinomial|exponential|dropout)")


def of_absent(pair: TracedPair, found: StepApart) -> Cause | None:
    """The cause in an operator that only one of the loops has, in this step up to the difference,
    or in an earlier one."""
    other = replaced(pair, found)
    structure = other_modules(pair) or gap_of_dropout(pair, found)
    structure = structure or other_updates(pair) or of_gradients(pair, found)
    if structure is not None:
        return structure
    places = [entry.place for entry, _, _ in _alone(pair, found)]
    if pair.other_optimizers():
        return next(rates(pair))
    if places and all(place.startswith("optimizer") for place in places):
        rate = next(rates(pair), None)
        return rate or Cause("setting", f"The update has other operators in {places[0]}.")
    for entry, name, _ in _alone(pair, found):
        if _lowers(entry):
            said = f"{name} computes in a shorter type: {entry.operator}({entry.attributes[:80]})."
            return Cause("precision", said)
    if other:
        return Cause("program", f"{other}.")
    for entry, name, step in sorted(_alone(pair, found), key=lambda gap: _is_moved(pair, *gap)):
        return Cause("program", only_said(pair, entry, name, step, "calls "))
    changed = found.changed or (pair.absent[1].changed if pair.absent else ())
    if changed and changed[0][0] is not None and changed[0][1] is not None:
        steps = pair.absent[2] if pair.absent and not found.changed else None
        entries = steps or (pair.steps[0].operators, pair.steps[1].operators)
        return of_arguments(pair, entries[0], entries[0][changed[0][0]], entries[1][changed[0][1]])
    return None


def beyond(pair: TracedPair, found: StepApart, cause: Cause) -> Cause:
    """The cause `cause`, but where other operators have computed the same up to rounding: the
    first tensor of one type behind them says so."""
    if cause.kind != "program":
        return cause
    alone = {entry.place for entry, _, _ in _alone(pair, found)}
    behind = found.pairs[found.pairs.index(found.pair) + 1 :]
    for a, b in behind:
        if a is None or b is None:
            continue
        ours, theirs = pair.steps[0].operators[a], pair.steps[1].operators[b]
        if ours.place in alone or theirs.place in alone:
            continue
        for mine, other in zip(ours.inputs, theirs.inputs, strict=False):
            if mine.digest == other.digest or mine.type != other.type:
                continue
            values = pair.values((mine, other))
            if values[0] is None or values[1] is None or values[0].size < 2:
                return cause
            amount = relative(values[0], values[1])
            if amount is None or amount >= rounding_of(mine.type):
                return cause
            said = f"Other operators give the same up to rounding. {cause.sentence}"
            return Cause("rounding", said)
    return cause


def _is_moved(pair: TracedPair, entry: ExecutedOperator, name: str, step: int) -> bool:
    """True for an operator that gathers records: what computes is named before it."""
    own = pair.steps[PARTIES.index(name)]
    return step == own.number and entry.number in moves_records(own.operators)


def _lowers(entry: ExecutedOperator) -> bool:
    return entry.operator.startswith("aten._to_copy") and any(
        made.type.startswith(_SHORT_TYPES) for made in entry.outputs
    )


def other_modules(pair: TracedPair) -> Cause | None:
    """A module that computes in one of the loops only, or a step that calls models another number
    of times. Modules that drop have a cause of their own."""
    calls, number = [len(step.calls) for step in pair.steps], pair.steps[0].number
    if calls[0] != calls[1]:
        said = f"Calls of a model in step {number}: {calls[0]:,} in A and {calls[1]:,} in B."
        return Cause("program", said)
    if _exchanged(pair):
        return None
    ours, theirs = (
        {
            entry.place: entry
            for entry in _firsts(step.operators)
            if "Dropout" not in entry.place and not _PHASE.match(entry.place)
        }
        for step in pair.steps
    )
    alone = {
        "A": [place for place in ours if place not in theirs],
        "B": [place for place in theirs if place not in ours],
    }
    said = only_modules(pair, alone)
    if said:
        return Cause("program", said)
    for name, own in (("A", ours), ("B", theirs)):
        for place in alone[name]:
            mode = mode_said(pair, place)
            said = f"{mode}." if mode else only_said(pair, own[place], name, number, "calls ")
            return Cause("program", said)
    return None


def _firsts(entries: Sequence[ExecutedOperator]) -> list[ExecutedOperator]:
    """The first operator of each place, in their order."""
    found: dict[str, ExecutedOperator] = {}
    for entry in entries:
        if entry.place:
            found.setdefault(entry.place, entry)
    return list(found.values())


def _exchanged(pair: TracedPair) -> bool:
    """True where a module stands in the place of another one: each loop has one of its own
    there."""
    ours, theirs = (
        {module_of(e.place) for e in step.operators if e.place and not _PHASE.match(e.place)}
        for step in pair.steps
    )
    paths = [{path for path, _ in one - other} for one, other in ((ours, theirs), (theirs, ours))]
    return bool(paths[0] & paths[1])


def gap_of_dropout(pair: TracedPair, found: StepApart) -> Cause | None:
    """An operator that drops, without a partner: anywhere in the step, since a kernel may be
    another one without dropout."""
    entries, number = (pair.steps[0].operators, pair.steps[1].operators), pair.steps[0].number
    gaps = [*_alone(pair, found), *((*gap_entry(gap, entries), number) for gap in found.gaps)]
    drawn = [gap for gap in gaps if is_dropout(gap[0].operator)]
    for entry, name, step in drawn or [gap for gap in gaps if "Dropout" in gap[0].place]:
        return Cause("dropout", only_said(pair, entry, name, step, "applies dropout: "))
    return None


def gap_of_draw(pair: TracedPair, found: StepApart) -> Cause | None:
    """An operator of one loop alone that has moved the generator of both."""
    for entry, name, step in _alone(pair, found):
        if _DRAWS.match(entry.operator) and "generator=generator" not in entry.attributes:
            said = only_said(pair, entry, name, step, "calls ")
            return Cause("program", f"{said} It moves the generator that both draw from.")
    return None


def _alone(pair: TracedPair, found: StepApart) -> Iterator[tuple[ExecutedOperator, str, int]]:
    """Operators without a partner, whose loop it is, and the step: before the difference in this
    step, or in an earlier step."""
    entries, number = (pair.steps[0].operators, pair.steps[1].operators), pair.steps[0].number
    gaps, counted = [], set(found.gaps)
    for gap in found.pairs:
        if gap == found.pair:
            break
        if None in gap and gap in counted:
            gaps.append((*gap_entry(gap, entries), number))
    if pair.absent is not None:
        earlier, before, known = pair.absent
        gaps += [(*gap_entry(gap, known), earlier) for gap in before.gaps]
    yield from (gap for gap in gaps if not passes_through(gap[0]))


def gap_entry(
    gap: tuple[int | None, int | None],
    entries: Sequence[Sequence[ExecutedOperator]],
) -> tuple[ExecutedOperator, str]:
    a, b = gap
    return (entries[0][a], "A") if a is not None else (entries[1][b or 0], "B")


def rounding_of(form: str) -> float:
    return _ROUNDING_OF_SHORT.get(form.partition("[")[0], _ROUNDING)
