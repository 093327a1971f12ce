"""The new values of slots that all workers hold, from their owners to all others, after the update.

As in folding.py, tensors go in bundles, and one is under way while the one before is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tallystick.devices.device import Device, Tensor
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.run.distributed.bundles import TensorSegment, bundles, part_of
from tallystick.run.distributed.messages import Consent, Round, as_bytes
from tallystick.run.distributed.transport import Bytes

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
            consent.attempt(partial(self._write, state, number, found))
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

    def _write(self, state: Mapping[str, Tensor], number: int, found: Mapping[int, Bytes]) -> None:
        for owner, body in found.items():
            at = 0
            for segment in self._rounds[owner][number] if body.nbytes else ():
                data = body[at : at + segment.nbytes].view(DTYPES[segment.type.dtype])
                at += segment.nbytes
                self.device.write(data, part_of(self.device, state[segment.key], segment))
