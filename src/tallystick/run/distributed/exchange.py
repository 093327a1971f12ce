"""What workers exchange of a step's values: sums, norms and new values, in bundles of bounded size.

A *bundle* has parts of tensors, so no exchange needs memory for a whole one. A worker sends a
bundle to every other worker in a round, so all links carry bytes at once. A round is under way
while the values of the one before are used. So a worker has at most two bundles from each other
worker.

- The *fold* makes values whose parts several workers have, in the split's order (NUMERICS 10.12).
  Every worker sends its sums of subtrees to the value's owner. The owner folds them with the kernel
  that one worker would use. A value that is cut has an owner of each range: the fold is
  elementwise. The first bundle goes with the step's losses (step.py).
- Between two phases of a tail (program/tail.py) workers exchange values of rank 0 of the groups
  that one worker owns, and the values of the blocks of sums of squares of what is cut.
- After the update the owners spread the new values of the slots that all workers hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallystick.commit.streamed import subtrees
from tallystick.devices.device import Device, Run, Tensor
from tallystick.numerics.types import DTYPES, Attrs, TensorType
from tallystick.program.build import value_name
from tallystick.program.cutting import BlockSums, block_count, ranges
from tallystick.program.folded_tail import merge, share
from tallystick.program.ir import Program, Value
from tallystick.program.layout import new_tensor
from tallystick.program.tail import Phase
from tallystick.run.distributed.messages import Consent, Round, as_bytes
from tallystick.run.distributed.transport import Bytes, Transport

# Bytes of one tensor, or of many, in a bundle. A receiver has two for each other worker. The first
# goes with messages that are sent anyway, so a smaller bundle costs small models an exchange.
BUNDLE_BYTES = 4 << 20


class TensorSegment(NamedTuple):
    """Elements [start, stop) of the tensor called `key`, in row-major order."""

    key: Any
    type: TensorType
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return (self.stop - self.start) * DTYPES[self.type.dtype].itemsize


def bundles(
    tensors: Iterable[tuple[Any, TensorType, range]], most: int = BUNDLE_BYTES
) -> list[list[TensorSegment]]:
    """Elements of tensors, (key, type of the tensor, elements), in order, in bundles of at most
    `most` bytes each."""
    found: list[list[TensorSegment]] = []
    room = 0
    for key, type_, elements in tensors:
        size, start = DTYPES[type_.dtype].itemsize, elements.start
        while start < elements.stop:
            if room < size:
                found.append([])
                room = most
            stop = min(elements.stop, start + room // size)
            found[-1].append(TensorSegment(key, type_, start, stop))
            room -= found[-1][-1].nbytes
            start = stop
    return found


def part_of(device: Device, tensor: Tensor, segment: TensorSegment, first: int = 0) -> Tensor:
    """The segment of a C-contiguous tensor, as a view of rank 1. `tensor` has the elements from
    number `first` on."""
    dtype = segment.type.dtype
    size = DTYPES[dtype].itemsize
    shape = (segment.stop - segment.start,)
    return device.view(tensor, (segment.start - first) * size, dtype, shape, (size,))


def on_device(device: Device, data: np.ndarray, dtype: str) -> Tensor:
    """Bytes, u8[n], as a tensor of rank 1 on the device: of their own memory where they lie
    there."""
    host = data.view(DTYPES[dtype])
    if not device.problem(host, dtype, host.shape):
        return host
    made = new_tensor(device, TensorType(dtype, host.shape))
    device.write(host, made)
    return made


Trees = Sequence[tuple[int, int]]  # (level, first micro-batch) of the sums that a worker has
Seen = Callable[[int, int, Value, Bytes], None]


@dataclass(frozen=True)
class Fold:
    """A fold of the text with its attributes for V micro-batches, and the memory for the part of
    its result that this worker owns, which may be all or nothing. `parts` are (worker, elements) of
    all owners."""

    value: Value
    type: TensorType
    parts: Sequence[tuple[int, range]]
    attrs: Attrs
    result: Tensor | None


@dataclass
class Folding:
    """The folds of one program, all of values of rank 1 or more, and who sends what to whom."""

    transport: Transport
    device: Device
    run: Run
    micro_batches: int
    folds: Sequence[Fold]
    _rounds: list[list[list[TensorSegment]]] = field(init=False)  # by owner
    _own: dict[tuple[int, str], tuple[int, Tensor]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        size = self.transport.size
        self.trees: list[Trees] = [
            subtrees(share(rank, size, self.micro_batches)) for rank in range(size)
        ]
        self._rounds = []
        for rank in range(size):
            own = {
                fold.value: (fold.value, fold.type, elements)
                for fold in self.folds
                for owner, elements in fold.parts
                if owner == rank
            }
            self._rounds.append(bundles(own.values()))

    def nbytes(self, number: int, source: int, owner: int) -> int:
        """The bytes that worker `source` sends to `owner` in round `number`."""
        listed = self._rounds[owner]
        if number >= len(listed) or source == owner:
            return 0
        return sum(s.nbytes for s in listed[number]) * len(self.trees[source])

    def parts(self, sums: Mapping[Value, Sequence[Tensor]], number: int, owner: int) -> list[Bytes]:
        """What this worker sends to `owner` in round `number`: the sums of each segment, subtree by
        subtree. `sums` are this worker's."""
        if number >= len(self._rounds[owner]):
            return []
        return [
            as_bytes(self.device.host(part_of(self.device, tensor, segment)))
            for segment in self._rounds[owner][number]
            for tensor in sums[segment.key]
        ]

    def execute(
        self,
        sums: Mapping[Value, Sequence[Tensor]],
        first: Mapping[int, Bytes],
        consent: Consent,
        seen: Seen | None = None,
    ) -> None:
        """Fold the values of all workers; `sums` are this worker's, which stay as they are, and
        `first` the bytes of round 0 by sender. `seen` is told of the bytes that arrive: their
        worker, the place of their subtree among its, their value; those of one value come in
        order. Faults go to `consent`."""
        own, found = self._rounds[self.transport.rank], first
        rounds = max(map(len, self._rounds), default=0)
        for number in range(rounds):
            following = None
            if number + 1 < rounds:
                following = self._begin(sums, number + 1, consent)
            if number < len(own):
                consent.attempt(partial(self._fold, sums, found, own[number], seen))
            if following is not None:
                found = following.finish(consent.note)

    def _begin(
        self, sums: Mapping[Value, Sequence[Tensor]], number: int, consent: Consent
    ) -> Round:
        """Send and expect what round `number` has."""
        exchange = Round(self.transport, "partial sums", rooms=consent.rooms, number=number)
        rank = self.transport.rank
        others = [other for other in range(self.transport.size) if other != rank]
        for other in others:
            if self.nbytes(number, other, rank):
                exchange.expect(self.nbytes(number, other, rank), other)
        for other in others:
            if self.nbytes(number, rank, other):
                exchange.send(self.parts(sums, number, other), [other])
        return exchange

    def _fold(
        self,
        sums: Mapping[Value, Sequence[Tensor]],
        found: Mapping[int, Bytes],
        segments: Sequence[TensorSegment],
        seen: Seen | None,
    ) -> None:
        at = dict.fromkeys(found, 0)
        for segment in segments:
            given: list[tuple[tuple[int, int], Tensor]] = []
            for source, trees in enumerate(self.trees):
                for number, tree in enumerate(trees):
                    if source == self.transport.rank:
                        given.append(
                            (tree, self._copied(sums[segment.key][number], segment, number))
                        )
                        continue
                    data = found[source][at[source] : at[source] + segment.nbytes]
                    at[source] += segment.nbytes
                    if seen is not None:
                        seen(source, number, segment.key, data)
                    given.append((tree, on_device(self.device, data, segment.type.dtype)))
            total = merge(given, self._add)
            for fold in self.folds:
                if fold.value == segment.key and fold.result is not None:
                    first = dict(fold.parts)[self.transport.rank].start
                    place = part_of(self.device, fold.result, segment, first)
                    self.run(fold.attrs, [total], [place])

    def _copied(self, tensor: Tensor, segment: TensorSegment, number: int) -> Tensor:
        """A segment of this worker's own sum number `number`, which another folded value may lie in
        too, in memory that is used again."""
        dtype, size = segment.type.dtype, segment.stop - segment.start
        room, made = self._own.get((number, dtype), (0, None))
        if room < size:
            room, made = size, new_tensor(self.device, TensorType(dtype, (size,)))
            self._own[number, dtype] = room, made
        made = part_of(self.device, made, TensorSegment(None, segment.type, 0, size))
        self.device.copy(part_of(self.device, tensor, segment), made)
        return made

    def _add(self, left: Tensor, right: Tensor) -> None:
        self.run({"mean": False}, [left, right], [left])


def fold_small(
    trees: Sequence[Trees],
    sums: Sequence[np.ndarray],
    device: Device,
    run: Run,
    attrs: Attrs,
) -> np.ndarray:
    """The fold of a value of rank 0, by the kernel of every worker. `sums` has every worker's,
    f32[number of its trees]."""
    given = []
    for own, values in zip(trees, sums, strict=True):
        for tree, value in zip(own, values, strict=True):
            given.append((tree, on_device(device, as_bytes(value), "f32")))

    def add(left: Tensor, right: Tensor) -> None:
        run({"mean": False}, [left, right], [left])

    total = merge(given, add)
    result = new_tensor(device, TensorType("f32", (1,)))
    run(attrs, [total], [result])
    return np.array(device.host(result)).reshape(())


@dataclass
class Norms:
    """The exchanges of `program` among `workers` workers. Called inside of an execution context."""

    program: Program
    workers: int
    rank: int
    device: Device

    def __post_init__(self) -> None:
        self._blocks = BlockSums(self.device)

    def sizes(self, phase: Phase) -> list[int]:
        """The bytes that each worker sends to every other after a phase."""
        found = [0] * self.workers
        for value, owner in phase.exchanged:
            found[owner] += self.program.type_of(value).nbytes
        for _, operand in phase.squares:
            for rank, count in enumerate(self._counts(operand)):
                found[rank] += 4 * count
        return found

    def _counts(self, operand: Value) -> list[int]:
        """The blocks of each worker's range of a value."""
        own = ranges(self.program.type_of(operand).numel, self.workers)
        return [block_count(len(elements)) for elements in own]

    def own(
        self, phase: Phase, outputs: Mapping[str, Any], operand: Callable[[Value], Tensor]
    ) -> list[Bytes]:
        """What this worker sends: `outputs` are the phase's, `operand` its range of a value."""
        whole = [as_bytes(outputs[value_name(v)]) for v, r in phase.exchanged if r == self.rank]
        blocks = [as_bytes(self._blocks.values(operand(x))) for _, x in phase.squares]
        return whole + blocks

    def take(self, phase: Phase, bodies: Sequence[Bytes], given: dict[str, Any]) -> None:
        """Add the values that all workers need to `given`, from what each worker sent."""
        at = [0] * self.workers

        def next_of(rank: int, nbytes: int) -> Bytes:
            at[rank] += nbytes
            return np.array(bodies[rank][at[rank] - nbytes : at[rank]])

        for value, owner in phase.exchanged:
            type_ = self.program.type_of(value)
            data = next_of(owner, type_.nbytes).view(DTYPES[type_.dtype])
            given[value_name(value)] = data.reshape(type_.shape)
        for value, operand in phase.squares:
            counts = enumerate(self._counts(operand))
            blocks = [next_of(rank, 4 * count).view(np.float32) for rank, count in counts]
            given[value_name(value)] = self._blocks.total(np.concatenate(blocks))


Parts = Sequence[tuple[int, range]]  # the owner of each range of a slot: (worker, elements)


@dataclass
class Spreading:
    """Sends the slots of `owners`, and receives them, each or each range from its owner."""

    consent: Consent
    device: Device
    types: Mapping[str, TensorType]
    owners: Mapping[str, Parts]
    _rounds: list[list[list[TensorSegment]]] = field(init=False)  # by owner

    def __post_init__(self) -> None:
        self.rank, size = self.consent.transport.rank, self.consent.transport.size
        self._rounds = [
            bundles(
                (name, self.types[name], elements)
                for name, parts in self.owners.items()
                for owner, elements in parts
                if owner == rank
            )
            for rank in range(size)
        ]

    def execute(self, state: Mapping[str, Tensor]) -> None:
        """Every worker's `state` has its own new values before, and all afterwards. Raises what a
        worker could not do before; faults of the exchange itself are noted."""
        consent, size = self.consent, len(self._rounds)
        lengths = [self._nbytes(0, owner) for owner in range(size)]
        found = consent.spread("new tensors", lambda: self._parts(state, 0), lengths)
        rounds = max(map(len, self._rounds))
        for number in range(rounds):
            following = self._begin(state, number + 1) if number + 1 < rounds else None
            consent.attempt(partial(self.write_parts, state, number, found))
            if following is not None:
                found = following.finish(consent.note)

    def _nbytes(self, number: int, owner: int) -> int:
        listed = self._rounds[owner]
        return sum(s.nbytes for s in listed[number]) if number < len(listed) else 0

    def _begin(self, state: Mapping[str, Tensor], number: int) -> Round:
        """Send and expect what round `number` has."""
        consent = self.consent
        exchange = Round(consent.transport, "new tensors", rooms=consent.rooms, number=number)
        others = [r for r in range(len(self._rounds)) if r != self.rank]
        for owner in others:
            if self._nbytes(number, owner):
                exchange.expect(self._nbytes(number, owner), owner)
        if self._nbytes(number, self.rank):
            exchange.send(self._parts(state, number), others)
        return exchange

    def _parts(self, state: Mapping[str, Tensor], number: int) -> list[Bytes]:
        """This worker's new values of round `number`."""
        if number >= len(self._rounds[self.rank]):
            return []
        host = self.device.host
        parts = [part_of(self.device, state[s.key], s) for s in self._rounds[self.rank][number]]
        return [as_bytes(host(part)) for part in parts]

    def write_parts(
        self, state: Mapping[str, Tensor], number: int, found: Mapping[int, Bytes]
    ) -> None:
        for owner, body in found.items():
            at = 0
            for segment in self._rounds[owner][number] if body.nbytes else ():
                data = body[at : at + segment.nbytes].view(DTYPES[segment.type.dtype])
                at += segment.nbytes
                self.device.write(data, part_of(self.device, state[segment.key], segment))
