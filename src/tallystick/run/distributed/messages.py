"""Messages between workers: bytes, followed by their digest.

The digest is the tensor digest (COMMITMENTS 3) of the bytes as u8. The receiver computes it again
before anything is folded or updated, so a fault of memory or network is named with its sender, and
not trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.tensor import tensor_digest
from tallystick.errors import TallystickError
from tallystick.program.faults import NodeError, NodeFaultError
from tallystick.run.distributed.faults import TransportFaultError, WorkerError
from tallystick.run.distributed.transport import Bytes, Pending, Transport

# A worker's fault: of each of its two sentences, and as a message; JSON may need 12 bytes a letter.
_WORDS = 1000
_FAULT_BYTES = 25 * _WORDS


def as_bytes(array: np.ndarray) -> Bytes:
    """The bytes of an array, u8[n], of its own memory where that is C-contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def sealed(parts: Sequence[Bytes]) -> Bytes:
    """One message of `parts`, with its digest at the end."""
    size = sum(part.nbytes for part in parts)
    message, at = np.empty(size + HASH_BYTES, np.uint8), 0
    for part in parts:
        message[at : at + part.nbytes] = part
        at += part.nbytes
    message[size:] = np.frombuffer(tensor_digest(message[:size]), np.uint8)
    return message


def opened(message: Bytes, sender: int, what: str) -> Bytes:
    """The bytes of a message. Raises TransportFaultError unless they have the digest behind
    them."""
    body = message[:-HASH_BYTES]
    if tensor_digest(body) != message[-HASH_BYTES:].tobytes():
        raise TransportFaultError(sender, what)
    return body


@dataclass
class Round:
    """Messages of one exchange: all are under way together, and all arrive."""

    transport: Transport
    what: str
    _sent: list[Pending] = field(default_factory=list)
    _expected: list[tuple[int, Bytes, Pending]] = field(default_factory=list)

    def send(self, parts: Sequence[Bytes], to: Iterable[int]) -> None:
        """Send one message to each worker of `to`."""
        message: Bytes | None = None
        for rank in to:
            message = sealed(parts) if message is None else message
            self._sent.append(self.transport.send(message, rank))

    def expect(self, nbytes: int, source: int) -> None:
        """Receive a message of `nbytes` from worker `source`."""
        into = np.empty(nbytes + HASH_BYTES, np.uint8)
        self._expected.append((source, into, self.transport.receive(into, source)))

    def finish(self, note: Callable[[TallystickError], None]) -> dict[int, Bytes]:
        """Wait for all; the bytes by sender. A message with another digest goes to `note`, so that
        the exchange can go on and all workers learn of it together."""
        found: dict[int, Bytes] = {}
        for source, into, pending in self._expected:
            pending.wait()
            try:
                found[source] = opened(into, source, self.what)
            except TransportFaultError as error:
                note(error)
                found[source] = into[:-HASH_BYTES]
        for pending in self._sent:
            pending.wait()
        return found


@dataclass
class Consent:
    """Whether all workers may go on: what one of them could not do, all of them report alike."""

    transport: Transport
    fault: TallystickError | None = None

    def note(self, error: TallystickError) -> None:
        """Keep this worker's first fault for the next `agree`."""
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

    def agree(self) -> None:
        """Raise the fault of the first worker that has one, at every worker; none is kept."""
        fault, self.fault = self.fault, None
        text = b"" if fault is None else _to_bytes(fault)
        sizes = self.transport.gather(as_bytes(np.array([len(text)], np.int64)))
        longest = min(max(int(one.view(np.int64)[0]) for one in sizes), _FAULT_BYTES)
        if not longest:
            return
        texts = self.transport.gather(np.frombuffer(text.ljust(longest), np.uint8).copy())
        faults = [
            fault if fault is not None and rank == self.transport.rank else _from_bytes(data, rank)
            for rank, data in enumerate(text.tobytes() for text in texts)
            if data.strip()
        ]
        raise min(faults, key=_node_of)


def _node_of(error: TallystickError) -> int:
    """One worker would have met the fault of the lowest node first."""
    return getattr(error, "node", 1 << 62)


def _to_bytes(error: TallystickError) -> bytes:
    kind = type(error).__name__ if isinstance(error, (NodeError, NodeFaultError)) else ""
    return json.dumps(
        {
            "kind": kind,
            "message": error.message[:_WORDS],
            "next_action": error.next_action[:_WORDS],
            "node": getattr(error, "node", 0),
            "state_lost": getattr(error, "state_lost", False),
        }
    ).encode()


def _from_bytes(data: bytes, rank: int) -> TallystickError:
    """A worker's fault as its own error, or as one of this worker."""
    try:
        found = json.loads(data)
        kind, message, action = (str(found[k]) for k in ("kind", "message", "next_action"))
        node, lost = int(found["node"]), bool(found["state_lost"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return TransportFaultError(rank, "words")
    if kind == "NodeError":
        return NodeError(message, action, node, lost)
    if kind == "NodeFaultError":
        return NodeFaultError(f"Worker {rank}: {message}", action, node, lost)
    return WorkerError(f"Worker {rank}: {message}", action).of(rank)
