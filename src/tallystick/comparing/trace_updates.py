"""Gradients and updates of two traces: the optimizers' settings and states, and what stands
between the backward pass and the update."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from tallystick.comparing.found import Cause
from tallystick.comparing.operator_words import parts_of, short
from tallystick.comparing.steps import (
    CARRIED,
    ExecutedOperator,
    OperandRecord,
    StepApart,
    only_one,
)
from tallystick.comparing.traced_pair import TracedPair
from tallystick.comparing.tracefile import TracedStep
from tallystick.job.numbers import count as plural
from tallystick.job.numbers import listed
from tallystick.protocol.verdict import PARTIES

IN_PLACE = re.compile(r"aten\.\w*[a-z0-9]_\.")
_ACCUMULATES = "AccumulateGrad"
_OPTIMIZER = "optimizer, "
_CLAMP = re.compile(r"aten\.(_foreach_)?(clamp|clip)(_min|_max)?_?\.")
_NORM = re.compile(r"aten\.(_foreach_norm|linalg_vector_norm|norm|frobenius_norm)\b")


# -- settings --------------------------------------------------------------------------------------
# What a schedule of rates writes into an optimizer's settings beside the rate itself.
_OF_SCHEDULES = ("initial_lr", "max_lr", "min_lr")


def rates(pair: TracedPair) -> Iterator[Cause]:
    """Settings of the optimizers: other optimizers or parameter groups first, then the learning
    rate."""
    other = _other_optimizers(pair)
    if other:
        yield Cause("setting", other)
    apart = pair.settings()
    rated = {name for name, key, _, _ in apart if key == "lr"}
    for name, key, ours, theirs in sorted(apart, key=lambda row: row[1] != "lr"):
        if key in _OF_SCHEDULES and name in rated:
            continue
        kind = "rate" if key == "lr" or key in _OF_SCHEDULES else "setting"
        said = f"{key} of {optimizer_said(pair, name)} is {ours} in A and {theirs} in B"
        yield Cause(kind, f"{said}{_since(pair, name, key, (ours, theirs))}.")


def _other_optimizers(pair: TracedPair) -> str:
    """Says which optimizers the loops have, where they differ, or how many parameter groups."""
    if not pair.other_optimizers():
        return ""
    ours, theirs = (_groups(step) for step in pair.steps)
    names = [[kind for kind, _ in own] for own in (ours, theirs)]
    if names[0] != names[1]:
        return f"The optimizers are {', '.join(names[0])} in A and {', '.join(names[1])} in B."
    for key, one in ours.items():
        other = theirs.get(key, one)
        if len(one) != len(other):
            kind = key[0]
            said = f"{kind} has {plural(len(one), 'parameter group')} in A and {len(other):,} in B"
            return "; ".join([said, *_values_of_groups(one, other)]) + "."
    names = [[name for name, _ in step.settings] for step in pair.steps]
    return f"The optimizers are {', '.join(names[0])} in A and {', '.join(names[1])} in B."


def _groups(step: TracedStep) -> dict[tuple[str, int], list[dict[str, str]]]:
    """The settings of the parameter groups of each optimizer, by its class and its number."""
    found: dict[tuple[str, int], list[dict[str, str]]] = {}
    for (name, settings), progress in zip_longest(step.settings, step.progress):
        number = 0 if progress is None else progress[0]
        found.setdefault((name.rpartition(" ")[0], number), []).append(settings)
    return found


def _values_of_groups(
    ours: Sequence[dict[str, str]], theirs: Sequence[dict[str, str]]
) -> list[str]:
    """The settings of which the groups of one loop have other values than those of the other."""
    found = []
    for key in ours[0]:
        values = [
            list(dict.fromkeys(group[key] for group in own if key in group))
            for own in (ours, theirs)
        ]
        if key not in _OF_SCHEDULES and set(values[0]) != set(values[1]) and all(values):
            both = [listed(own) for own in values]
            found.append(f"{key} is {both[0]} in A and {both[1]} in B")
    return found


def _since(pair: TracedPair, name: str, key: str, now: tuple[str, str]) -> str:
    """Says that a setting was equal in an earlier step, and which loop has kept its value."""
    before = pair.earlier(name)
    if before is None:
        return ""
    step, own = before
    values = [settings.get(key, "nothing") for settings in own]
    if values[0] != values[1]:
        return ""
    kept = [n for n, value in zip(PARTIES, now, strict=True) if value == values[0]]
    said = f", from step {pair.steps[0].number} on"
    word = "rate" if key == "lr" else "value"
    return f"{said}; {kept[0]} still has the {word} of step {step}" if len(kept) == 1 else said


def optimizer_said(pair: TracedPair, name: str) -> str:
    """An optimizer, its group where it has several, and which one it is of several of a class."""
    kind, _, group = name.rpartition(" ")
    said = kind
    groups = {known for step in pair.steps for known, _ in step.settings}
    if len(groups) > 1:
        said = f"parameter group {group} of {kind}"
    progress = pair.progress(name)[0]
    count = pair.readers[0].optimizers(kind)
    if progress is None or count < 2:
        return said
    names = updated(pair.steps[0])
    more = f" and {len(names) - 2:,} more" if len(names) > 2 else ""
    which = f"number {progress[0] + 1} of {count} by their first steps"
    return f"{said} ({which}; it updates {', '.join(names[:2])}{more})"


def updated(step: TracedStep) -> list[str]:
    """The parameters that a step's optimizer reads, with their types."""
    found: dict[str, None] = {}
    states = _states(step.operators)
    for entry in step.operators:
        if entry.place.startswith(_OPTIMIZER):
            for operand in entry.inputs:
                if operand.name and operand.name not in states:
                    found[f"{operand.name} {operand.type}"] = None
    return list(found)


def _states(entries: Sequence[ExecutedOperator]) -> set[str]:
    return {i.name for entry in entries for i in entry.inputs if i.kind == "state"}


# -- states ----------------------------------------------------------------------------------------
def of_fresh_state(pair: TracedPair, found: StepApart) -> Cause | None:
    """An optimizer that begins with no state in a step where that of the other loop goes on."""
    step = pair.steps[0].number
    for name, _ in pair.steps[0].settings:
        ours, theirs = pair.progress(name)
        if ours is None or theirs is None or (ours[1] > 0) == (theirs[1] > 0):
            continue
        fresh = 0 if ours[1] == 0 else 1
        other = (ours, theirs)[1 - fresh][2]
        return _fresh(pair, name.rpartition(" ")[0], fresh, step, None if other < 0 else other)
    return _fresh_by_operators(pair, found)


def _fresh(pair: TracedPair, kind: str, fresh: int, step: int, counted: int | None) -> Cause:
    begin = f"{PARTIES[fresh]}'s {kind} starts anew in step {step}"
    other = PARTIES[1 - fresh]
    if counted is None:
        return Cause("program", f"{begin}: it has no state there, and {other}'s goes on.")
    return Cause("program", f"{begin}: it has counted 0 steps, {other}'s {counted:,}.")


def _fresh_by_operators(pair: TracedPair, found: StepApart) -> Cause | None:
    """In older traces: one loop alone makes tensors for the state of an optimizer that has made
    a step before."""
    entries = pair.steps[0].operators, pair.steps[1].operators
    anew = [any(_is_made_anew(entry) for entry in own) for own in entries]
    names = [name for name, _ in pair.steps[0].settings]
    if anew[0] == anew[1] or not names or pair.earlier(names[0]) is None:
        return None
    fresh, counted = (0 if anew[0] else 1), None
    for pair_ in found.pairs:
        numbers = pair_[fresh], pair_[1 - fresh]
        if counted is not None or numbers[0] is None or numbers[1] is None:
            continue
        own, other = entries[fresh][numbers[0]], entries[1 - fresh][numbers[1]]
        if other.place.startswith(_OPTIMIZER) and own.inputs and other.inputs:
            carried = other.inputs[0]
            count = carried.kind == CARRIED and carried.type in ("f32[]", "f64[]", "i64[]")
            value = pair.readers[1 - fresh].value(carried) if count else None
            counted = None if value is None else int(value.item())
    kind = names[0].rpartition(" ")[0]
    return _fresh(pair, kind, fresh, pair.steps[0].number, counted)


def _is_made_anew(entry: ExecutedOperator) -> bool:
    anew = ("aten.zeros_like", "aten.clone", "aten.zeros.", "aten.full_like")
    return entry.place.startswith(_OPTIMIZER) and entry.operator.startswith(anew)


def part_of_update(
    step: Sequence[ExecutedOperator], entry: ExecutedOperator, operand: OperandRecord
) -> str:
    """What a tensor that an update reads is: by its name, else by the parameter that the update
    writes with it, whose gradient or, in older traces, whose state it is."""
    if operand.name or not entry.place.startswith(_OPTIMIZER) or "_foreach_" in entry.operator:
        return operand.name
    target = _written_with(step, entry)
    if target is None:
        return ""
    if _is_gradient(step, operand, target):
        return f"the gradient of {target.name}"
    # An update that reads its parameter and a tensor without a name reads either of the two.
    return f"the optimizer's state of {target.name}" if target not in entry.inputs else ""


def _written_with(
    step: Sequence[ExecutedOperator], entry: ExecutedOperator
) -> OperandRecord | None:
    """The parameter that an operator of an update writes, or the first that is written with what
    it makes."""
    states, reached = _states(step), {entry.number}
    for later in step[entry.number :]:
        if later is not entry and not any(i.source in reached for i in later.inputs):
            continue
        if not later.place.startswith(_OPTIMIZER) or "_foreach_" in later.operator:
            break
        target = later.inputs[0] if later.inputs else None
        if (
            target is not None
            and target.name
            and target.name not in states
            and target.source not in reached
            and IN_PLACE.match(later.operator)
        ):
            return target
        reached.add(later.number)
    return None


def _is_gradient(
    step: Sequence[ExecutedOperator], operand: OperandRecord, target: OperandRecord
) -> bool:
    """True for what a backward pass has made, and for what no operator has, where the states of
    the optimizers are known by their names."""
    if operand.source is None:
        return bool(_states(step)) and operand.type == target.type
    maker = step[operand.source]
    return maker.place.startswith("backward") or (not maker.place and of_gradient(step, maker))


# -- which parameters ------------------------------------------------------------------------------
def other_updates(pair: TracedPair) -> Cause | None:
    """Parameters that an optimizer changes in one of the loops only."""
    if pair.other_optimizers():
        return None
    steps = [(pair.steps[0].number, (pair.steps[0].operators, pair.steps[1].operators))]
    if pair.absent is not None:
        steps.insert(0, (pair.absent[0], pair.absent[2]))
    for number, both in steps:
        ours, theirs = (
            {
                i.name: None
                for e in entries
                if e.place.startswith(_OPTIMIZER)
                for i in e.inputs
                if i.name not in _states(entries)
            }
            for entries in both
        )
        if not ours or not theirs:
            continue
        for name, own, other in ((PARTIES[0], ours, theirs), (PARTIES[1], theirs, ours)):
            alone = [parameter for parameter in own if parameter and parameter not in other]
            if alone:
                more = f" and {len(alone) - 4:,} more" if len(alone) > 4 else ""
                said = f"In step {number} only {name} updates {', '.join(alone[:4])}{more}"
                rest = "frozen, or no part of the optimizer, or without a gradient"
                return Cause("program", f"{said}: in the other they are {rest}.")
    return None


# -- gradients -------------------------------------------------------------------------------------
def of_gradients(pair: TracedPair, found: StepApart) -> Cause | None:
    """What one loop alone does to its gradients: it adds to those of an earlier step, or it clips
    or scales them before the update."""
    return _carried_gradients(pair) or _changed_gradients(pair, found)


def _carried_gradients(pair: TracedPair) -> Cause | None:
    carried = [
        any(
            operand.source is None and operand.kind in (CARRIED, "data")
            for entry in step.operators
            if _ACCUMULATES in entry.place and entry.operator.startswith("aten.add")
            for operand in entry.inputs
        )
        for step in pair.steps
    ]
    if carried[0] == carried[1]:
        return None
    name, other = PARTIES if carried[0] else PARTIES[::-1]
    step = pair.steps[0].number
    said = (
        f"In step {step} {name} adds to the gradients of the step before; {other} starts from none."
    )
    return Cause("program", said)


def _changed_gradients(pair: TracedPair, found: StepApart) -> Cause | None:
    """Operators of one loop alone between the backward pass and the update."""
    entries = pair.steps[0].operators, pair.steps[1].operators
    alone: dict[str, list[ExecutedOperator]] = {}
    for gap in found.gaps:
        entry, _, name = only_one(gap, *entries)
        own = entries[PARTIES.index(name)]
        if not entry.place and of_gradient(own, entry):
            alone.setdefault(name, []).append(entry)
    if len(alone) != 1:
        return None
    name, own = next(iter(alone.items()))
    if not _reaches_update(entries[PARTIES.index(name)], own):
        return None
    return Cause("program", f"Only {name} {_what(own)} between the backward pass and the update.")


def of_gradient(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> bool:
    """True if an operator reads what a backward pass of its step has made, also by way of others
    outside of modules."""
    known, left = {entry.number}, [entry]
    while left:
        for operand in left.pop().inputs:
            if operand.source is None or operand.source in known:
                continue
            known.add(operand.source)
            maker = step[operand.source]
            if maker.place.startswith("backward"):
                return True
            if not maker.place:
                left.append(maker)
    return False


def _reaches_update(step: Sequence[ExecutedOperator], own: Sequence[ExecutedOperator]) -> bool:
    """True if an update reads what some operators have made. An in-place operator has made what
    is read behind it."""
    numbers = {entry.number for entry in own}
    return any(
        operand.source in numbers
        for later in step
        if later.place.startswith(_OPTIMIZER) or (not later.place and _writes_weight(later))
        for operand in later.inputs
    )


def _writes_weight(entry: ExecutedOperator) -> bool:
    return bool(IN_PLACE.match(entry.operator) and entry.inputs and entry.inputs[0].name)


def _what(own: Sequence[ExecutedOperator]) -> str:
    """What operators between the backward pass and the update do to the gradients."""
    if any(_NORM.match(entry.operator) for entry in own):
        bound = _bound(own)
        return f"clips the gradients by their norm{bound and f', to at most {bound},'}"
    clamps = [entry for entry in own if _CLAMP.match(entry.operator)]
    if clamps:
        numbers = dict.fromkeys(n for entry in clamps for n in _numbers(entry))
        return f"clamps the gradients ({', '.join(numbers)})"
    names = ", ".join(dict.fromkeys(f"{short(e.operator)}({e.attributes[:40]})" for e in own[:6]))
    return f"changes the gradients, by {names},"


def _bound(own: Sequence[ExecutedOperator]) -> str:
    """The greatest norm that torch's clipping leaves: the number by which it multiplies the
    reciprocal of the norm."""
    made = {entry.number: entry for entry in own}
    for entry in own:
        sources = [made.get(-1 if i.source is None else i.source) for i in entry.inputs]
        if entry.operator.startswith("aten.mul.") and any(
            s is not None and s.operator.startswith("aten.reciprocal") for s in sources
        ):
            return next(iter(_numbers(entry)), "")
    return ""


def _numbers(entry: ExecutedOperator) -> list[str]:
    """The numbers among an operator's arguments."""
    found = []
    for part in parts_of(entry.attributes):
        value = part.rpartition("=")[2]
        try:
            float(value)
        except ValueError:
            continue
        found.append(value)
    return found
