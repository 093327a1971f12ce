"""Messages between workers: bytes, followed by their checksum.

The receiver computes the checksum again before anything is folded or updated, so a fault of memory
or network is named with its sender, and not trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import numpy as np

from tallystick.errors import TallystickError
from tallystick.program.runner import NodeError, NodeFaultError
from tallystick.run.distributed.transport import (
    Bytes,
    PeerLostError,
    Pending,
    Transport,
    TransportFaultError,
    WorkerError,
)

# A worker's fault: of each of its two sentences, and as a message; JSON may need 12 bytes a letter.
_WORDS = 1000
FAULT_BYTES = 25 * _WORDS
# Whether a worker could do its part: two words that no single fault of memory exchanges. They stand
# behind the checksum, so that a worker knows the others' verdicts also where the bytes are altered.
_VERDICTS = {False: np.zeros(8, np.uint8), True: np.full(8, 255, np.uint8)}
_CHECKSUM_BYTES = 16
_NO_VERDICT, _VERDICT_BYTES = np.empty(0, np.uint8), 8


def as_bytes(array: np.ndarray) -> Bytes:
    """The bytes of an array, u8[n], of its own memory where that is C-contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def checksum(body: Bytes) -> bytes:
    """XXH3 of 128 bits, which is as fast as memory. It finds faults. It finds no lie: with any
    function, a worker that lies sends the right checksum of its false bytes. checks.py finds
    lies."""
    import xxhash  # of the extra `train`: transport.py says so where it is missing

    return xxhash.xxh3_128_digest(body.data)


class Rooms:
    """Memory for messages, kept from step to step: to get new memory costs more than to fill it."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[object, ...], Bytes] = {}

    def room(self, nbytes: int, *key: object) -> Bytes:
        """The room called `key`, u8[nbytes], with whatever is in it."""
        found = self._rooms.get(key)
        if found is None or found.nbytes < nbytes:
            found = self._rooms[key] = np.empty(nbytes, np.uint8)
        return found[:nbytes]


def sealed(
    parts: Sequence[Bytes], verdict: Bytes = _NO_VERDICT, into: Bytes | None = None
) -> Bytes:
    """One message of `parts`, their checksum, and a verdict; in the memory `into` where given."""
    size = sum(part.nbytes for part in parts)
    message = into
    if message is None:
        message = np.empty(size + _CHECKSUM_BYTES + verdict.nbytes, np.uint8)
    at = 0
    for part in parts:
        message[at : at + part.nbytes] = part
        at += part.nbytes
    message[size : size + _CHECKSUM_BYTES] = np.frombuffer(checksum(message[:size]), np.uint8)
    message[size + _CHECKSUM_BYTES :] = verdict
    return message


def opened(message: Bytes, sender: int, what: str) -> Bytes:
    """The bytes of a message. Raises TransportFaultError unless their checksum is behind them."""
    body = message[:-_CHECKSUM_BYTES]
    if checksum(body) != message[-_CHECKSUM_BYTES:].tobytes():
        raise TransportFaultError(sender, what)
    return body


@dataclass
class Round:
    """Messages of one exchange: all are under way together, and all arrive.

    Where `verdict` is given, every message ends with one: whether its sender could do its part so
    far. `faulty` are those who could not. The messages are in `rooms` where given, and there are
    two sets of those: the next round but one overwrites what this one brought.
    """

    transport: Transport
    what: str
    verdict: bool = False
    rooms: Rooms | None = None
    number: int = 0
    faulty: set[int] = field(default_factory=set, init=False)
    _sent: list[Pending] = field(default_factory=list, init=False)
    _expected: list[tuple[int, Bytes, Pending]] = field(default_factory=list, init=False)

    def _room(self, nbytes: int, way: str, rank: int) -> Bytes:
        if self.rooms is None:
            return np.empty(nbytes, np.uint8)
        return self.rooms.room(nbytes, way, rank, self.number % 2)

    def send(self, parts: Sequence[Bytes], to: Iterable[int], faulty: bool = False) -> None:
        """Send one message to each worker of `to`."""
        message: Bytes | None = None
        for rank in to:
            if message is None:
                end = _VERDICTS[faulty] if self.verdict else _NO_VERDICT
                size = sum(part.nbytes for part in parts) + _CHECKSUM_BYTES + end.nbytes
                message = sealed(parts, end, self._room(size, "to", rank))
            self._sent.append(self.transport.send(message, rank))

    def expect(self, nbytes: int, source: int) -> None:
        """Receive a message of `nbytes` from worker `source`."""
        more = _VERDICT_BYTES if self.verdict else 0
        into = self._room(nbytes + _CHECKSUM_BYTES + more, "from", source)
        self._expected.append((source, into, self.transport.receive(into, source)))

    def finish(self, note: Callable[[TallystickError], None]) -> dict[int, Bytes]:
        """Wait for all; the bytes by sender. A message with another checksum goes to `note`, so
        that the exchange can go on and all workers learn of it together."""
        found: dict[int, Bytes] = {}
        for source, into, pending in self._expected:
            pending.wait()
            message = into
            if self.verdict:
                message = into[:-_VERDICT_BYTES]
                if is_faulty(into[-_VERDICT_BYTES:], source):
                    self.faulty.add(source)
            try:
                found[source] = opened(message, source, self.what)
            except TransportFaultError as error:
                note(error)
                found[source] = message[:-_CHECKSUM_BYTES]
        for pending in self._sent:
            pending.wait()
        return found


@dataclass
class Consent:
    """Whether all workers may go on: what one of them could not do, all of them report alike.

    A worker keeps its fault for the next exchange that has verdicts. `exchange` and `agree` are
    such: after them every worker goes on, or every worker raises the same error.
    """

    transport: Transport
    fault: TallystickError | None = None
    rooms: Rooms = field(default_factory=Rooms, init=False)
    _lasting: TallystickError | None = field(default=None, init=False)

    def note(self, error: TallystickError) -> None:
        """Keep this worker's first fault for the next verdict."""
        self.fault = self.fault or error

    def attempt(self, call: Callable[[], None]) -> None:
        """Do a part of a step; keep the error."""
        if self.fault is not None:
            return
        try:
            call()
        except TallystickError as error:
            self.note(error)
        except MemoryError:
            why = f"Worker {self.transport.rank} has too little memory."
            self.note(WorkerError(why, "Use more workers, or a machine with more memory."))

    def last(self) -> None:
        """This worker's fault has spoiled its state: every verdict from now on says so, until
        `begin`."""
        self._lasting = self.fault

    def begin(self) -> None:
        """Every worker gets a new state."""
        self.fault = self._lasting = None

    def exchange(
        self,
        what: str,
        own: Callable[[int], Sequence[Bytes]],
        lengths: Sequence[int],
        expected: Sequence[int],
    ) -> dict[int, Bytes]:
        """One message to each other worker and from each, with verdicts; the bytes by sender.

        The parts `own(r)`, `lengths[r]` bytes in all, go to worker r, and `expected[r]` bytes come
        from it, which stay until the next exchange. Raises as `agree`. Bytes without their right
        checksum are noted, for the next verdict.
        """
        each = [([r], partial(own, r), lengths[r]) for r in self._others]
        return self._exchange(what, each, expected)

    def spread(
        self, what: str, own: Callable[[], Sequence[Bytes]], lengths: Sequence[int]
    ) -> dict[int, Bytes]:
        """As `exchange`, where each worker sends the same to all others: worker r `lengths[r]`
        bytes. Their checksum is made once."""
        alike = self._others, own, lengths[self.transport.rank]
        return self._exchange(what, [alike], lengths)

    @property
    def _others(self) -> list[int]:
        return [r for r in range(self.transport.size) if r != self.transport.rank]

    def _exchange(
        self,
        what: str,
        own: Sequence[tuple[list[int], Callable[[], Sequence[Bytes]], int]],
        expected: Sequence[int],
    ) -> dict[int, Bytes]:
        """`own` are messages: (receivers, their parts, their bytes)."""
        rank = self.transport.rank
        exchange = Round(self.transport, what, verdict=True, rooms=self.rooms)
        for other in self._others:
            exchange.expect(expected[other], other)
        parts: list[Sequence[Bytes]] = []
        self.attempt(lambda: parts.extend(make() for _, make, _ in own))
        faulty = self.fault is not None
        if faulty:  # no worker reads them
            parts = [[np.zeros(nbytes, np.uint8)] for _, _, nbytes in own]
        for (to, _, _), given in zip(own, parts, strict=True):
            exchange.send(given, to, faulty)
        found = exchange.finish(self.note)
        if faulty or exchange.faulty:
            self._raise(exchange.faulty | ({rank} if faulty else set()))
        return found

    def agree(self) -> None:
        """Raise the fault of the first worker that has one, at every worker; none is kept but one
        that lasts."""
        own = self.fault is not None
        words = self.transport.gather(_VERDICTS[own])
        faulty = {rank for rank, word in enumerate(words) if is_faulty(word, rank)}
        if faulty:
            self._raise(faulty)

    def _raise(self, faulty: Set[int]) -> NoReturn:
        """Every worker knows who is `faulty`: these tell the others why."""
        fault, self.fault = self.fault, self._lasting
        text = b""
        if fault is not None and self.transport.rank in faulty:
            text = fault_to_bytes(fault, fault is self._lasting)
        sizes = self.transport.gather(as_bytes(np.array([len(text)], np.int64)))
        longest = min(max(int(one.view(np.int64)[0]) for one in sizes), FAULT_BYTES)
        texts = self.transport.gather(np.frombuffer(text.ljust(longest), np.uint8).copy())
        faults = [
            fault
            if fault is not None and rank == self.transport.rank
            else fault_from_bytes(texts[rank].tobytes(), rank)
            for rank in sorted(faulty)
        ]
        raise min(faults, key=_node_of)


def is_faulty(verdict: Bytes, sender: int) -> bool:
    """What a verdict says. Raises PeerLostError for one that is none: workers that do not know of
    each other's faults cannot go on together."""
    for faulty, word in _VERDICTS.items():
        if verdict.tobytes() == word.tobytes():
            return faulty
    raise PeerLostError(sender, "its verdict arrived altered")


def _node_of(error: TallystickError) -> int:
    """One worker would have met the fault of the lowest node first."""
    return getattr(error, "node", 1 << 62)


def fault_to_bytes(error: TallystickError, lasts: bool = False) -> bytes:
    kind = type(error).__name__ if isinstance(error, (NodeError, NodeFaultError)) else ""
    return json.dumps(
        {
            "kind": kind,
            "message": error.message[:_WORDS],
            "next_action": error.next_action[:_WORDS],
            "node": getattr(error, "node", 0),
            "state_lost": getattr(error, "state_lost", False),
            "accuses": isinstance(error, WorkerError) and error.accuses,
            "lasts": lasts,
        }
    ).encode()


def fault_from_bytes(data: bytes, rank: int) -> TallystickError:
    """A worker's fault as its own error, or as one of this worker. One that it reports of another
    names no worker: either of the two may have altered the bytes."""
    try:
        found = json.loads(data)
        kind, message, action = (str(found[k]) for k in ("kind", "message", "next_action"))
        node, lost = int(found["node"]), bool(found["state_lost"])
        accuses, lasts = bool(found["accuses"]), bool(found["lasts"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return TransportFaultError(rank, "words")
    if kind == "NodeError":
        return NodeError(message, action, node, lost)
    if kind == "NodeFaultError":
        return NodeFaultError(f"Worker {rank}: {message}", action, node, lost)
    error = WorkerError(f"Worker {rank}: {message}", action)
    error.accuses, error.lasts = accuses, lasts
    return error if accuses else error.of(rank)
