"""The first calls of a loss, made again where its steps are walked (PROGRAM 5.25 a).

A walk comes after traces that have failed. These may have left something outside of Python, as a
file. Then both walks find it, and agree. The first call of the loss did not find it. So that call
is made again, and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tallystick.errors import TallystickError, UsageError
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.merged import difference
from tallystick.program.capture.outside import Outside
from tallystick.program.capture.plain import uncompiled
from tallystick.program.capture.python_state import PythonState
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.trace import Trace, TraceRequest, trace

Collect = Callable[[Any], dict[str, Tensor]]


@dataclass(frozen=True)
class FirstCall:
    """A trace from the state of Python before the training: what it is, or why it failed."""

    request: TraceRequest
    found: Trace | str


def first_trace(request: TraceRequest, collect: Collect, earlier: Earlier) -> Trace:
    """`trace`, whose result the request's `firsts` get, if it has such a list."""
    if request.firsts is None:
        return trace(request, collect, earlier=earlier)
    try:
        found = trace(request, collect, earlier=earlier)
    except TallystickError as error:
        request.firsts.append(FirstCall(request, error.message))
        raise
    request.firsts.append(FirstCall(request, found))
    return found


def refuse_other_calls(calls: Iterable[FirstCall], collect: Collect) -> None:
    """Raises UsageError where one of the calls is another one by now, although the state of Python
    was put back."""
    for call in calls:
        request = call.request
        state = PythonState(request.module, request.run)
        outside = Outside.of(request.module, request.run)
        again: Trace | str
        try:
            with uncompiled(request.module), quiet():
                again = trace(replace(request, outside=Carried(outside).with_([])), collect)
        except TallystickError as error:
            again = error.message
        finally:
            state.restore()
            state.release()
            outside.put_back()
        if not _same(call.found, again):
            raise UsageError(
                "The loss gives a different result when its first call is repeated from the same "
                "Python state. It depends on a clock, a file or another thread, or a call leaves "
                "something outside Python's state.",
                "Pass the value in the batch, or keep it in Python objects.",
            )


def _same(one: Trace | str, two: Trace | str) -> bool:
    if isinstance(one, str) or isinstance(two, str):
        return one == two
    return one.outputs == two.outputs and difference(one, two) is None
