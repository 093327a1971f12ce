"""Slots between worker 0, which has the files, and the workers that hold them or ranges of them.

Everything moves in pieces of a bundle's size (exchange.py): no worker needs memory for a whole slot
of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.streamed import TensorStream, joined_root, range_roots, subtrees
from tallystick.commit.tensor import Array, TensorHeader, check_canonical
from tallystick.devices.device import Device, Tensor
from tallystick.numerics.types import DTYPES
from tallystick.program.cutting import UNIT
from tallystick.program.layout import new_tensor
from tallystick.program.owners import Owners
from tallystick.run.distributed.exchange import TensorSegment, bundles, part_of
from tallystick.run.distributed.messages import Consent, Round, as_bytes
from tallystick.run.distributed.transport import Transport

# Elements [start, stop) of a slot, row-major, from where a run begins or goes on.
Read = Callable[[str, int, int], Array]


@dataclass
class SlotMoves:
    """Moves slots between the workers of `transport`, each of which calls a method at once."""

    owners: Owners
    transport: Transport
    device: Device

    def __post_init__(self) -> None:
        self._held = self.owners.held_by(self.rank)

    @property
    def rank(self) -> int:
        return self.transport.rank

    def segments(self, name: str) -> Iterator[tuple[TensorSegment, int]]:
        """The pieces of a slot in order, each with its owner."""
        type_ = self.owners.types[name]
        for owner, elements in self.owners.parts(name):
            for (segment,) in bundles([(name, type_, elements)]):
                yield segment, owner

    def first(self, name: str) -> int:
        """The number of the first element that this worker has of a slot that it holds."""
        if name in self.owners.held or name not in self.owners.cut_slots:
            return 0
        return dict(self.owners.parts(name))[self.rank].start

    def place(self, slots: Mapping[str, Tensor], segment: TensorSegment) -> Tensor:
        """Where a piece of a slot lies at this worker, which holds it."""
        name = segment.key
        return part_of(self.device, slots[name], segment, self.first(name))

    def load(
        self, name: str, read: Read | None, slots: dict[str, Tensor], consent: Consent
    ) -> bytes:
        """Distribute a slot, which worker 0 reads; its digest there, b"" elsewhere. What cannot be
        read goes to `consent`, for all."""
        if name in self._held:
            slots[name] = new_tensor(self.device, self._held[name])
        whole = self.owners.types[name]
        stream = TensorStream(TensorHeader(whole.dtype, whole.shape))
        for segment, owner in self.segments(name):
            is_held = name in self.owners.held
            to = [r for r in range(self.transport.size) if r and (is_held or r == owner)]
            exchange = Round(self.transport, f"bytes of slot {name}")
            if self.rank == 0:
                data = self._read(segment, read, stream, consent)
                if is_held or owner == 0:
                    self.device.write(data, self.place(slots, segment))
                exchange.send([as_bytes(data)], to)
            elif self.rank in to:
                exchange.expect(segment.nbytes, 0)
            for body in exchange.finish(consent.note).values():
                self.device.write(body.view(DTYPES[whole.dtype]), self.place(slots, segment))
        return b"" if stream.missing else stream.digest()

    def _read(
        self, segment: TensorSegment, read: Read | None, stream: TensorStream, consent: Consent
    ) -> Array:
        found: list[Array] = []

        def take() -> None:
            assert read is not None
            array = read(segment.key, segment.start, segment.stop)
            check_canonical(array, f"slot {segment.key} of the stored state", segment.start)
            stream.add(as_bytes(array))
            found.append(array)

        consent.attempt(take)
        # After a fault the others still wait for this slot's bytes; `agree` follows it.
        count = segment.stop - segment.start
        return found[0] if found else np.zeros(count, DTYPES[segment.type.dtype])

    def has_all(self, name: str) -> bool:
        """Whether this worker holds a slot whole."""
        return name in self._held and (name in self.owners.held or name in self.owners.slots)

    def collect(self, name: str, slots: Mapping[str, Tensor]) -> Iterator[Array]:
        """The elements of a slot at worker 0, piece by piece, while the others `give` theirs; they
        need not where it has all. Raises TransportFaultError.

        Once begun, it takes what the others send, also where the caller takes no more."""
        waiting, is_here = list(self.segments(name))[::-1], self.has_all(name)

        def take(consent: Consent) -> Array:
            segment, owner = waiting.pop()
            if is_here or owner == 0:
                return np.asarray(self.device.host(self.place(slots, segment)))
            exchange = Round(self.transport, f"bytes of slot {name}")
            exchange.expect(segment.nbytes, owner)
            (body,) = exchange.finish(consent.note).values()
            return body.view(DTYPES[segment.type.dtype])

        consent = Consent(self.transport)
        try:
            while waiting:
                found = take(consent)
                if consent.fault is not None:
                    raise consent.fault
                yield found
        finally:
            while waiting:
                take(consent)

    def give(self, name: str, slots: Mapping[str, Tensor]) -> None:
        """Send worker 0 what this worker owns of a slot."""
        for segment, owner in self.segments(name):
            if owner == self.rank:
                exchange = Round(self.transport, f"bytes of slot {name}")
                exchange.send([as_bytes(self.device.host(self.place(slots, segment)))], [0])
                exchange.finish(lambda _: None)

    def digests(self, slots: Mapping[str, Tensor]) -> dict[str, bytes]:
        """The tensor digests of all slots at every worker: of a whole slot by its owner, of a cut
        one from what each worker has hashed of its leaves."""
        whole: list[list[str]] = [[] for _ in range(self.transport.size)]
        for name, owner in self.owners.slots.items():
            whole[owner].append(name)
        cut = [name for name in self.owners.types if name in self.owners.cut_slots]
        own = self.device.digests([slots[name] for name in whole[self.rank]])
        for name in cut:
            elements = dict(self.owners.parts(name))[self.rank]
            segment = TensorSegment(name, self.owners.types[name], elements.start, elements.stop)
            data = as_bytes(self.device.host(self.place(slots, segment)))
            own += range_roots(data, self._leaves(name)[self.rank].start)
        counts = [
            len(names) + sum(len(subtrees(self._leaves(name)[rank])) for name in cut)
            for rank, names in enumerate(whole)
        ]
        data = np.frombuffer(b"".join(own).ljust(max(counts) * HASH_BYTES, b"\0"), np.uint8).copy()
        found: dict[str, bytes] = {}
        roots: dict[str, list[tuple[range, list[bytes]]]] = {name: [] for name in cut}
        for rank, body in enumerate(self.transport.gather(data)):
            hashes = iter([h.tobytes() for h in body.reshape(-1, HASH_BYTES)])
            found |= {name: next(hashes) for name in whole[rank]}
            for name in cut:
                leaves = self._leaves(name)[rank]
                roots[name].append((leaves, [next(hashes) for _ in subtrees(leaves)]))
        for name, parts in roots.items():
            type_ = self.owners.types[name]
            found[name] = TensorHeader(type_.dtype, type_.shape).digest(joined_root(parts))
        return {name: found[name] for name in self.owners.types}

    def _leaves(self, name: str) -> list[range]:
        """The leaves of each worker's range of a cut slot: a leaf has UNIT elements of f32."""
        parts = self.owners.parts(name)
        return [range(e.start // UNIT, -(-e.stop // UNIT)) for _, e in parts]
