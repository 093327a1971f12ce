"""Which tensors outside of the module are slots: those that traces change (PROGRAM 5.20).

A trace has a tensor of its own for each slot. Code may ask by `is` whether two places hold the same
object. After a call that has left one tensor in both, a loop has one there in the next call
(`refuse_asked`).

A pass of validation writes no state. In a loop as it is written, the next step would find what the
pass has left: `refuse_written` (PROGRAM 5.19 f).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from tallystick.errors import MovingStateError, TallystickError, UsageError
from tallystick.program.capture.carried import Carried, CarriedSlot
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.first_calls import first_trace
from tallystick.program.capture.kept_after import UntrainedError
from tallystick.program.capture.merged import difference
from tallystick.program.capture.outside import KeptError, KeptTensor, OneObject, Outside, storage_of
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.source import Blame
from tallystick.program.capture.trace import Trace, TraceRequest, trace

_SAME = frozenset({torch.ops.aten.clone.default, torch.ops.aten.detach.default})


def _results(traced: Trace) -> dict[str, Any]:
    return dict(zip(traced.outputs, list(traced.graph.nodes)[-1].args[0], strict=True))


def _input(traced: Trace, name: str) -> fx.Node | None:
    found = (n for i, n in zip(traced.inputs, traced.graph.nodes, strict=False) if i == name)
    return next(found, None)


def _is_copy(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in _SAME


def writes(traced: Trace, name: str) -> bool:
    """Whether the call leaves something else in the slot."""
    node: Any = _results(traced).get(name)
    while _is_copy(node):
        node = node.args[0]
    return node is not None and node is not _input(traced, name)


def reads(traced: Trace, name: str) -> bool:
    """Whether the call computes anything from the slot; a copy is nothing."""
    pending = [_input(traced, name)]
    for node in pending:
        for user in node.users if node is not None else ():
            if _is_copy(user):
                pending.append(user)
            elif user.op == "call_function":
                return True
    return False


def results_from(traced: Trace, name: str) -> set[str]:
    """The names of the results that depend on the slot."""
    depends: set[Any] = {_input(traced, name)}
    for node in traced.graph.nodes:
        if node.op == "call_function" and not depends.isdisjoint(node.all_input_nodes):
            depends.add(node)
    found = _results(traced).items()
    return {key for key, node in found if isinstance(node, fx.Node) and node in depends}


Ways = Sequence[tuple[TraceRequest, Trace]]


def refuse_written(training: Ways, evaluation: Ways) -> None:
    """Raises UsageError for a buffer that a pass changes and a step reads, by its name."""
    for _, traced in evaluation:
        for name in traced.inputs:
            if not name.startswith("buffer.") or not writes(traced, name):
                continue
            if any(results_from(step, name) - {name} for _, step in training):
                said = name.removeprefix("buffer.")
                raise UsageError(
                    f"A pass of validation changes the buffer {said}, and the training step reads "
                    "it: a job's pass leaves no buffer changed.",
                    "Change it where module.training is true alone, or give a validation loss that "
                    "only computes.",
                )


_TRACES = 6


def settled_outside(
    request: TraceRequest,
    collect: Callable[[Any], dict[str, Tensor]],
    outside: Outside,
    restore: Callable[[], None],
    known: Carried | None,
    earlier: Earlier,
    begun: Sequence[KeptTensor] = (),
) -> tuple[TraceRequest, Trace]:
    """The request with its slots, and the first trace of it that changes no other tensor.

    Tensors are constants in the beginning, but those that no constant can be. `restore` puts the
    module back. With `known` these are the slots, and no others. Those of `begun` are slots in any
    case: another step changes them.
    """
    carried = [*begun] if known is None else outside.take_over(known.kept)
    unused: list[KeptTensor] = []
    unread: list[KeptTensor] = []  # an evaluation changes these, and computes nothing from them
    as_constants: TallystickError | None = None
    for attempt in range(_TRACES):
        request = replace(request, outside=Carried(outside).with_(carried))
        outside.written.clear()
        graphs = [kept.graph for kept in carried]
        error: TallystickError | None = None
        try:
            one = trace if attempt else first_trace
            traced = one(request, collect, earlier=earlier)
        except UntrainedError as found:
            error = as_constants or found  # which names the line where it is read
        except KeptError as found:
            _back(outside, carried, restore)
            where = _line(request, collect, found.kept.replaced)
            error = UsageError(found.message.removesuffix(".") + f"{where}.", found.next_action)
        except TallystickError as found:
            error = found
        more = [kept for kept in outside.changes(carried) if kept not in unread]
        if known is not None and more:
            unread += more
            _back(outside, carried, restore)
            _refuse_read(request, collect, carried, more)
            _back(outside, [*carried, *unread], restore)
            continue
        if error is not None:
            more += [k for k in outside.no_constants(carried) if k not in more]
            as_constants = error
        if error is None and not more:
            if graphs != [kept.graph for kept in carried]:
                _back(outside, carried, restore)
                continue
            refuse_unknown(outside)
            spare = [] if known else [k for k in carried if k not in begun]
            unused = [k for k in spare if not _is_used(request, traced, k)]
            if not unused:
                for kept in unread:
                    kept.put_back()
                outside.unread = unread
                request.outside.refuse_changed(functools.partial(_changing_line, request, collect))
                return request, traced
        elif error is not None and not more:
            refuse_unknown(outside)
            raise error
        carried = [k for k in (*carried, *more) if k not in unused]
        _back(outside, carried, restore)
    assert carried
    raise carried[-1].refusal(
        "and others change one another at every call", "Keep fewer of them, in fewer places."
    )


def _changing_line(
    request: TraceRequest, collect: Callable[[Any], dict[str, Tensor]], kept: KeptTensor
) -> str:
    return _line(request, collect, kept.changed)


def _line(
    request: TraceRequest, collect: Callable[[Any], dict[str, Tensor]], look: Callable[[], Any]
) -> str:
    """Where a kept tensor changes, found by a trace line by line: ` (file:line)`, or nothing."""
    blame = Blame(look)
    with contextlib.suppress(TallystickError), blame.watching():
        trace(request, collect)
    return f" ({blame.line})" if blame.line else ""


def _back(outside: Outside, carried: list[KeptTensor], restore: Callable[[], None]) -> None:
    """Everything as before the trace."""
    for kept in carried:
        kept.put_back()
    outside.containers.put_back()
    restore()


def _refuse_read(
    request: TraceRequest,
    collect: Callable[[Any], dict[str, Tensor]],
    carried: list[KeptTensor],
    more: list[KeptTensor],
) -> None:
    """Raises UsageError where an evaluation computes from `more`, which only it changes."""
    request = replace(request, outside=request.outside.with_([*carried, *more]))
    traced = trace(request, collect)
    for slot in request.outside.slots:
        found = results_from(traced, f"buffer.{slot.name}")
        if slot.members[0] in more and any(not n.startswith("buffer.") for n in found):
            raise slot.members[0].refusal(
                "changes in the evaluation, and not in the training",
                "Keep numbers about the evaluation out of its loss.",
            )


def refuse_unknown(outside: Outside) -> None:
    """Raises UsageError where a trace has changed a tensor in place that is kept nowhere."""
    known = {storage_of(k.tensor) for k in outside.kept} | set(outside.own)
    for storage, where in outside.written.items():
        if storage not in known:
            raise UsageError(
                f"The code changes a tensor in place that capture finds nowhere{where}: it would "
                "have its first value at every step.",
                "Keep it in a variable, an attribute, a list or a dict that the loss names.",
            )


def _is_used(request: TraceRequest, traced: Trace, kept: KeptTensor) -> bool:
    """Whether the step reads or changes the slot of `kept`."""
    slot = next(s for s in request.outside.slots if kept in s.members)
    name = f"buffer.{slot.name}"
    return reads(traced, name) or writes(traced, name)


def refuse_stale(outside: Outside, error: TallystickError | None = None) -> None:
    """Raises UsageError where a call reads what an earlier one left in a place that is no slot."""
    if outside.stale is None:
        return
    place, where = outside.stale
    raise UsageError(
        f"{place} holds no tensor before the training, and a later call reads the one that an "
        f"earlier call has left there{where}.",
        "Make it before the training, of the shape and type that it stays (torch.zeros for none).",
    ) from error


def _joined(slots: Sequence[CarriedSlot]) -> dict[str, CarriedSlot]:
    """The slots that the last call has left one tensor, by name: the first of them."""
    by_object: dict[int, list[CarriedSlot]] = {}
    for slot in slots:
        left = slot.members[0].left
        if len(slot.members) == 1 and left is not None:
            by_object.setdefault(id(left), []).append(slot)
    return {s.name: group[0] for group in by_object.values() if len(group) > 1 for s in group}


def refuse_asked(
    request: TraceRequest,
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
