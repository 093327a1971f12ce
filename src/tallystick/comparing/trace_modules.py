"""What the modules of two traces compute differently: modules that only one loop has, modules in
another mode, a function that other operators replace, and the smoothing of labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tallystick.comparing.found import Cause
from tallystick.comparing.operator_words import argument, parts_of, short
from tallystick.comparing.steps import INPUT, ExecutedOperator, StepApart, operand_at
from tallystick.comparing.traced_pair import TracedPair
from tallystick.comparing.tracefile import TracedStep
from tallystick.protocol.verdict import PARTIES

# Operators that show a tensor in another shape, and compute nothing.
_VIEWS = re.compile(
    r"aten\.(t|view|_unsafe_view|reshape|transpose|permute|detach|alias|expand|unsqueeze|squeeze|"
    r"slice|select|split|clone|empty|empty_like|as_strided|_reshape_alias|ones_like|zeros_like)\."
)
_MOST = 8
# The argument that says whether batch norm is in training mode, and its place.
_NORMS = re.compile(r"aten\.(native_|cudnn_|miopen_|_native_)?batch_norm\b")
_TRAINING = ("training", 5)


# -- modules ---------------------------------------------------------------------------------------
def module_of(place: str) -> tuple[str, str]:
    """The path and the class of a module from a place such as 0.weight (Linear)."""
    path, bracket, kind = place.rpartition(" (")
    return (path, kind.rstrip(")")) if bracket else ("", place)


def known_modules(step: TracedStep) -> set[tuple[str, str]]:
    """Path and class of every module of the models that a step calls; empty in older traces."""
    return {(path, kind) for call in step.modes for path, (kind, _) in call.items()}


def only_modules(pair: TracedPair, alone: Mapping[str, Sequence[str]]) -> str:
    """Names the modules that only one loop has, where one loop alone has them; `alone` are the
    places that compute in one loop only. Empty where the other loop has a module there too."""
    sides = [n for n, name in enumerate(PARTIES) if alone[name]]
    if len(sides) != 1:
        return ""
    side = sides[0]
    places = alone[PARTIES[side]]
    there = known_modules(pair.steps[1 - side])
    other = {path for path, _ in there} or {
        module_of(entry.place)[0] for entry in pair.steps[1 - side].operators if entry.place
    }
    if any(module_of(place)[0] in other or not module_of(place)[0] for place in places):
        return ""
    named = list(dict.fromkeys(places))
    more = f" and {len(named) - 4:,} more" if len(named) > 4 else ""
    names = _joined(named[:4]) if not more else ", ".join(named[:4])
    many = "s" if len(named) > 1 else ""
    return f"Only {PARTIES[side]} has the module{many} {names}{more}."


def _joined(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


# -- modes -----------------------------------------------------------------------------------------
def mode_said(pair: TracedPair, place: str, pairs: tuple[int, int] | None = None) -> str:
    """Says that the module of a place is in training mode in one loop and in evaluation mode in
    the other; `pairs` are an operator's numbers. Empty where it is not so, or not known."""
    path, kind = module_of(place)
    for ours, theirs in zip(*(step.modes for step in pair.steps), strict=False):
        one, other = ours.get(path), theirs.get(path)
        if one and other and one[0] == other[0] == kind and one[1] != other[1]:
            return _mode(place, one[1])
    if pairs is None or not place:
        return ""
    values = []
    for reader, step, number in zip(pair.readers, pair.steps, pairs, strict=True):
        entry = step.operators[number]
        if not _NORMS.match(entry.operator):
            return ""
        values.append(argument(entry.operator, entry.attributes, reader.schemas, *_TRAINING))
    return _mode(place, values[0] == "True") if set(values) == {"True", "False"} else ""


def _mode(place: str, training: bool) -> str:
    modes = ("training", "evaluation") if training else ("evaluation", "training")
    return f"{place} is in {modes[0]} mode in A and in {modes[1]} mode in B"


# -- a function that other operators replace -------------------------------------------------------
def replaced(pair: TracedPair, found: StepApart) -> str:
    """Names the operators from which the two loops have computed the first tensor that differs,
    back to where both have the same; empty where one of them has none of its own."""
    a, b = found.pair
    if a is None or b is None or found.side != INPUT:
        return ""
    partners = ({x for x, y in found.pairs if x is not None and y is not None},
                {y for x, y in found.pairs if x is not None and y is not None})  # fmt: skip
    own = [
        _behind(step.operators, number, found, met)
        for step, number, met in zip(pair.steps, (a, b), partners, strict=True)
    ]
    if not own[0] or not own[1]:
        return ""
    if len(own[1]) < len(own[0]):
        return _replaced(own, 1)
    return _replaced(own, 0)


def _behind(
    entries: Sequence[ExecutedOperator], number: int, found: StepApart, partners: set[int]
) -> list[ExecutedOperator]:
    """The operators without a partner from which an operand was computed, in their order."""
    operand = operand_at(entries[number], found.side, found.operand)
    left = [] if operand is None or operand.source is None else [operand.source]
    known = set[int]()
    while left:
        number = left.pop()
        if number not in known and number not in partners:
            known.add(number)
            left += [i.source for i in entries[number].inputs if i.source is not None]
    return [entries[n] for n in sorted(known) if not _VIEWS.match(entries[n].operator)]


def _replaced(own: Sequence[Sequence[ExecutedOperator]], fewer: int) -> str:
    names = [list(dict.fromkeys(short(entry.operator) for entry in one)) for one in own]
    places = [_place(one) for one in own]
    one, other = fewer, 1 - fewer
    said = f"{PARTIES[one]} calls {_listed(names[one])}{places[one] and f' in {places[one]}'}"
    elsewhere = f" in {places[other]}" if places[other] and places[other] != places[one] else ""
    verb = "calls" if len(names[other]) == 1 else "computes it by"
    return f"{said}; {PARTIES[other]} {verb} {_listed(names[other])}{elsewhere}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MOST], *(["…"] if len(names) > _MOST else [])])


def _place(entries: Iterable[ExecutedOperator]) -> str:
    places = {entry.place for entry in entries}
    return places.pop() if len(places) == 1 else ""


# -- the smoothing of labels -----------------------------------------------------------------------
def of_smoothing(pair: TracedPair, found: StepApart) -> Cause | None:
    """Cross entropies that smooth their labels by another share, where the first difference lies
    behind them."""
    shares = [_smoothings(step.operators) for step in pair.steps]
    for ours, theirs in zip(*shares, strict=False):
        behind = [
            number is not None and number >= loss
            for number, (loss, _, _) in zip(found.pair, (ours, theirs), strict=True)
        ]
        if ours[1] != theirs[1] and all(behind):
            where = f" in {ours[2]}" if ours[2] else ""
            said = f"The labels of the cross entropy{where} are smoothed by"
            return Cause("program", f"{said} {ours[1]:g} in A and {theirs[1]:g} in B.")
    return None


def _smoothings(entries: Sequence[ExecutedOperator]) -> list[tuple[int, float, str]]:
    """Each cross entropy of class labels: its number, its label smoothing, and its place. Torch
    multiplies the loss by 1 - s, and the mean over all classes by s / classes."""
    found = []
    for entry in entries:
        if not entry.operator.startswith(("aten.nll_loss_forward", "aten.nll_loss2d_forward")):
            continue
        if entry.place.startswith(("backward", "optimizer")) or not entry.inputs:
            continue
        classes = _classes(entry.inputs[0].type)
        kept = _factors(entries, entry)
        shares = {
            round(number * classes, 9)
            for other in entries[entry.number + 1 :]
            if other.place == entry.place
            for number in _factor(other)
        }
        smoothing = next((1 - k for k in kept if round(1 - k, 9) in shares), 0.0)
        found.append((entry.number, round(smoothing, 9), entry.place))
    return found


def _classes(form: str) -> int:
    sizes = form.partition("[")[2].rstrip("]").split(",")
    size = sizes[1] if len(sizes) > 1 else sizes[0]
    return int(size) if size.isdecimal() else 0


def _factors(entries: Sequence[ExecutedOperator], loss: ExecutedOperator) -> list[float]:
    """The numbers by which a loss is multiplied where it was made."""
    return [
        number
        for entry in entries[loss.number + 1 :]
        if entry.place == loss.place and any(i.source == loss.number for i in entry.inputs)
        for number in _factor(entry)
    ]


def _factor(entry: ExecutedOperator) -> list[float]:
    if not entry.operator.startswith("aten.mul."):
        return []
    try:
        return [float(part) for part in parts_of(entry.attributes) if part != "_"]
    except ValueError:
        return []
