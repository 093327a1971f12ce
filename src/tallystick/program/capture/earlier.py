"""Tensors that a model keeps from one call for the next (PROGRAM 5.19).

A table that it makes once has no input of the step before it: it is made again where a later trace
reads it. What depends on a batch or on weights of an earlier step has no place in a program.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tallystick.errors import MovingStateError, UsageError
from tallystick.program.capture import custom_ops  # noqa: F401 (it registers the operators)
from tallystick.program.capture.recorder import Recorder
from tallystick.program.capture.source import here

_CONSTANT = torch.ops.tallystick.constant.default


class EarlierError(MovingStateError):
    """A refusal of `tensor`, which an earlier call has left."""

    tensor: Tensor

    @classmethod
    def of(cls, tensor: Tensor, said: UsageError) -> EarlierError:
        """With the words of `said`."""
        made = cls(said.message, said.next_action)
        made.tensor = tensor
        return made


_KEEP = "Keep it in a buffer (register_buffer) that tensor operators change: buffers are state."


class Earlier:
    """The tensors of earlier traces of one capture."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []
        self.made: tuple[Recorder | None, dict[fx.Node, Any]] = (None, {})
        self.given: list[tuple[Tensor, Any, str]] = []  # to this trace: kept, made again, the line
        self.refused: tuple[Recorder, EarlierError] | None = None

    def add(self, recorder: Recorder) -> None:
        self.recorders.append(recorder)

    def again(self, recorder: Recorder, rng: Tensor, value: Any) -> Any:
        """`value`, or, if it is a tensor of an earlier trace, the same one of this trace.

        Raises UsageError where it depends on an input of the earlier step.
        """
        if not isinstance(value, Tensor) or not value.is_meta or id(value) in recorder.slots.found:
            return value
        for known in reversed(self.recorders):
            found = known.slots.found.get(id(value))
            if found is not None and found[1] is value:
                return self._again(recorder, rng, found[0].proxy.node, value)
        return value

    def _again(self, recorder: Recorder, rng: Tensor, node: fx.Node, value: Tensor) -> Any:
        if self.made[0] is not recorder:
            self.made, self.given = (recorder, {}), []
        made = self.made[1]
        for one in _before(node, made):
            # A constant has the key of random numbers for its place only.
            own = one.op == "call_function" and not (
                isinstance(one.target, torch._ops.OpOverload) and one.target._schema.is_mutable
            )
            if not own or value._version:
                said = UsageError(
                    f"The model reads a tensor of an earlier call{here()}, made from that call's "
                    "batch or weights. A program only has the inputs of its own step.",
                    _KEEP,
                )
                error = EarlierError.of(value, said)
                self.refused = recorder, error
                raise error
            if one.target is _CONSTANT:
                made[one] = one.target(rng, *one.args[1:])
                continue
            args = fx.node.map_arg(one.args, made.__getitem__)
            kwargs = fx.node.map_arg(one.kwargs, made.__getitem__)
            made[one] = one.target(*args, **kwargs)  # type: ignore[operator]
        self.given.append((value, made[node], here()))
        return made[node]

    def check(self, recorder: Recorder) -> None:
        """Raises the refusal of this trace that an `except` of the model's has taken; and
        UsageError where the trace has changed in place what it made again: the kept tensor has not
        changed, and the next trace would have it without that."""
        refused, self.refused = self.refused, None
        if refused is not None and refused[0] is recorder:
            raise refused[1]
        for value, made, where in self.given if self.made[0] is recorder else ():
            if made._version:
                said = UsageError(
                    f"The model changes a tensor in place that an earlier call made{where}. A "
                    "program only has the inputs of its own step.",
                    _KEEP,
                )
                raise EarlierError.of(value, said)


def _before(node: fx.Node, made: dict[fx.Node, Any]) -> list[fx.Node]:
    """The nodes that `node` is made of, in order, without those that are made again already."""
    needed, stack, seen = [], [node], set(made)
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        needed.append(at)
        if at.target is not _CONSTANT:
            stack.extend(at.all_input_nodes)
    order = {n: i for i, n in enumerate(node.graph.nodes)}
    return sorted(needed, key=order.__getitem__)
