"""A step of a program with micro-batches, as each of several workers executes it (docs/adr/0020).

Each worker executes its micro-batches, and sends the sums of each folded value to the value's
owner. The owner folds them and executes the nodes of its groups. Then it sends the new tensors that
micro-batches read. Every worker calls `execute` at once; all return the same loss, or raise the
same error with the state as it was.

A small model's step waits for its exchanges more than it computes, so there are few: losses and
sums go together, and whether a worker could do its part goes with what it sends anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import DTYPES, Attrs
from tallystick.program.build import value_name
from tallystick.program.executor import Executor
from tallystick.program.expand import numbering
from tallystick.program.folded_tail import share
from tallystick.program.ir import Value
from tallystick.program.layout import new_tensor
from tallystick.program.owners import Owners
from tallystick.program.repeat import SectionShare
from tallystick.program.runner import Runner, Showing, StepInputs, StepResult
from tallystick.program.tail import Phase, Tail
from tallystick.run.distributed.checks import ShareChecks
from tallystick.run.distributed.exchange import (
    Fold,
    Folding,
    Norms,
    Parts,
    Seen,
    Spreading,
    TensorSegment,
    fold_small,
    on_device,
    part_of,
)
from tallystick.run.distributed.messages import Consent, as_bytes
from tallystick.run.distributed.transport import Bytes


@dataclass(frozen=True)
class _SmallFold:
    """A fold of a value of rank 0, which every worker makes."""

    value: Value
    node: int
    attrs: Attrs


class DistributedStep(Runner):
    """Executes program `number` of `owners` for `micro_batches`, with the other workers.

    The state has at least the slots that this worker holds. Raises as SectionedExecutor, and
    WorkerError where another worker or the way to it fails.
    """

    def __init__(
        self,
        owners: Owners,
        number: int,
        micro_batches: int,
        consent: Consent,
        context: ExecutionContext,
        checks: ShareChecks | None = None,
    ) -> None:
        self.program, self.checks = owners.programs[number], checks
        self.transport = transport = consent.transport
        self.owners, self.consent, self.context = owners, consent, context
        self.micro_batches, self.rank = micro_batches, transport.rank
        self._device = context.device
        self._state_intact, self._shares_arena = True, False
        own = share(self.rank, transport.size, micro_batches)
        self.section = SectionShare(self.program, micro_batches, own, context)
        self.tail = Tail(owners, number, self.rank, numbering(self.program, micro_batches))
        self._phases = [
            Executor(phase.program, context, None, phase.numbers) for phase in self.tail.phases
        ]
        link = self.section.carrying.link
        self._link = Executor(link, context) if self.program.carried else None
        with context.entered():
            self._carried = {
                slot: new_tensor(self._device, self.program.state_types[slot])
                for slot, _ in self.program.carried
            }
        self._results: dict[Value, Tensor | None] = {}
        self._views: dict[str, tuple[Tensor, Tensor]] = {}
        self._norms = Norms(self.program, transport.size, self.rank, self._device)
        self._run = self._device.kernels(self._phases[0].contract)[FOLD].run
        self._small, large = self._folds(number)
        self._small_values = sorted({small.value for small in self._small})
        self._folding = Folding(transport, self._device, self._run, micro_batches, large)
        # These are in the phases' memory already, before the phases are executed.
        self._folded = {value_name(Value(i, 0)) for i in self.tail.folds()}
        self._folded -= {value_name(Value(small.node, 0)) for small in self._small}
        self._spreading = Spreading(consent, self._device, owners.types, self._news())

    @property
    def arena_bytes(self) -> int:
        return self._arena_bytes() + self.section.sum_bytes

    @property
    def state_intact(self) -> bool:
        return self._state_intact

    def _arena_bytes(self) -> int:
        """Of micro-batches and phases, which are never in memory together."""
        return max(self.section.arena_bytes, *(phase.arena_bytes for phase in self._phases))

    # -- preparation -------------------------------------------------------------------------------

    def _folds(self, number: int) -> tuple[list[_SmallFold], list[Fold]]:
        small, large = [], []
        squared = {x for phase in self.tail.phases for _, x in phase.squares}
        for index in self.tail.folds():
            node = self.program.nodes[index]
            (value,) = node.inputs
            assert value is not None
            attrs: Attrs = {"mean": False}
            if node.attrs["mean"]:
                attrs = {"count": self.micro_batches, "mean": True}
            if index in self.owners.shared[number]:
                small.append(_SmallFold(value, index, attrs))
                continue
            parts = self.owners.fold_parts(number, index)
            made = Value(index, 0)
            if self.rank in dict(parts):
                self._results[made] = self._place(value_name(made))
                if made in squared and self._results[made] is None:
                    self._results[made] = new_tensor(self._device, self.tail.type_of(made))
            place = self._results.get(made)
            large.append(Fold(value, node.out_types[0], parts, attrs, place))
        return small, large

    def _place(self, name: str) -> Tensor | None:
        """The memory that all phases read the value `name` from; None where none reads it."""
        found: Tensor | None = None
        for executor in self._phases:
            staged = executor.staged.get(name)
            if staged is None:
                continue
            if found is None:
                found = staged
            executor.stage_in(name, found)
        return found

    def _news(self) -> dict[str, Parts]:
        """The owners of each slot that all workers hold and a step changes."""
        index = self.program.input_index
        changed = {n for n, v in self.program.next_state.items() if v != Value(-1, index[n])}
        names = sorted((self.owners.held - self.owners.common) & changed)
        return {name: self.owners.parts(name) for name in names}

    def _in_phases(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state as this worker's phases have it: of a slot that is cut, its range."""
        found = dict(state)
        for name in self.owners.cut_slots & self.owners.held:
            whole, part = self._views.get(name, (None, None))
            if whole is not state[name]:
                elements = dict(self.owners.parts(name))[self.rank]
                segment = TensorSegment(
                    name, self.owners.types[name], elements.start, elements.stop
                )
                part = part_of(self._device, state[name], segment)
                self._views[name] = state[name], part
            found[name] = part
        return found

    def _share_arena(self) -> None:
        """Micro-batches and phases share an arena: folded values have memory of their own. The
        carrying has its own arena, as it comes before the sums are read."""
        if self._shares_arena:
            return
        arena = self._device.allocate(self._arena_bytes())
        self.section.use_arena(arena)
        for executor in self._phases:
            executor.use_arena(arena)
        self._shares_arena = True

    # -- a step ------------------------------------------------------------------------------------

    def execute(
        self,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        showing: Showing | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        """Execute the step; `inputs` has the records of this worker's micro-batches. `before_write`
        is called at the start: the workers hash the state between two steps.

        Raises UsageError for a step that is to be shown: no worker has all nodes.
        """
        if showing is not None:
            raise UsageError(
                "Several workers cannot show the nodes of a step.", "Use one worker (--workers 1)."
            )
        if before_write is not None:
            before_write()
        consent = self.consent
        with self.context.entered():
            self._state_intact = True
            self._share_arena()
            consent.attempt(lambda: self.section.execute(state, inputs))
            if self.checks is not None:
                consent.agree()
                self.checks.compare(self.section, state, inputs, consent)
            small, found = self._exchange_sums()
            self._folding.execute(self.section.sums, found, consent, self._seen())
            given: dict[str, Any] = {}
            consent.attempt(lambda: self._fold_small(state, small, given))
            self.section.forget()
            result: list[StepResult] = []
            slots = self._in_phases(state)
            for phase, executor in zip(self.tail.phases, self._phases, strict=True):
                if executor is self._phases[-1]:
                    # Every checksum of every message is right, at every worker, before any update.
                    consent.agree()
                    self._state_intact = False
                result.clear()
                consent.attempt(
                    partial(self._execute, executor, slots, given, inputs.scalars, result)
                )
                self._after(phase, result, given, slots)
            self._spreading.execute(state)
            self._end_spread()
        (last,) = result
        return StepResult(last.loss, last.outputs, state)

    def _seen(self) -> Seen | None:
        """What is told of every sum that arrives, where shares are signed."""
        checks = self.checks
        if checks is None:
            return None

        def seen(source: int, place: int, value: Value, data: Bytes) -> None:
            checks.seen(source, place, checks.sum_slot(value), data, self.consent.note)

        return seen

    def _execute(
        self,
        executor: Executor,
        state: Mapping[str, Tensor],
        given: Mapping[str, Any],
        scalars: Mapping[str, float],
        result: list[StepResult],
    ) -> None:
        folded = {n: t for n, t in executor.staged.items() if n in self._folded}
        made = StepInputs({**given, **folded}, scalars)
        result.append(executor.execute(state, made))

    # -- values of rank 0, and statistics ----------------------------------------------------------

    def _exchange_sums(self) -> tuple[list[Bytes], dict[int, Bytes]]:
        """Send losses and statistics to all, and the first of the sums to their owners. Returns
        every worker's losses and statistics, and the sums that this worker got, by sender. Raises
        what a worker could not do."""
        folding, section, rank = self._folding, self.section, self.rank
        sizes = [self._small_bytes(r) for r in range(self.transport.size)]
        own: list[Bytes] = []

        def pack() -> None:
            host = self._device.host
            own.extend(as_bytes(host(t)) for v in self._small_values for t in section.sums[v])
            own.extend(
                as_bytes(found[v]) for found in section.statistics for v in section.carrying.sent
            )

        self.consent.attempt(pack)
        found = self.consent.exchange(
            "losses and partial sums",
            lambda other: [*folding.parts(section.sums, 0, other), *own],
            [sizes[rank] + folding.nbytes(0, rank, r) for r in range(len(sizes))],
            [sizes[r] + folding.nbytes(0, r, rank) for r in range(len(sizes))],
        )
        found[rank] = _joined(own)
        ends = [found[r].nbytes - size for r, size in enumerate(sizes)]
        small = [np.array(found[r][end:]) for r, end in enumerate(ends)]
        return small, {r: body[: ends[r]] for r, body in found.items() if r != rank}

    def _small_bytes(self, rank: int) -> int:
        """The bytes of worker `rank`'s losses and statistics."""
        parts = len(share(rank, self.transport.size, self.micro_batches))
        width = sum(self.program.type_of(v).nbytes for v in self.section.carrying.sent)
        return 4 * len(self._small_values) * len(self._folding.trees[rank]) + width * parts

    def _fold_small(
        self, state: Mapping[str, Tensor], bodies: Sequence[Bytes], given: dict[str, Any]
    ) -> None:
        """Fold the values of rank 0, and carry the carried slots: inputs of the phases."""
        trees = self._folding.trees
        at = [0] * len(bodies)

        def take(rank: int, nbytes: int) -> Bytes:
            at[rank] += nbytes
            # A copy: what is taken may begin at any address.
            return np.array(bodies[rank][at[rank] - nbytes : at[rank]])

        sums = {
            v: [take(r, 4 * len(tree)).view(np.float32) for r, tree in enumerate(trees)]
            for v in self._small_values
        }
        seen = self._seen()
        if seen is not None:
            for v, bodies_of in sums.items():
                for source, body in enumerate(bodies_of):
                    for place in range(len(trees[source])):
                        seen(source, place, v, as_bytes(body[place : place + 1]))
        for small in self._small:
            total = fold_small(trees, sums[small.value], self._device, self._run, small.attrs)
            given[value_name(Value(small.node, 0))] = total
        if self._link is not None:
            self._carry(state, take)
            for slot, value in self.program.carried:
                given[value_name(value)] = self._carried[slot]

    def _carry(self, state: Mapping[str, Tensor], take: Callable[[int, int], Bytes]) -> None:
        assert self._link is not None
        size = self.transport.size
        parts = [share(r, size, self.micro_batches) for r in range(size)]
        for slot, tensor in self._carried.items():
            self._device.copy(state[slot], tensor)
        slots = {**state, **self._carried}
        for rank, own in enumerate(parts):
            for part in own:
                batch = {}
                for value in self.section.carrying.sent:
                    type_ = self.program.type_of(value)
                    body = take(rank, type_.nbytes)
                    if self.checks is not None:
                        self.checks.seen_statistic(rank, part, value, body, self.consent.note)
                    data = body.view(DTYPES[type_.dtype])
                    batch[value_name(value)] = data.reshape(type_.shape)
                self._link.execute(slots, StepInputs(batch))

    def _after(
        self,
        phase: Phase,
        result: Sequence[StepResult],
        given: dict[str, Any],
        slots: Mapping[str, Tensor],
    ) -> None:
        """Exchange what other owners need of a phase, and keep what this worker's next one does."""
        outputs = result[0].outputs if result else {}
        for value in phase.kept:
            if outputs:
                given[value_name(value)] = outputs[value_name(value)]
        sizes = self._norms.sizes(phase)
        if not any(sizes):
            return
        own: list[Bytes] = []

        def operand(x: Value) -> Tensor:
            if x.is_input:
                return slots[self.program.inputs[x.out].name]
            made = self._results.get(x)
            if made is not None:
                return made
            return on_device(self._device, as_bytes(given[value_name(x)]), "f32")

        self.consent.attempt(lambda: own.extend(self._norms.own(phase, outputs, operand)))
        found = self.consent.spread("norms", lambda: own, sizes)
        found[self.rank] = _joined(own)
        bodies = [found[r] for r in range(len(sizes))]
        self.consent.attempt(lambda: self._norms.take(phase, bodies, given))

    def _end_spread(self) -> None:
        """A worker that has not got the others' new values says so at the next exchange, before
        anything is updated again. Their owners have them, and commit to them, as they should; and
        worker 0, which writes them down, goes no further."""
        fault = self.consent.fault
        if fault is None:
            self._state_intact = True
            return
        self.consent.last()
        if self.rank == 0:
            raise fault


def _joined(parts: Sequence[Bytes]) -> Bytes:
    joined: Bytes = np.concatenate([np.empty(0, np.uint8), *parts])
    return joined
