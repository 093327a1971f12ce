"""Whether a call asks if two places hold one tensor that a call before has left (PROGRAM 5.20).

A trace has a tensor of its own for each slot. Code may ask by `is` whether two places hold the same
object. After a call that has left one tensor in both, a loop has one there in the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick.errors import MovingStateError
from tallystick.program.capture.carried import Slot
from tallystick.program.capture.one_object import OneObject
from tallystick.program.capture.outside import Outside
from tallystick.program.capture.quiet import quiet
from tallystick.program.capture.same_program import difference
from tallystick.program.capture.trace import Request, Trace, trace


def _joined(slots: Sequence[Slot]) -> dict[str, Slot]:
    """The slots that the last call has left one tensor, by name: the first of them."""
    by_object: dict[int, list[Slot]] = {}
    for slot in slots:
        left = slot.members[0].left
        if len(slot.members) == 1 and left is not None:
            by_object.setdefault(id(left), []).append(slot)
    return {s.name: group[0] for group in by_object.values() if len(group) > 1 for s in group}


def refuse_asked(
    request: Request,
    collect: Callable[[Any], Any],
    outside: Outside,
    restore: Callable[[], None],
    first: Trace,
) -> None:
    """Raises MovingStateError where the call after one that leaves one tensor in the places of two
    slots is another program than `first`, once it has one object in both."""
    slots = request.outside.slots
    if not _joined(slots):
        return
    outside.put_back()
    restore()
    with quiet():
        trace(request, collect)
        joined = _joined(slots)
        objects = OneObject({"loss": request.run, "module": request.module})
        for one in request.outside.kept:
            one.objects = objects
        try:
            again = trace(request, collect)
        finally:
            for one in request.outside.kept:
                one.objects = None
    names = {f"buffer.{name}": f"buffer.{slot.name}" for name, slot in joined.items()}
    if difference(first, again, names) is None:
        return
    said = sorted({joined[name].members[0].said for name in joined})
    raise MovingStateError(
        f"{said[0]} and another place hold one tensor after a call, and a call that finds one "
        "object in both is another program.",
        "Decide by a flag of your own, not by whether two places hold the same tensor (`is`).",
    )
