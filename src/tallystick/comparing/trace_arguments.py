"""What it means that an operator has other arguments in the other loop."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tallystick.comparing.causes import is_dropout
from tallystick.comparing.found import Cause
from tallystick.comparing.operator_words import argument, has_said
from tallystick.comparing.steps import ExecutedOperator
from tallystick.comparing.trace_modules import mode_said
from tallystick.comparing.trace_updates import IN_PLACE, of_gradient, rates
from tallystick.comparing.traced_pair import TracedPair

_INDEXING = re.compile(r"aten\.(select|slice|index|index_select|gather|narrow|take|split|unbind)\b")
_ARITHMETIC = re.compile(r"aten\.(mul|add|sub|addcmul|addcdiv|lerp|div|_foreach_\w+)_?\.")
_FACTOR = re.compile(r"aten\.(_foreach_)?(mul|div|clamp|clamp_min|clamp_max|clip)_?\.")
_WEIGHTS, _GRADIENT = "weights", "gradient"
# Operators that drop: their first letters, the argument that says how much, its place, and
# whether it is the share that is kept.
_DROPOUTS = (
    ("aten.bernoulli_.float", "p", 1, True),
    ("aten._fused_dropout", "p", 1, True),
    ("aten.native_dropout", "p", 1, False),
    ("aten.dropout", "p", 1, False),
    ("aten.feature_dropout", "p", 1, False),
    ("aten.scaled_dot_product_attention", "dropout_p", 4, False),
    ("aten._scaled_dot_product", "dropout_p", 99, False),
)


def of_arguments(
    pair: TracedPair,
    step: Sequence[ExecutedOperator],
    ours: ExecutedOperator,
    theirs: ExecutedOperator,
) -> Cause:
    """Of an operator with other arguments in the other loop; `step` are the operators around
    A's."""
    said = arguments_said(pair, ours, theirs)
    if is_dropout(ours.operator) or "Dropout" in ours.place:
        return Cause("dropout", said)
    mode = mode_said(pair, ours.place, (ours.number, theirs.number))
    if mode:
        return Cause("program", f"{mode}.")
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
        return Cause(
            "program", f"The gradients are scaled or clipped by a different number: {said}"
        )
    number = "Another number: " if _ARITHMETIC.match(ours.operator) else ""
    return Cause("program", f"{number}{said}")


def _scaled(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> str:
    """What an operator outside of a module and of an optimizer multiplies on its way from the
    gradients: the change of the weights, the gradients themselves, or something else."""
    if not of_gradient(step, entry):
        return ""
    reached, found = {entry.number}, set[str]()
    for later in step[entry.number :]:
        if later is not entry and not any(i.source in reached for i in later.inputs):
            continue
        if later.place.startswith("optimizer"):
            found.add(_GRADIENT)
        elif not later.place and IN_PLACE.match(later.operator):
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
    return _GRADIENT if made.place.startswith("backward") or of_gradient(step, made) else ""


def arguments_said(pair: TracedPair, ours: ExecutedOperator, theirs: ExecutedOperator) -> str:
    """Says what differs in the arguments of one operator: by their names where they are known."""
    rates_ = _rates(pair, ours, theirs)
    if rates_ is not None and rates_[0] != rates_[1]:
        what = f"Dropout in {ours.place}" if ours.place else f"The dropout of {ours.operator}"
        return f"{what} has the rate {rates_[0]} in A and {rates_[1]} in B."
    place = f" in {ours.place}" if ours.place else ""
    texts = ours.attributes, theirs.attributes
    named = has_said(texts, pair.schema(ours.operator))
    if named:
        return f"{ours.operator}{place} has {named}."
    both = f"({texts[0][:200]}) in A and ({texts[1][:200]}) in B"
    return f"{ours.operator}{place} has the arguments {both}."


def _rates(
    pair: TracedPair, ours: ExecutedOperator, theirs: ExecutedOperator
) -> tuple[str, str] | None:
    """The rates of a dropout in both loops. A mask is drawn by the share that is kept."""
    found = []
    for entry in (ours, theirs):
        for begin, name, place, kept in _DROPOUTS:
            if entry.operator.startswith(begin):
                text = argument(entry.operator, entry.attributes, pair.schemas, name, place)
                try:
                    rate = 1 - float(text) if kept else float(text)
                except ValueError:
                    return None
                found.append(f"{round(rate, 9):.9g}")
                break
    return (found[0], found[1]) if len(found) == 2 else None
