"""What a traced call reads of the slots of the state, and what it writes.

A pass of validation writes no state. In a loop as it is written, the next step would find what the
pass has left: `refuse_written` (PROGRAM 5.19 f).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tallystick.errors import UsageError
from tallystick.program.capture.trace import Trace, TraceRequest

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
