"""The section of a program with micro-batches as a program of its own, executed again and again:
here for the micro-batches of one of several workers too (PROGRAM 6).

One plan and one binding serve every micro-batch. What differs is in the calls: a random node's draw
id, a hook's kernel, and the numbers of the nodes (PROGRAM 6.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tallystick.commit.streamed import subtrees
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Buffer, Run, Tensor
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.build import given, piece, slot_name, value_name
from tallystick.program.carry import Carrying, zeros_of
from tallystick.program.executor import Executor, _Bound, _Call, _Stretch
from tallystick.program.expand import Expanded, ExpandedNodes, expand
from tallystick.program.folded_tail import PartialSums, folded_values
from tallystick.program.ir import Input, Node, Program, Value, op_spec
from tallystick.program.layout import new_tensor
from tallystick.program.plan import Plan
from tallystick.program.runner import KernelHook, StepInputs, Tap

# Calls that are kept prepared, over all micro-batches: a GPU replays a recording of each.
_KEPT_CALLS = 1 << 16


def section_of(
    program: Program,
    nodes: Iterable[Node],
    outputs: Iterable[Value],
    zeros: Callable[[Value], Input | None] = lambda value: None,
) -> Program:
    """The section of `program`, a text 2, whose nodes are given, as a program of its own with these
    outputs. Carried slots are inputs of it; `zeros` names an input for what is no value of the
    text."""
    carried = dict(program.carried)

    def place(value: Value) -> Value | Input:
        found = zeros(value)
        if found is not None:
            return found
        if not value.is_input:
            return value
        spec = program.inputs[value.out]
        return given(slot_name(spec.name), spec.type) if spec.name in carried else spec

    batch = (spec for spec in program.inputs if spec.kind == "batch")
    named = [(value_name(v), v) for v in set(outputs)]
    return piece(program.contract, nodes, named, place, always=batch)


@dataclass
class _Tapped:
    """The plan, memory and binding of one tapped step."""

    plan: Plan
    arena: Buffer
    bound: _Bound


class RepeatedSection(Executor):
    """Executes `program`, the section's nodes, for one micro-batch at a time. It changes no state.

    `nodes` are those of the expanded program, which hooks and taps see.
    """

    def __init__(
        self,
        program: Program,
        nodes: ExpandedNodes,
        context: ExecutionContext,
        kernels: KernelHook | None,
    ) -> None:
        self._all = nodes
        super().__init__(program, context, kernels)
        self._random = frozenset(
            i for i, node in enumerate(program.nodes) if op_spec(node.op).is_random
        )
        self._stretches: dict[int, _Stretch] = {}
        self._of: _Bound | None = None  # the binding that the stretches are of
        self._tapped: _Tapped | None = None

    def turn(
        self,
        part: int,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        tap: Tap | None = None,
    ) -> dict[str, Tensor]:
        """Execute micro-batch `part`, whose inputs these are. Returns the outputs, which may be
        strided views, and which are valid until the next turn. Raises as Runner.execute; the caller
        has entered the context and prepared the device. A tapped turn needs `begin_tapped`.
        """
        size = self._all.numbers.section
        self._numbers = range(part * size, (part + 1) * size)
        tensors = self._state_tensors(state)
        self._staged.give(inputs)
        if tap is None:
            bound = self._ready(tensors)
            self._run_stretch(self._stretch(bound, part))
            return bound.results
        assert self._tapped is not None
        tapped = self._tapped

        def seen(
            index: int, _: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            tap(index, self._all[index], inputs, outputs)

        calls = [self._own(call, part) for call in tapped.bound.calls]
        self._run_tapped(tapped.plan, _with_calls(tapped.bound, calls), seen)
        return tapped.bound.results

    def begin_tapped(self, state: Mapping[str, Tensor]) -> None:
        """Prepare for a step whose turns are tapped; `end_tapped` frees what that takes."""
        plan = self._shown_plan()
        arena = self._device.allocate(plan.arena_bytes)
        tensors = self._state_tensors(state)
        self._tapped = _Tapped(plan, arena, self._bind(plan, arena, tensors, tapped=True))

    def end_tapped(self) -> None:
        if self._tapped is not None:
            self._device.free(self._tapped.arena)
            self._tapped = None

    def _kernel(self, index: int, node: Node) -> Run:
        return super()._kernel(index, self._all[self._numbers[index]])

    def _stretch(self, bound: _Bound, part: int) -> _Stretch:
        """The prepared calls of micro-batch `part`."""
        if self._kernels is None and not self._random:
            return bound.keeping
        if bound is not self._of:
            self._stretches.clear()
            self._of = bound
        found = self._stretches.get(part)
        if found is None:
            found = _Stretch(self._device, [self._own(call, part) for call in bound.calls])
            if (len(self._stretches) + 1) * max(len(bound.calls), 1) <= _KEPT_CALLS:
                self._stretches[part] = found
        return found

    def _own(self, call: _Call, part: int) -> _Call:
        """A call as micro-batch `part` has it."""
        run, attrs, inputs, outputs, index = call
        if run == self._copy:
            return call
        node = self.program.nodes[index]
        if self._kernels is not None:
            run = self._kernel(index, node)
        if index in self._random:
            attrs = self._all.numbers.attrs(node, part)
        return run, attrs, inputs, outputs, index


def _with_calls(bound: _Bound, calls: list[_Call]) -> _Bound:
    return _Bound(
        calls, bound.keeping, bound.writing, bound.taps, bound.results, bound.state_copies
    )


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
