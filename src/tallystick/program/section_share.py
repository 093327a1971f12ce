"""The micro-batches of one of several workers, executed one after the other (PROGRAM 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tallystick.commit.streamed import subtrees
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Buffer, Tensor
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.build import slot_name, value_name
from tallystick.program.carry import Carrying, zeros_of
from tallystick.program.expand import Expanded, expand
from tallystick.program.folded_tail import PartialSums, folded_values
from tallystick.program.ir import Program, Value
from tallystick.program.layout import new_tensor
from tallystick.program.repeat import RepeatedSection, section_of
from tallystick.program.runner import StepInputs


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
        self.values = folded_values(program)
        made = expand(program, micro_batches)
        assert isinstance(made, Expanded)
        outputs = [*self.values, *self.carrying.sent]
        body = section_of(program, self.carrying.nodes, outputs, zeros_of)
        self._section = RepeatedSection(body, made.expanded, context, None)
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

    def turn(self, part: int, state: Mapping[str, Tensor], inputs: StepInputs) -> dict[str, Tensor]:
        """Execute one micro-batch, any of the step; its values by `value_name`, valid until the
        next turn. `inputs` are its own."""
        carried = {slot_name(slot): state[slot] for slot, _ in self.program.carried}
        own = replace(inputs, batch={**inputs.batch, **carried, **self._zeros})
        return self._section.turn(part, state, own)

    def execute(self, state: Mapping[str, Tensor], inputs: StepInputs) -> None:
        """Execute the worker's micro-batches. `inputs` has their records, `state` has at least the
        slots that they read. The state is not changed."""
        self.forget()
        self._device.prepare(self._section.contract)
        for at, part in enumerate(self.parts):
            own = {name: _cut(array, at, len(self.parts)) for name, array in inputs.batch.items()}
            results = self.turn(part, state, replace(inputs, batch=own))
            self.statistics.append(self._sent(results))
            for value in self.values:
                self._add(value, part, results[value_name(value)])

    def again(
        self, parts: range, state: Mapping[str, Tensor], inputs: Callable[[int], StepInputs]
    ) -> tuple[dict[Value, Tensor], list[dict[Value, np.ndarray]]]:
        """The sums of each folded value over `parts`, an aligned subtree of the split, and the
        statistics of each of them, in memory of their own: a share of another worker, computed
        again (docs/adr/0024). `inputs` gives those of a micro-batch."""
        sums = {value: self._new_sums(value) for value in self.values}
        statistics = []
        for part in parts:
            results = self.turn(part, state, inputs(part))
            statistics.append(self._sent(results))
            for value, partial in sums.items():
                partial.add(part, results[value_name(value)])
        return {value: partial.held[0][1] for value, partial in sums.items()}, statistics

    def _sent(self, results: Mapping[str, Tensor]) -> dict[Value, np.ndarray]:
        host = self._device.host
        return {v: np.array(host(results[value_name(v)])) for v in self.carrying.sent}

    def _new_sums(self, value: Value) -> PartialSums:
        return PartialSums(self._device, self._run, self.program.type_of(value), [])

    def _add(self, value: Value, part: int, x: Tensor) -> None:
        type_ = self.program.type_of(value)
        if len(self.parts) == 1 and not self._device.problem(x, type_.dtype, type_.shape):
            self.sums[value] = [x]
            return
        if value not in self._partial:
            self._partial[value] = self._new_sums(value)
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
