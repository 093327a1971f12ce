"""What it means that an operator has other arguments in the other loop."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tallystick.comparing.causes import is_dropout
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import ExecutedOperator
from tallystick.comparing.traced_pair import TracedPair, rates

_INDEXING = re.compile(r"aten\.(select|slice|index|index_select|gather|narrow|take|split|unbind)\b")
_ARITHMETIC = re.compile(r"aten\.(mul|add|sub|addcmul|addcdiv|lerp|div|_foreach_\w+)_?\.")
_FACTOR = re.compile(r"aten\.(_foreach_)?(mul|div|clamp|clamp_min|clamp_max|clip)_?\.")
_IN_PLACE = re.compile(r"aten\.\w*[a-z0-9]_\.")
_WEIGHTS, _GRADIENT = "weights", "gradient"


def of_arguments(
    pair: TracedPair,
    step: Sequence[ExecutedOperator],
    ours: ExecutedOperator,
    theirs: ExecutedOperator,
) -> Cause:
    """Of an operator with other arguments in the other loop; `step` are the operators around
    A's."""
    said = arguments_said(ours, theirs)
    if is_dropout(ours.operator) or "Dropout" in ours.place:
        return Cause("dropout", said)
    if ours.place.startswith("optimizer"):
        return next(rates(pair), None) or Cause("setting", said)
    if ours.place:
        return Cause("program", said)
    if _INDEXING.match(ours.operator) and any(i.kind == "data" for i in ours.inputs):
        return Cause("data order", f"The loop takes other records: {said}")
    scaled = _scaled(step, ours)
    if scaled == _WEIGHTS:
        return Cause("rate", f"The update of the weights has another number: {said}")
    if scaled == _GRADIENT:
        return Cause("program", f"The gradients are scaled or clipped by another number: {said}")
    number = "Another number: " if _ARITHMETIC.match(ours.operator) else ""
    return Cause("program", f"{number}{said}")


def _scaled(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> str:
    """What an operator outside of a module and of an optimizer multiplies on its way from the
    gradients: the change of the weights, the gradients themselves, or something else."""
    if not _is_of_gradient(step, entry):
        return ""
    reached, found = {entry.number}, set[str]()
    for later in step[entry.number :]:
        if later is not entry and not any(i.source in reached for i in later.inputs):
            continue
        if later.place.startswith("optimizer"):
            found.add(_GRADIENT)
        elif not later.place and _IN_PLACE.match(later.operator):
            found.add(_written_by(step, later))
            if later is entry:
                break  # whoever reads the tensor behind it is not asked
        elif not later.place:
            reached.add(later.number)
    if _WEIGHTS in found:
        return _WEIGHTS if _ARITHMETIC.match(entry.operator) and found == {_WEIGHTS} else ""
    return _GRADIENT if found == {_GRADIENT} and _FACTOR.match(entry.operator) else ""


def _written_by(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> str:
    """What an operator changes in place."""
    target = entry.inputs[0]
    if target.name:
        return _WEIGHTS
    made = step[target.source] if target.source is not None else None
    if made is None or not _FACTOR.match(entry.operator):
        return ""
    return _GRADIENT if made.place.startswith("backward") or _is_of_gradient(step, made) else ""


def _is_of_gradient(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> bool:
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


def arguments_said(ours: ExecutedOperator, theirs: ExecutedOperator) -> str:
    place = f" in {ours.place}" if ours.place else ""
    pair = f"({ours.attributes[:200]}) in A and ({theirs.attributes[:200]}) in B"
    return f"{ours.operator}{place} has the arguments {pair}."
