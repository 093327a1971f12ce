"""Executes a program with micro-batches one after the other (PROGRAM 6).

In memory are one micro-batch's tensors and the partial sums of the folded values, at most one for
each power of two up to V. The bits are those of the expanded program, node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.build import slot_name, value_name
from tallystick.program.executor import Executor
from tallystick.program.expand import Expanded, ExpandedNodes, expand, reads_carried
from tallystick.program.folded_tail import FoldedTail, folded_values
from tallystick.program.ir import BATCH_PREFIX, Program, op_spec
from tallystick.program.layout import contiguous_strides, new_tensor
from tallystick.program.repeat import RepeatedSection, section_of
from tallystick.program.runner import (
    KernelHook,
    NodeError,
    Runner,
    Showing,
    StepInputs,
    StepResult,
    Tap,
)
from tallystick.program.state import item


class SectionedExecutor(Runner):
    """Runs `program`, a text 2, for a number of micro-batches: an Executor of the expansion, in the
    memory of one micro-batch.

    `program` is the expanded program, whose numbers hooks, taps and errors have. A step's inputs
    are the whole step's. Raises as Executor, and as `expand`.
    """

    def __init__(
        self,
        program: Program,
        micro_batches: int,
        context: ExecutionContext = DEFAULT,
        kernels: KernelHook | None = None,
    ) -> None:
        self.source, self.micro_batches, self.context = program, micro_batches, context
        made = expand(program, micro_batches)
        assert isinstance(made, Expanded)
        self.program: Expanded = made
        self._device = context.device
        nodes = made.expanded
        self._hook = None if kernels is None else _numbered(kernels, nodes)
        self._values = folded_values(program)
        carried = [value for _, value in program.carried]
        body = section_of(program, program.nodes[: program.section], [*self._values, *carried])
        self._section = RepeatedSection(body, nodes, context, kernels)
        self.contract = self._section.contract
        self._is_wide = self._hook is not None and self._folds_are_hooked()
        self._tail = self._whole_tail() if self._is_wide else self._summed_tail()
        self._running: Executor = self._section
        with context.entered():
            self._kept = {
                slot: new_tensor(self._device, program.state_types[slot])
                for slot, _ in program.carried
            }
        self._shares_arena = False

    def _summed_tail(self) -> FoldedTail:
        return FoldedTail.summed(self.program, self.context, self._hook)

    def _whole_tail(self) -> FoldedTail:
        return FoldedTail.whole(self.program, self.context, self._hook)

    @property
    def arena_bytes(self) -> int:
        """The planned memory, in bytes, for all tensors that are neither state nor batch: the
        larger of section and tail, and the folded values with their partial sums."""
        arena = max(self._section.arena_bytes, self._tail.executor.arena_bytes)
        size = self.source.type_of
        if self._is_wide:
            return arena + self.micro_batches * sum(size(v).nbytes for v in self._values)
        # One result lies in the memory of a partial sum.
        sums = sum(size(v).nbytes for v in self._values) * (self.micro_batches.bit_length() - 1)
        return arena + sums + sum(size(f.value).nbytes for f in self._tail.folds.values())

    @property
    def holds_folded(self) -> bool:
        """True if folds have kernels of their own: every step then holds the folded values of all
        micro-batches."""
        return self._is_wide

    @property
    def state_intact(self) -> bool:
        """Only the tail changes the state."""
        return self._running.state_intact

    def _folds_are_hooked(self) -> bool:
        assert self._hook is not None
        hook, nodes, spec = self._hook, self.program.expanded, op_spec(FOLD)
        tail = range(self.micro_batches * self.source.section, len(nodes))
        folds = [n for n in tail if nodes[n].op == FOLD]
        return any(hook(n, nodes[n], spec) is not None for n in folds)

    def _share_arena(self) -> None:
        """Section and tail are never in memory together: the tail is given copies."""
        if self._shares_arena:
            return
        tail = self._tail.executor
        arena = self._device.allocate(max(self._section.arena_bytes, tail.arena_bytes))
        self._shares_arena = True
        self._section.use_arena(arena)
        tail.use_arena(arena)

    # -- a step ------------------------------------------------------------------------------------

    def execute(
        self,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        showing: Showing | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        """As Runner.execute of the expanded program. A shown step holds the folded values of all
        micro-batches, and the other tensors of one; without `folded` those of one micro-batch
        only."""
        with self.context.entered():
            parts = self._prepared(state, inputs)
            tap, tail = None, self._tail
            if showing is not None:
                tap, tail = showing.tap, self._shown_tail(showing)
                if before_write is not None:
                    before_write()  # a tap may write into what is a view of the state
                    before_write = None
                self._section.begin_tapped(state)
            try:
                for part, own in enumerate(parts):
                    tail.take(part, self._turn(part, state, own, tap))
            except BaseException:
                tail.forget()
                raise
            finally:
                self._section.end_tapped()
            self._running = tail.executor
            shown = None
            if showing is not None:
                shown = Showing(tail.tap(showing.tap), showing.advance)
            given = StepInputs(tail.given(self._kept), inputs.scalars)
            return tail.executor.execute(state, given, shown, before_write)

    def _shown_tail(self, showing: Showing) -> FoldedTail:
        if self._is_wide:
            return self._tail
        if showing.folded:
            return self._whole_tail()
        return FoldedTail.shown(self.program, self.context, self._hook, self._tail.sums)

    def show_node(
        self, state: Mapping[str, Tensor], inputs: StepInputs, node: int, tap: Tap
    ) -> None:
        """Of a node of the section only its micro-batch is executed, and shown up to that node.

        Where the node depends on a carried slot, the micro-batches before are executed too, not
        shown. Else nodes beside it that read carried slots are shown with other values than in the
        step, and one of them may refuse those: then the whole step is shown.
        """
        at, part = self.program.expanded.original(node)
        if part is None:
            super().show_node(state, inputs, node, tap)
            return
        try:
            self._show_part(state, inputs, at, part, tap)
        except NodeError:
            super().show_node(state, inputs, node, tap)

    def _show_part(
        self, state: Mapping[str, Tensor], inputs: StepInputs, at: int, part: int, tap: Tap
    ) -> None:
        with self.context.entered():
            parts = self._prepared(state, inputs)
            if reads_carried(self.source, at):
                for before in range(part):
                    self._turn(before, state, parts[before], None)
            else:
                for slot, kept in self._kept.items():
                    self._device.copy(state[slot], kept)
            self._section.begin_tapped(state)
            try:
                self._turn(part, state, parts[part], tap)
            finally:
                self._section.end_tapped()

    def _prepared(self, state: Mapping[str, Tensor], inputs: StepInputs) -> list[StepInputs]:
        """Check a step's inputs, and prepare the device: each micro-batch's inputs."""
        self._running = self._section
        self._tail.executor.check_state(state)
        for name in self.source.scalar_names:
            item(inputs.scalars, name, "scalars")
        cuts = {
            name: self._cut(name, item(inputs.batch, name, "batch"), type_)
            for name, type_ in self.source.batch_types.items()
        }
        self._device.prepare(self.contract)
        self._share_arena()
        return [
            replace(inputs, batch={name: cut[part] for name, cut in cuts.items()})
            for part in range(self.micro_batches)
        ]

    def _turn(
        self, part: int, state: Mapping[str, Tensor], inputs: StepInputs, tap: Tap | None
    ) -> dict[str, Tensor]:
        carried = {
            slot_name(slot): kept if part else state[slot] for slot, kept in self._kept.items()
        }
        own = replace(inputs, batch={**inputs.batch, **carried})
        results = self._section.turn(part, state, own, tap)
        for slot, value in self.source.carried:
            self._device.copy(results[value_name(value)], self._kept[slot])
        return results

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


def executor_of(
    program: Program,
    micro_batches: int,
    context: ExecutionContext = DEFAULT,
    kernels: KernelHook | None = None,
) -> Runner:
    """The runner of a job's step: of a program with micro-batches, or of a text 1 and 1 of them.

    Raises as `expand` and Executor."""
    if program.section:
        return SectionedExecutor(program, micro_batches, context, kernels)
    return Executor(expand(program, micro_batches), context, kernels)
