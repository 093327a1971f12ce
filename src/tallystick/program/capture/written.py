"""Buffers that a pass of validation changes and a training step reads (PROGRAM 5.19 f).

A pass writes no state. In a loop as it is written, the next step would find what the pass has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tallystick.errors import UsageError
from tallystick.program.capture.trace import Request, Trace

_SAME = frozenset({torch.ops.aten.clone.default, torch.ops.aten.detach.default})
Ways = Sequence[tuple[Request, Trace]]


def refuse_written(training: Ways, evaluation: Ways) -> None:
    """Raises UsageError for such a buffer, by its name."""
    for _, traced in evaluation:
        for name in traced.inputs:
            if not name.startswith("buffer.") or not _writes(traced, name):
                continue
            if any(_decides(step, name) for _, step in training):
                said = name.removeprefix("buffer.")
                raise UsageError(
                    f"A pass of validation changes the buffer {said}, and the training step reads "
                    "it: a job's pass leaves no buffer changed.",
                    "Change it where module.training is true alone, or give a validation loss that "
                    "only computes.",
                )


def _results(traced: Trace) -> dict[str, Any]:
    return dict(zip(traced.outputs, list(traced.graph.nodes)[-1].args[0], strict=True))


def _place(traced: Trace, name: str) -> fx.Node | None:
    found = (n for i, n in zip(traced.inputs, traced.graph.nodes, strict=False) if i == name)
    return next(found, None)


def _writes(traced: Trace, name: str) -> bool:
    """Whether the call leaves something else in the slot."""
    node: Any = _results(traced).get(name)
    while isinstance(node, fx.Node) and node.op == "call_function" and node.target in _SAME:
        node = node.args[0]
    return node is not None and node is not _place(traced, name)


def _decides(traced: Trace, name: str) -> bool:
    """Whether anything but the slot's own next state is computed from the slot."""
    source = _place(traced, name)
    if source is None:
        return False
    depends = {source}
    for node in traced.graph.nodes:
        if node.op == "call_function" and not depends.isdisjoint(node.all_input_nodes):
            depends.add(node)
    return any(
        key != name and isinstance(node, fx.Node) and node in depends
        for key, node in _results(traced).items()
    )
