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
    if _is_update(step, ours):
        return Cause("rate", f"The update of the weights has another number: {said}")
    return Cause("program", said)


def _is_update(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> bool:
    """True for a product or a sum with a parameter or a gradient."""
    if _ARITHMETIC.match(entry.operator) is None:
        return False
    made_by = [step[i.source].place for i in entry.inputs if i.source is not None]
    gradient = any(place.startswith("backward") for place in made_by)
    return gradient or any(i.kind == "parameter" for i in entry.inputs)


def arguments_said(ours: ExecutedOperator, theirs: ExecutedOperator) -> str:
    place = f" in {ours.place}" if ours.place else ""
    pair = f"({ours.attributes[:200]}) in A and ({theirs.attributes[:200]}) in B"
    return f"{ours.operator}{place} has the arguments {pair}."
