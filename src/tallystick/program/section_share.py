"""The micro-batches of one of several workers, executed one after the other (PROGRAM 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallystick.commit.split import subtrees
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Buffer, Tensor
from tallystick.numerics.operators.fold import FOLD
from tallystick.program.carry import Carrying, zeros_of
from tallystick.program.expand import ExpandedNodes, expand
from tallystick.program.ir import Input, Program, Value
from tallystick.program.layout import new_tensor
from tallystick.program.partial_sums import PartialSums
from tallystick.program.pieces import given, piece, slot_name, value_name
from tallystick.program.repeat import RepeatedSection


class SectionShare:
    """Executes the micro-batches `parts` of `program`, a text 2, for `micro_batches` of them.

    After `execute`, `sums` has the sums of each folded value, one for each of `trees`, the largest
    subtrees of the split that lie in `parts`; and `statistics` has the values of each micro-batch
    that carry slots. Both are valid until the next step. Raises as Carrying and Executor.
    """

    def __init__(
        self, program: Program, micro_batches: int, parts: range, context: ExecutionContext
    ) -> None:
        self.program, self.parts, self.context = program, parts, context
        self.trees = subtrees(parts)
        self.carrying = Carrying(program)
        self.values = sorted(
            {v for node in program.nodes if node.op == FOLD for v in node.inputs if v is not None}
        )
        nodes = expand(program, micro_batches).nodes
        assert isinstance(nodes, ExpandedNodes)
        self._section = RepeatedSection(self._body(), nodes, context, None)
        self._device = device = context.device
        self._run = device.kernels(self._section.contract)[FOLD].run
        with context.entered():
            self._zeros = {}
            for spec in self.carrying.zeros:
                tensor = new_tensor(device, spec.type)
                device.write(np.zeros(spec.type.shape, np.float32), tensor)
                self._zeros[spec.name.removeprefix("batch.")] = tensor
        self._partial: dict[Value, PartialSums] = {}
        self.sums: dict[Value, list[Tensor]] = {}
        self.statistics: list[dict[Value, np.ndarray]] = []

    @property
    def arena_bytes(self) -> int:
        """The planned memory for all tensors of a micro-batch that are neither state nor batch."""
        return self._section.arena_bytes

    @property
    def sum_bytes(self) -> int:
        """The memory of the partial sums so far."""
        folded = sum(self.program.type_of(v).nbytes for v in self._partial)
        return folded * len(self.parts).bit_length()

    def use_arena(self, arena: Buffer) -> None:
        """As Executor.use_arena: free for others once the step's `sums` are read."""
        self._section.use_arena(arena)

    def _body(self) -> Program:
        program, carried = self.program, dict(self.program.carried)

        def place(value: Value) -> Value | Input:
            zeros = zeros_of(value)
            if zeros is not None:
                return zeros
            if not value.is_input:
                return value
            spec = program.inputs[value.out]
            return given(slot_name(spec.name), spec.type) if spec.name in carried else spec

        outputs = {*self.values, *self.carrying.sent}
        batch = (spec for spec in program.inputs if spec.kind == "batch")
        named = [(value_name(v), v) for v in outputs]
        return piece(program.contract, self.carrying.nodes, named, place, always=batch)

    def turn(
        self,
        part: int,
        state: Mapping[str, Tensor],
        batch: Mapping[str, Any],
        scalars: Mapping[str, float],
        rng: Sequence[int] | np.ndarray | None,
    ) -> dict[str, Tensor]:
        """Execute one micro-batch, any of the step; its values by `value_name`, valid until the
        next turn. `batch` are its own records."""
        carried = {slot_name(slot): state[slot] for slot, _ in self.program.carried}
        return self._section.turn(part, state, {**batch, **carried, **self._zeros}, scalars, rng)

    def execute(
        self,
        state: Mapping[str, Tensor],
        batch: Mapping[str, np.ndarray],
        scalars: Mapping[str, float],
        rng: Sequence[int] | np.ndarray | None,
    ) -> None:
        """Execute the worker's micro-batches. `batch` are their records, `state` has at least the
        slots that they read. The state is not changed."""
        self.forget()
        self._device.prepare(self._section.contract)
        for at, part in enumerate(self.parts):
            own = {name: _cut(array, at, len(self.parts)) for name, array in batch.items()}
            results = self.turn(part, state, own, scalars, rng)
            host = self._device.host
            self.statistics.append(
                {v: np.array(host(results[value_name(v)])) for v in self.carrying.sent}
            )
            for value in self.values:
                self._add(value, part, results[value_name(value)])

    def _add(self, value: Value, part: int, x: Tensor) -> None:
        type_ = self.program.type_of(value)
        if len(self.parts) == 1 and not self._device.problem(x, type_.dtype, type_.shape):
            self.sums[value] = [x]
            return
        if value not in self._partial:
            self._partial[value] = PartialSums(self._device, self._run, type_, [])
        sums = self._partial[value]
        sums.add(part, x)
        self.sums[value] = [tensor for _, tensor in sums.held]

    def forget(self) -> None:
        """Drop what the last step left."""
        for sums in self._partial.values():
            sums.forget()
        self.sums.clear()
        self.statistics.clear()


def _cut(array: np.ndarray, at: int, parts: int) -> np.ndarray:
    rows = array.shape[0] // parts
    return array[at * rows : (at + 1) * rows]
