"""The executor: it executes a program node by node on a device's tensors, in memory planned once.

The executor binds all tensors of all kernels beforehand, so that a step is a loop over prepared
calls. It knows strides, storage and order. `numerics` has the meaning of the operators, and the
device knows what a tensor is (devices/device.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.device import Buffer, Device, Run, Tensor, refused_operands
from tallystick.devices.environment import reestablish
from tallystick.devices.sequence import Call, CallFailedError, Sequenced
from tallystick.errors import (
    CounterpartyError,
    DeviceLostError,
    MachineFaultError,
    TallystickError,
    UsageError,
)
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.blocks import BlockPart
from tallystick.program.ir import BATCH_PREFIX, COMMIT, Node, Program, op_spec
from tallystick.program.layout import TensorPlace, new_tensor
from tallystick.program.plan import Plan, PlanOptions, PlanStep, make_plan
from tallystick.program.runner import (
    KernelHook,
    NodeError,
    NodeFaultError,
    Runner,
    Showing,
    StepInputs,
    StepResult,
    Tap,
)
from tallystick.program.state import Staged, item

_Call = tuple[Callable[..., Any], Attrs, Sequence[Tensor | None], Sequence[Tensor], int]


class _Stretch:
    """Some calls of a step, prepared by the device. `nodes` are the indices of the calls' nodes."""

    def __init__(self, device: Device, calls: Sequence[_Call]) -> None:
        bare: list[Call] = [call[:4] for call in calls]
        self.nodes = [call[4] for call in calls]
        self.prepared: Sequenced = device.sequence(bare)


def _copy(
    device: Device, _attrs: Attrs, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> None:
    """A call that copies an operand into scratch, for a kernel that takes no strides."""
    device.copy(inputs[0], outputs[0])


@dataclass
class _Bound:
    """The tensors of one plan over one set of state tensors.

    `keeping` are the calls before the first that writes into the state, `writing` the others; a
    tapped step has `calls` only. `state_copies` are (slot, next value, whether that value lies
    in state memory itself).
    """

    calls: list[_Call]
    keeping: _Stretch
    writing: _Stretch
    taps: list[tuple[int, Sequence[Tensor | None], Sequence[Tensor]]]
    results: dict[str, Tensor]
    state_copies: list[tuple[str, Tensor, bool]]


class Executor(Runner):
    """Runs `program` any number of times, in an execution context (bits never depend on it).

    The state is a dict from slot name to a C-contiguous, writable tensor of the context's device.
    A step changes it in place. Several executors may share one state.

    `kernels(index, node, spec)` returns the kernel of a node. The executor calls it once per node
    and binding, in no order. Where it returns None, or there is no hook, the contract's own kernel
    runs. With a hook, every node that is no view runs in every step, at its place in the plan's
    order, not the program's. `numbers` are the nodes' numbers for hooks, taps and errors, where the
    program is a piece of another program (build.py). With `narrow`, products read stored weights
    in their place as they do without a hook (fused.py): a hook's kernel for these takes them.

    Raises UnsupportedOperatorError where the device has no kernel for an operator, UsageError for a
    program with micro-batches (sectioned.py executes those).
    """

    def __init__(
        self,
        program: Program,
        context: ExecutionContext = DEFAULT,
        kernels: KernelHook | None = None,
        numbers: Sequence[int] | None = None,
        narrow: bool = False,
    ) -> None:
        if program.section:
            raise UsageError(
                "A program with micro-batches can only be executed for a number of them.",
                "Use executor_of(program, micro_batches), or expand it.",
            )
        self.program = program
        self.context = context
        self.contract = parse_contract(program.contract)
        self._device = device = context.device
        # No method of this object: its calls hold it, and a cycle would keep the arena until
        # Python looks for cycles.
        self._copy = partial(_copy, device)
        self._table = device.kernels(self.contract)
        self._kernels = kernels
        self._numbers = range(len(program.nodes)) if numbers is None else numbers
        blocks = kernels is None and device.takes_blocks
        plain = kernels is None
        options = PlanOptions(fold_constants=plain, blocks=blocks, narrow=plain or narrow)
        self.plan = make_plan(program, options, device)
        self._state_intact = True
        with context.entered():
            self._staged = Staged(device, program)
        self._state_seen: tuple[Tensor, ...] = ()
        self._bound: _Bound | None = None
        self._arena: Buffer | None = None
        self._constants: dict[int, Buffer] = {}

    def _new(self, type_: TensorType) -> Tensor:
        return new_tensor(self._device, type_)

    @property
    def arena_bytes(self) -> int:
        return self.plan.arena_bytes

    @property
    def state_intact(self) -> bool:
        return self._state_intact

    # -- inputs --------------------------------------------------------------------------------

    def _state_tensors(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        arrays = tuple(item(state, name, "state") for name in self.program.state_types)
        if len(arrays) == len(self._state_seen) and all(
            a is b for a, b in zip(arrays, self._state_seen, strict=True)
        ):
            return arrays
        for (name, type_), array in zip(self.program.state_types.items(), arrays, strict=True):
            self._check_state(name, type_, array)
        return arrays

    def _check_state(self, name: str, type_: TensorType, tensor: Tensor) -> None:
        problem = self._device.problem(tensor, type_.dtype, type_.shape)
        if problem:
            raise UsageError(f"State slot {name} is not on {self._device.name}: {problem}.")
        program = self.program
        changes = name in program.next_state and name not in program.passed_through
        if changes and not self._device.writable(tensor):
            raise UsageError(f"State slot {name} is read-only.", "Pass a writable copy.")

    def check_state(self, state: Mapping[str, Tensor]) -> None:
        """Raises UsageError where a slot is missing, of another type or place, or read-only."""
        self._state_tensors(state)

    @property
    def staged(self) -> dict[str, Tensor]:
        """The memory that the batch is copied into, by name. What a caller has written there, and
        gives as batch, is not copied."""
        prefix = len(BATCH_PREFIX)
        return {
            name[prefix:]: tensor
            for name, tensor in self._staged.tensors.items()
            if name.startswith(BATCH_PREFIX)
        }

    def stage_in(self, name: str, tensor: Tensor) -> None:
        """Take the memory of `tensor`, of the input's type, for the batch input `name`; another
        executor may have the same. Called before the first step."""
        self._staged.tensors[BATCH_PREFIX + name] = tensor

    # -- memory --------------------------------------------------------------------------------

    def use_arena(self, arena: Buffer) -> None:
        """Execute in this memory, of at least `arena_bytes`, which another executor may use between
        two steps. Called before the first step."""
        self._arena = arena

    def _bind(self, plan: Plan, arena: Buffer, state: Sequence[Tensor], tapped: bool) -> _Bound:
        """Bind every tensor of every call, as views of the arena, the state, and staged inputs."""
        device = self._device
        state_of = dict(zip(self.program.state_types, state, strict=True))
        buffers: dict[int, Buffer | Tensor] = {}
        offsets: dict[int, int] = {}
        for number, storage in enumerate(plan.storages):
            if storage.kind == "arena":
                buffers[number], offsets[number] = arena, storage.offset
            elif storage.kind == "constant":
                if number not in self._constants:
                    self._constants[number] = device.allocate(storage.nbytes)
                buffers[number] = self._constants[number]
            else:
                of = state_of if storage.kind == "state" else self._staged.tensors
                buffers[number] = of[storage.name]

        def tensor(place: TensorPlace) -> Tensor:
            at = place.offset + offsets.get(place.storage, 0)
            return device.view(buffers[place.storage], at, place.dtype, place.shape, place.strides)

        def optional(place: TensorPlace | None) -> Tensor | None:
            return None if place is None else tensor(place)

        def calls_of(step: PlanStep) -> list[_Call]:
            calls: list[_Call] = [
                (self._copy, {}, [tensor(source)], [tensor(target)], step.index)
                for source, target in step.copies
            ]
            parts = step.parts or [BlockPart(step.index, step.inputs, step.outputs)]
            for index, inputs, outputs in parts if step.runs else ():
                node = self.program.nodes[index]
                if node.op not in view and node.op != COMMIT:
                    run, attrs = self._kernel(index, node), node.attrs
                    if step.attention is not None:
                        attends = self._table[node.op].attends
                        assert attends is not None, "the plan has asked for it"
                        run, attrs = attends, self.program.nodes[step.attention.scores].attrs
                    given = [optional(p) for p in inputs]
                    calls.append((run, attrs, given, [tensor(p) for p in outputs], index))
            return calls

        for step in plan.constants:
            for run, attrs, inputs, outputs, index in calls_of(step):
                self._guarded(run, attrs, inputs, outputs, index)
        calls: list[_Call] = []
        taps: list[tuple[int, Sequence[Tensor | None], Sequence[Tensor]]] = []
        first_write = -1
        for step in plan.steps:
            if step.writes_state and first_write < 0:
                first_write = len(calls)
            calls += calls_of(step)
            if tapped:
                seen = [optional(p) for p in step.inputs], [tensor(p) for p in step.outputs]
                taps.append((len(calls), *seen))
        if first_write < 0:
            first_write = len(calls)
        return _Bound(
            calls,
            _Stretch(device, [] if tapped else calls[:first_write]),
            _Stretch(device, [] if tapped else calls[first_write:]),
            taps,
            {name: tensor(place) for name, place in plan.results.items()},
            [
                (slot, tensor(place), plan.storages[place.storage].kind == "state")
                for slot, place in plan.state_copies
            ],
        )

    def _kernel(self, index: int, node: Node) -> Run:
        spec = op_spec(node.op)
        number = self._numbers[index]
        chosen = None if self._kernels is None else self._kernels(number, node, spec)
        return chosen if chosen is not None else self._table[node.op].run

    def _ready(self, state: tuple[Tensor, ...]) -> _Bound:
        same = len(state) == len(self._state_seen) and all(
            a is b for a, b in zip(state, self._state_seen, strict=True)
        )
        if self._bound is None or not same:
            if self._arena is None:
                self._arena = self._device.allocate(self.plan.arena_bytes)
            self._bound = self._bind(self.plan, self._arena, state, tapped=False)
            self._state_seen = state
        return self._bound

    # -- execution -----------------------------------------------------------------------------

    def _guarded(
        self,
        run: Callable[..., Any],
        attrs: Attrs,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        index: int,
    ) -> None:
        try:
            run(attrs, inputs, outputs)
        except Exception as error:
            self._fail(error, index)

    def _fail(self, error: Exception, index: int) -> NoReturn:
        """Raise an error that names the node, says whether the run or this machine is at fault, and
        says whether the state survived."""
        op, lost = self.program.nodes[index].op, not self.state_intact
        number = self._numbers[index]
        text = error.message if isinstance(error, TallystickError) else str(error)
        action = error.next_action if isinstance(error, TallystickError) else ""
        if lost:
            action = "The step had begun to change the state: go back to a stored checkpoint."
        if refused_operands(error):
            raise NodeError(f"Node {number} ({op}): {text}", action, number, lost) from error
        if isinstance(error, (CounterpartyError, UsageError, DeviceLostError)):
            # A rounding log is damaged; this program calls a kernel wrongly; no node can be named,
            # and nothing of the state is left.
            raise error
        raise NodeFaultError(
            f"Node {number} ({op}) could not be executed on this machine: "
            f"{text or type(error).__name__}",
            action or "Free memory, threads or disk space, then try again.",
            number,
            lost,
        ) from error

    def execute(
        self,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        showing: Showing | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        with self.context.entered():
            tensors = self._state_tensors(state)
            self._staged.give(inputs)
            # Before any kernel: a failure here is this machine's, and no node's.
            self._device.prepare(self.contract)
            self._state_intact = True
            if showing is None:
                bound = self._ready(tensors)
                self._run(bound, before_write)
                return self._result(bound, state, advance=True)
            if before_write is not None:
                before_write()
            plan = self._shown_plan()
            arena = self._device.allocate(plan.arena_bytes)
            try:
                bound = self._bind(plan, arena, tensors, tapped=True)
                self._run_tapped(plan, bound, showing.tap)
                return self._result(bound, state, showing.advance)
            finally:
                self._device.free(arena)

    def _shown_plan(self) -> Plan:
        """A plan that overwrites nothing before a tap has seen it."""
        options = PlanOptions(
            reuse=False, hoist=False, fold_constants=False, blocks=False, narrow=False
        )
        return make_plan(self.program, options, self._device)

    def _result(self, bound: _Bound, state: Mapping[str, Tensor], advance: bool) -> StepResult:
        """The result of the step. With `advance`, `state` becomes the next state."""
        results = {
            name: np.array(self._device.host(tensor), order="C", copy=True)
            for name, tensor in bound.results.items()
        }
        loss = results.get("loss")
        number = None if loss is None else np.float32(loss)
        if advance:
            self._write_state(bound, state)
        self._state_intact = True
        return StepResult(number, results, state)

    def _run(self, bound: _Bound, before_write: Callable[[], None] | None) -> None:
        self._run_stretch(bound.keeping)
        if before_write is not None:
            before_write()
        self._state_intact = not bound.writing.nodes
        self._run_stretch(bound.writing)

    def _run_stretch(self, stretch: _Stretch) -> None:
        try:
            stretch.prepared.run()
        except CallFailedError as failure:
            error = failure.__cause__
            assert isinstance(error, Exception)
            self._fail(error, stretch.nodes[failure.position])
        except (MemoryError, MachineFaultError) as error:
            # The device failed, and no call of it can be named: the last one ends the stretch.
            self._fail(error, stretch.nodes[-1])

    def _run_tapped(self, plan: Plan, bound: _Bound, tap: Tap) -> None:
        """Execute in program order and overwrite no tensor before the tap has seen it. This takes
        more memory."""
        start = 0
        for step, (end, inputs, outputs) in zip(plan.steps, bound.taps, strict=True):
            for call in bound.calls[start:end]:
                self._guarded(*call)
            start = end
            tap(self._numbers[step.index], self.program.nodes[step.index], inputs, outputs)
            reestablish()  # a tap is foreign code (NUMERICS 1.7)

    def _write_state(self, bound: _Bound, state: Mapping[str, Tensor]) -> None:
        """Copy the next-state values that no kernel could write in place."""
        # A next value may be another slot's old tensor, so read everything before writing.
        sources = []
        for slot, value, in_state in bound.state_copies:
            source = self._new(self.program.state_types[slot]) if in_state else value
            if in_state:
                self._device.copy(value, source)
            sources.append((slot, source))
        self._state_intact = not sources
        for slot, source in sources:
            self._device.copy(source, state[slot])
