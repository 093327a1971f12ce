"""Two traces of one request, which must be the same program; what moves meanwhile is followed.

A program is one step for all steps. What the model takes from Python while it runs (a counter, a
clock, a generator, the last batch) would stay as it was in the first trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any

from torch import Tensor, fx

from tallystick.errors import MovingStateError, TallystickError, UsageError
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.explore import Exploration, shown, told
from tallystick.program.capture.follow_calls import reads_outside
from tallystick.program.capture.guard import ParametersChangedError
from tallystick.program.capture.merged import call_of, difference
from tallystick.program.capture.outside import Outside
from tallystick.program.capture.python_state import (
    PythonState,
    changed,
    left_changed,
    seen_at,
)
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.settled_outside import refuse_asked, refuse_stale, settled_outside
from tallystick.program.capture.source import Blame
from tallystick.program.capture.trace import Trace, TraceRequest, trace

Collect = Callable[[Any], dict[str, Tensor]]


def settled_trace(
    request: TraceRequest, collect: Collect, known: Carried | None = None
) -> tuple[TraceRequest, Trace]:
    """`trace`, twice, and the request with the slots for what the code keeps outside (5.20).

    Raises UsageError where the two differ, or where state that the module or the step goes on
    changing reaches the program (`explore`). The second trace begins with what the first left. So a
    cache that is filled once may stay, where the program is the same with it. Then everything is
    put back. With `known`, the slots of the step that this is the evaluation of, no other tensor
    may be a slot. The trace's `changed` are the parameters that the forward pass changes in place.
    """
    while True:
        try:
            return _settled(request, collect, known)
        except ParametersChangedError as error:
            request = replace(request, changed=request.changed | error.names)


def _settled(
    request: TraceRequest, collect: Collect, known: Carried | None
) -> tuple[TraceRequest, Trace]:
    state = PythonState(request.module, request.run)
    earlier = Earlier()
    outside = Outside.of(request.module, request.run)
    before: dict[str, Any] | None = None
    try:
        before = state.look(state.begun)
        request, first = settled_outside(request, collect, outside, state.restore, known, earlier)
        between = state.look()
        outside.left = outside.containers.left()
        try:
            with quiet():
                second = trace(request, collect, first, earlier)
        except TallystickError as error:
            refuse_stale(outside, error)
            _refuse_moving(request, collect, state, between, state.look())
            _refuse_changes(request, collect, state, changed(before, between), error)
            raise
        reached = state.reached()
        after = state.look(reached)
        pair = difference(first, second)
        if pair is not None:
            refuse_stale(outside)
            _refuse_moving(request, collect, state, between, after)
            _refuse_changes(request, collect, state, changed(before, between), None)
            _refuse_difference(first, *pair)
        if first.outputs != second.outputs:
            raise MovingStateError(
                "Two traces of the model gave different results.",
                "Return the same metrics, and use the same parameters, at every step.",
            )
        _refuse_growing(request, collect, outside, first)
        moving = set(changed(between, after))
        first.sets = tuple(changed(before, between))
        first.changes = bool(first.sets or moving or outside.unread)
        if "torch's generator" in moving:
            _refuse_moving(request, collect, state, between, after, ["torch's generator"])
        reading = (reads_outside(o) for o in reached.objects if type(o) is FunctionType)
        if moving or any(reading):
            explored = Exploration(request, collect, state, first, earlier, between, after)
            explored.follow(moving)
            first.notes.extend(explored.rewriting.missing.values())
            reached = state.reached()
        if left := reached.left:
            first.notes.append(f"{len(left)} places beyond the limits, such as {shown(left[0])}")
        refuse_asked(request, collect, outside, state.restore, first)
        return request, first
    except MovingStateError as error:
        state.restore()
        if before is not None and left_changed(before, state.look()):
            # A later trace would begin with what these have left.
            raise UsageError(error.message, error.next_action) from error
        raise
    finally:
        state.restore()
        state.release()
        outside.put_back()


def _refuse_growing(
    request: TraceRequest, collect: Collect, outside: Outside, first: Trace
) -> None:
    """Raises UsageError where a list gets longer at each call, and the step depends on it."""
    grown = outside.containers.grow()
    if not grown:
        return
    error: TallystickError | None = None
    try:
        later = trace(request, collect, first)
    except TallystickError as found:
        error = found
    if error is None and (later is first or difference(first, later) is None):
        return
    raise UsageError(
        f"{grown[0]} gets another tensor at every call, and the step depends on how many there "
        "are.",
        "Keep a tensor of fixed size (a ring, as torch.zeros(size, ...) with a position), made "
        "before the training.",
    ) from error


def _line(request: TraceRequest, collect: Collect, state: PythonState, name: str) -> str:
    """Where `name` changes, found by a trace line by line: ` (file:line)`, or nothing."""
    places = [place for place, _ in state.reached().places if place.name == name]

    def look() -> Any:
        if name in PythonState.GENERATORS:
            return PythonState.GENERATORS[name]()
        return [seen_at(place) for place in places]

    blame = Blame(look)
    try:
        with quiet(), blame.watching():
            trace(request, collect)
    except TallystickError:
        pass
    return f" ({blame.line})" if blame.line else ""


def _refuse_moving(
    request: TraceRequest,
    collect: Collect,
    state: PythonState,
    one: dict[str, Any],
    two: dict[str, Any],
    names: list[str] | None = None,
) -> None:
    """Name what the second forward changed again, where it is another program."""
    moving = names or changed(one, two)
    if not moving:
        return
    drawn = [name for name in moving if name in state.GENERATORS]
    name = (drawn or moving)[0]
    raise MovingStateError(
        f"{told(name, one, two)}{_line(request, collect, state, name)}. A program would have the "
        "first trace's value at every step.",
        "Draw the numbers beforehand into the batch, or use dropout, whose masks the contract "
        "defines."
        if drawn
        else "Keep it in a buffer (register_buffer) that tensor operators change: buffers are "
        "state. Or take it out of forward.",
    )


def _refuse_changes(
    request: TraceRequest,
    collect: Collect,
    state: PythonState,
    names: list[str],
    error: TallystickError | None,
) -> None:
    """Name what a first forward changed, where a second one is another program for it."""
    if not names:
        return
    state.restore()
    where = _line(request, collect, state, names[0])
    second = f"fails: {error.message}" if error else "is another program."
    raise MovingStateError(
        f"The first forward changes {', '.join(shown(n) for n in names[:4])}{where}, and a second "
        f"forward with that {second}",
        "Set such attributes before capture, or register tensors among them as buffers.",
    ) from error


def _refuse_difference(first: Trace, a: fx.Node, b: fx.Node) -> None:
    path, line = first.origin.get(a.name), first.lines.get(a.name)
    where = f"in module {path}" if path else "outside every submodule"
    raise MovingStateError(
        f"Two traces of the model differ: first {call_of(a)}, then {call_of(b)}, {where}"
        f"{f' ({line})' if line else ''}. It takes something from Python that changes: a clock, "
        "a counter, a generator.",
        "Pass the value in the batch, keep it in a buffer, or make it a constant.",
    )
