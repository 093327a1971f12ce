"""The fold of values whose parts several workers have: each value at its owner, in the split's
order (NUMERICS 10.12). A value that is cut has an owner of each range: the fold is elementwise.

Every worker sends its sums of subtrees to the owner, bundle by bundle; the owner folds them with
the kernel that one worker would use. In a round every owner gets one bundle from every worker, so
all links carry bytes at once. A round is under way while the owners fold the one before, so a
worker has at most two bundles from each other worker. The first goes with the step's losses
(step.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tallystick.commit.split import subtrees
from tallystick.devices.device import Device, Tensor
from tallystick.devices.kernel import Run
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.ir import Value
from tallystick.program.layout import new_tensor
from tallystick.program.partial_sums import merge, share
from tallystick.run.distributed.bundles import TensorSegment, bundles, on_device, part_of
from tallystick.run.distributed.messages import Consent, Round, as_bytes
from tallystick.run.distributed.transport import Bytes, Transport

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
