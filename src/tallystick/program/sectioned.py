"""Executes a program with micro-batches one after the other (PROGRAM 6).

In memory are one micro-batch's tensors and the partial sums of the folded values, at most one for
each power of two up to V. The bits are those of the expanded program, node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.devices.kernel import Run
from tallystick.errors import UsageError
from tallystick.numerics.operators.fold import FOLD
from tallystick.numerics.types import DTYPES, Attrs, TensorType
from tallystick.program.executor import Executor, KernelHook, StepResult, Tap
from tallystick.program.expand import Expanded, ExpandedNodes, expand, numbering
from tallystick.program.faults import NodeFaultError
from tallystick.program.ir import BATCH_PREFIX, Input, Node, Program, Value, op_spec
from tallystick.program.layout import contiguous_strides, new_tensor
from tallystick.program.partial_sums import PartialSums
from tallystick.program.pieces import Place, piece, slot_name, value_name
from tallystick.program.pieces import given as given_input
from tallystick.program.repeat import RepeatedSection
from tallystick.program.section import reads_carried
from tallystick.program.shown import ShownTail
from tallystick.program.staging import item


@dataclass(frozen=True)
class _Folded:
    """A fold of the text: its value, its number in the expansion, its attributes for V, and the
    tail's memory for its result."""

    value: Value
    number: int
    attrs: Attrs
    result: Tensor


class SectionedExecutor:
    """Runs `program`, a text 2, for a number of micro-batches: an Executor of the expansion, in the
    memory of one micro-batch.

    `program` is the expanded program, whose numbers hooks, taps and errors have. `run_step` takes a
    whole step's batch. Raises as Executor, and as `expand`.
    """

    def __init__(
        self,
        program: Program,
        micro_batches: int,
        context: ExecutionContext = DEFAULT,
        kernels: KernelHook | None = None,
    ) -> None:
        self.source, self.micro_batches, self.context = program, micro_batches, context
        self.program = expand(program, micro_batches)
        self._numbers = numbering(program, micro_batches)
        self._device = device = context.device
        self._hook = None if kernels is None else _numbered(kernels, self._nodes)
        self._values = sorted(
            {v for node in program.nodes if node.op == FOLD for v in node.inputs if v is not None}
        )
        self._section = RepeatedSection(self._body(), self._nodes, context, kernels)
        self.contract = self._section.contract
        self._is_wide = self._hook is not None and self._folds_are_hooked()
        self._tail = self._wide_tail() if self._is_wide else self._narrow_tail()
        self._running: Executor = self._section
        with context.entered():
            self._kept = {
                slot: new_tensor(device, program.state_types[slot]) for slot, _ in program.carried
            }
        self._shares_arena = False
        self._run: Run = device.kernels(self.contract)[FOLD].run
        self._folds = [] if self._is_wide else self._folded()
        self._sums = {
            value: PartialSums(
                device,
                self._run,
                program.type_of(value),
                [next(f.result for f in reversed(self._folds) if f.value == value)],
            )
            for value in ([] if self._is_wide else self._values)
        }

    @property
    def _nodes(self) -> ExpandedNodes:
        assert isinstance(self.program.nodes, ExpandedNodes)
        return self.program.nodes

    @property
    def arena_bytes(self) -> int:
        """The planned memory, in bytes, for all tensors that are neither state nor batch: the
        larger of section and tail, and the folded values with their partial sums."""
        arena = max(self._section.arena_bytes, self._tail.arena_bytes)
        size = self.source.type_of
        if self._is_wide:
            return arena + self.micro_batches * sum(size(v).nbytes for v in self._values)
        # One result lies in the memory of a partial sum.
        sums = sum(size(v).nbytes for v in self._values) * (self.micro_batches.bit_length() - 1)
        return arena + sums + sum(size(f.value).nbytes for f in self._folds)

    @property
    def holds_folded(self) -> bool:
        """True if every step holds the folded values of all micro-batches: folds then have kernels
        of their own."""
        return self._is_wide

    @property
    def state_intact(self) -> bool:
        """Whether the state is as it was, after an exception: only the tail changes it."""
        return self._running.state_intact

    # -- the parts ---------------------------------------------------------------------------------

    def _body(self) -> Program:
        program, carried = self.source, dict(self.source.carried)

        def place(value: Value) -> Value | Input:
            if not value.is_input:
                return value
            spec = program.inputs[value.out]
            return given_input(slot_name(spec.name), spec.type) if spec.name in carried else spec

        values = {*self._values, *carried.values()}
        nodes = program.nodes[: program.section]
        batch = (spec for spec in program.inputs if spec.kind == "batch")
        return piece(
            program.contract, nodes, [(value_name(v), v) for v in values], place, always=batch
        )

    def _narrow_tail(self) -> Executor:
        """The tail without its folds, whose results it is given."""
        program = self.source
        kept = [
            i for i in range(program.section, len(program.nodes)) if program.nodes[i].op != FOLD
        ]
        inside = {number: at for at, number in enumerate(kept)}

        def place(value: Value) -> Value | Input:
            if value.is_input:
                return program.inputs[value.out]
            if value.node in inside:
                return Value(inside[value.node], value.out)
            return given_input(value_name(value), program.type_of(value))

        made = self._tail_program([program.nodes[i] for i in kept], program.outputs, place)
        numbers = [self._numbers.node(i, 0) for i in kept]
        return Executor(made, self.context, self._hook, numbers)

    def _wide_tail(self) -> Executor:
        """The tail of the expansion, with its folds: it is given every micro-batch's values."""
        program, first = self.program, self.micro_batches * self.source.section

        def place(value: Value) -> Value | Input:
            if value.is_input:
                return program.inputs[value.out]
            if value.node >= first:
                return Value(value.node - first, value.out)
            return given_input(value_name(value), program.type_of(value))

        made = self._tail_program(program.nodes[first:], program.outputs, place)
        return Executor(made, self.context, self._hook, range(first, len(program.nodes)))

    def _tail_program(
        self, nodes: Sequence[Node], outputs: Sequence[tuple[str, Value]], place: Place
    ) -> Program:
        state = (spec for spec in self.source.inputs if spec.kind == "state")
        return piece(self.source.contract, nodes, outputs, place, always=state)

    def _folds_are_hooked(self) -> bool:
        assert self._hook is not None
        first, spec = self.micro_batches * self.source.section, op_spec(FOLD)
        folds = [n for n in range(first, len(self._nodes)) if self._nodes[n].op == FOLD]
        return any(self._hook(n, self._nodes[n], spec) is not None for n in folds)

    def _folded(self) -> list[_Folded]:
        found = []
        for index in range(self.source.section, len(self.source.nodes)):
            node = self.source.nodes[index]
            if node.op == FOLD:
                (value,) = node.inputs
                assert value is not None
                attrs: Attrs = {"mean": False}
                if node.attrs["mean"]:
                    attrs = {"count": self.micro_batches, "mean": True}
                result = self._tail.staged.get(value_name(Value(index, 0)))
                if result is None:  # a fold that nothing reads
                    result = new_tensor(self._device, self.source.type_of(value))
                found.append(_Folded(value, self._numbers.node(index, 0), attrs, result))
        return found

    def _share_arena(self) -> None:
        """Section and tail are never in memory together: the tail is given copies."""
        if self._shares_arena:
            return
        size = max(self._section.arena_bytes, self._tail.arena_bytes)
        arena = self._device.allocate(size)
        self._shares_arena = True
        self._section.use_arena(arena)
        self._tail.use_arena(arena)

    # -- a step ------------------------------------------------------------------------------------

    def run_step(
        self,
        state: Mapping[str, Tensor],
        batch: Mapping[str, Tensor],
        scalars: Mapping[str, float] | None = None,
        rng: Sequence[int] | np.ndarray | None = None,
        tap: Tap | None = None,
        advance: bool = True,
        on_device: bool = False,
        before_write: Callable[[], None] | None = None,
        shows_folded: bool = True,
    ) -> StepResult:
        """Execute the step over `batch`, the whole step's; `state`'s tensors become the next state.

        As Executor.run_step of the expanded program. A tapped step holds the folded values of all
        micro-batches, and the other tensors of one. Without `shows_folded` it holds those of one
        micro-batch only, and a tap gets None for the operands of folds (shown.py); where folds
        have kernels of their own it holds all of them anyway, and shows them.
        """
        if tap is None and not advance:
            raise UsageError("Only a tapped step can leave the state as it is.", "Pass a tap.")
        scalars = scalars or {}
        self._running = self._section
        with self.context.entered():
            self._tail.check_state(state)
            for name in self.source.scalar_names:
                item(scalars, name, "scalars")
            parts = self._slices(batch)
            self._device.prepare(self.contract)
            self._section.state_intact = True
            self._share_arena()
            if tap is not None and before_write is not None:
                before_write()  # a tap may write into what is a view of the state
                before_write = None
            if tap is not None and not shows_folded and not self._is_wide:
                return self._run_shown(state, parts, scalars, rng, tap, advance, on_device)
            if tap is not None or self._is_wide:
                return self._run_wide(
                    state, parts, scalars, rng, tap, advance, on_device, before_write
                )
            try:
                for part in range(self.micro_batches):
                    results = self._turn(part, state, parts, scalars, rng, None)
                    for value, sums in self._sums.items():
                        self._guarded(value, sums.add, part, results[value_name(value)])
                for value, sums in self._sums.items():
                    self._guarded(value, self._finish, value, sums)
            except BaseException:
                for sums in self._sums.values():
                    sums.forget()
                raise
            given = {name: self._tail.staged[name] for name in self._tail.staged}
            given |= {value_name(v): self._kept[slot] for slot, v in self.source.carried}
            self._running = self._tail
            return self._tail.run_step(
                state, given, scalars, on_device=on_device, before_write=before_write
            )

    def _run_wide(
        self,
        state: Mapping[str, Tensor],
        parts: Mapping[str, Sequence[Any]],
        scalars: Mapping[str, float],
        rng: Sequence[int] | np.ndarray | None,
        tap: Tap | None,
        advance: bool,
        on_device: bool,
        before_write: Callable[[], None] | None,
    ) -> StepResult:
        """A step whose folds are executed as nodes, on the values of all micro-batches."""
        tail = self._tail if self._is_wide else self._wide_tail()
        if tap is not None:
            self._section.begin_tapped(state)
        try:
            for part in range(self.micro_batches):
                results = self._turn(part, state, parts, scalars, rng, tap)
                for value in self._values:
                    place = tail.staged.get(value_name(self._numbers.value(value, part)))
                    if place is not None:
                        self._device.copy(results[value_name(value)], place)
        finally:
            self._section.end_tapped()
        given = self._with_carried(tail.staged)
        self._running = tail
        seen = None if tap is None else _seen(tap, self._nodes)
        return tail.run_step(state, given, scalars, None, seen, advance, on_device, before_write)

    def _run_shown(
        self,
        state: Mapping[str, Tensor],
        parts: Mapping[str, Sequence[Any]],
        scalars: Mapping[str, float],
        rng: Sequence[int] | np.ndarray | None,
        tap: Tap,
        advance: bool,
        on_device: bool,
    ) -> StepResult:
        """A tapped step whose folds are summed as the micro-batches come."""
        assert isinstance(self.program, Expanded)
        shown = ShownTail(self.program, self.context, self._hook, self._run)
        tail = shown.executor
        self._section.begin_tapped(state)
        try:
            for part in range(self.micro_batches):
                results = self._turn(part, state, parts, scalars, rng, tap)
                for value in shown.summed(part):
                    result = results[value_name(value)]
                    self._guarded(value, shown.add, part, value, self._sums[value], result)
        except BaseException:
            for sums in self._sums.values():
                sums.forget()
            raise
        finally:
            self._section.end_tapped()
        given = self._with_carried(tail.staged)
        self._running = tail
        return tail.run_step(state, given, scalars, None, shown.tap(tap), advance, on_device)

    def _with_carried(self, staged: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the tail of the expansion is given: the last micro-batch has made the carried
        values."""
        last = self.micro_batches - 1
        carried = {
            value_name(self._numbers.value(value, last)): self._kept[slot]
            for slot, value in self.source.carried
        }
        return {**staged, **carried}

    def show_part(
        self,
        state: Mapping[str, Tensor],
        batch: Mapping[str, Tensor],
        scalars: Mapping[str, float],
        rng: Sequence[int] | np.ndarray | None,
        node: int,
        tap: Tap,
    ) -> None:
        """Execute only the micro-batch of the expanded program's `node`, a node of the section,
        and show its nodes up to that one to `tap`. The state stays as it is.

        `batch` is the whole step's. Where the node depends on a carried slot, the micro-batches
        before are executed too, untapped. Else nodes beside it that read carried slots are shown
        with other values than in the step, and one of them may refuse those: where this raises
        NodeError, only the whole step says whether it can be executed. Raises as `run_step`.
        """
        at, part = self._nodes.original(node)
        assert part is not None
        self._running = self._section
        with self.context.entered():
            self._tail.check_state(state)
            parts = self._slices(batch)
            self._device.prepare(self.contract)
            self._section.state_intact = True
            self._share_arena()
            if reads_carried(self.source, at):
                for before in range(part):
                    self._turn(before, state, parts, scalars, rng, None)
            else:
                for slot, kept in self._kept.items():
                    self._device.copy(state[slot], kept)
            self._section.begin_tapped(state)
            try:
                self._turn(part, state, parts, scalars, rng, tap)
            finally:
                self._section.end_tapped()

    def _turn(
        self,
        part: int,
        state: Mapping[str, Tensor],
        parts: Mapping[str, Sequence[Any]],
        scalars: Mapping[str, float],
        rng: Sequence[int] | np.ndarray | None,
        tap: Tap | None,
    ) -> dict[str, Tensor]:
        given: dict[str, Any] = {name: cut[part] for name, cut in parts.items()}
        for slot in self._kept:
            given[slot_name(slot)] = self._kept[slot] if part else state[slot]
        results = self._section.turn(part, state, given, scalars, rng, tap)
        for slot, value in self.source.carried:
            self._device.copy(results[value_name(value)], self._kept[slot])
        return results

    def _finish(self, value: Value, sums: PartialSums) -> None:
        """Write the results of all folds of `value`: the last of them may lie in the sum's own
        memory."""
        total = sums.total()
        for fold in self._folds:
            if fold.value == value:
                self._run(fold.attrs, [total], [fold.result])

    def _guarded(self, value: Value, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            number = next(f.number for f in self._folds if f.value == value)
            raise NodeFaultError(
                f"Node {number} ({FOLD}) could not be executed on this machine: "
                f"{str(error) or type(error).__name__}",
                "Free memory, then try again.",
                number,
                False,
            ) from error

    def _slices(self, batch: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        """Each batch tensor's consecutive parts, without copies."""
        return {
            name: self._cut(name, item(batch, name, "batch"), type_)
            for name, type_ in self.source.batch_types.items()
        }

    def _cut(self, name: str, given: Any, part: TensorType) -> Sequence[Any]:
        shape = (self.micro_batches * part.shape[0], *part.shape[1:]) if part.shape else ()
        problem = self._device.problem(given, part.dtype, shape)
        if part.shape and not problem and not isinstance(given, np.ndarray):
            strides = contiguous_strides(part.shape, DTYPES[part.dtype].itemsize)
            return [
                self._device.view(given, v * part.nbytes, part.dtype, part.shape, strides)
                for v in range(self.micro_batches)
            ]
        try:
            host = np.asarray(given)
        except TypeError as error:  # a tensor of some device
            raise UsageError(
                f"Program input {BATCH_PREFIX}{name} is not on {self._device.name}: {problem}.",
                "Give a host array, or a tensor of the context's device.",
            ) from error
        if not part.shape or host.shape != shape or host.dtype != DTYPES[part.dtype]:
            raise UsageError(
                f"Program input {BATCH_PREFIX}{name} must be {part} for each of "
                f"{self.micro_batches} micro-batches, got {host.dtype} {list(host.shape)}.",
                "Check the batch against the shapes the program was captured with.",
            )
        rows = part.shape[0]
        return [host[v * rows : (v + 1) * rows] for v in range(self.micro_batches)]


def _numbered(kernels: KernelHook, nodes: ExpandedNodes) -> KernelHook:
    """The hook, shown the expanded program's nodes."""
    return lambda number, _node, spec: kernels(number, nodes[number], spec)


def _seen(tap: Tap, nodes: ExpandedNodes) -> Tap:
    return lambda number, _node, inputs, outputs: tap(number, nodes[number], inputs, outputs)


def executor_of(
    program: Program,
    micro_batches: int,
    context: ExecutionContext = DEFAULT,
    kernels: KernelHook | None = None,
) -> Executor | SectionedExecutor:
    """An executor of a job's step: of a program with micro-batches, or of a text 1 and 1 of them.

    Raises as `expand` and Executor."""
    if program.section:
        return SectionedExecutor(program, micro_batches, context, kernels)
    return Executor(expand(program, micro_batches), context, kernels)
