"""The bytes between workers, moved by torch.distributed (gloo), and what can go wrong between them:
the one file here with torch.

Bytes are sent from worker to worker. No collective computes: the sums of an all-reduce depend on
sizes, channels and algorithms, so none may decide a bit.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from tallystick.errors import CannotCheckError, MachineFaultError, UsageError

RESUME = (
    "Nothing that was journaled is lost: the same command goes on from the last stored "
    "checkpoint, with any number of workers."
)


class WorkerError(MachineFaultError):
    """A worker of the run ended, fell silent, or does not fit the others.

    `rank` is the worker that ended the session or says so; None where that is not known. `begun`
    says that the session was in the run's journal by then; `accuses`, that one worker says it of
    another's bytes, which proves nothing about either; `lasts`, that its worker's state is spoiled,
    so that the next attempt at the step ends alike."""

    rank: int | None = None
    begun: bool = False
    accuses: bool = False
    lasts: bool = False

    def of(self, rank: int) -> WorkerError:
        """The same error, of worker `rank`."""
        self.rank = rank
        return self


class PeerLostError(WorkerError):
    """The connection to worker `rank` is gone; None where it may be any of them."""

    def __init__(self, rank: int | None, why: str) -> None:
        who = "Another worker" if rank is None else f"Worker {rank}"
        super().__init__(f"{who} ended or fell silent ({why.splitlines()[0][:200]}).", RESUME)
        self.rank = rank


class OtherBytesError(WorkerError):
    """Bytes from a worker are not those that it has signed."""

    accuses = True


class TransportFaultError(WorkerError):
    """Bytes from worker `rank` arrived other than they were sent."""

    accuses = True

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(
            f"The {what} from worker {rank} do not fit the checksum that it sent with them: its "
            "memory, its network or this machine's is faulty.",
            f"Check the machine of worker {rank} and its network. {RESUME}",
        )
        self.rank = rank


Bytes = np.ndarray  # u8[n], C-contiguous
_LOOPBACK, _LOCAL = {"linux": "lo", "darwin": "lo0"}, "127.0.0.1"
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """(rank, number of workers) if torchrun started this process as one of several; else None.

    Raises UsageError for variables that are no numbers."""
    found = os.environ if environment is None else environment
    if not all(name in found for name in _TORCHRUN):
        return None
    try:
        rank, size = int(found["RANK"]), int(found["WORLD_SIZE"])
    except ValueError:
        raise UsageError(
            "RANK or WORLD_SIZE is not a number.",
            "Start with torchrun, or unset both.",
        ) from None
    return (rank, size) if size > 1 else None


def _torch() -> Any:
    try:
        import torch
        import torch.distributed
        import xxhash  # noqa: F401  (messages.py)
    except ImportError as error:
        raise CannotCheckError(
            "Several workers need torch.distributed and xxhash, but one cannot be imported "
            f"({error}).",
            "Run pip install 'tallystick[train]', or train with one worker.",
        ) from error
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        raise CannotCheckError(
            "This build of PyTorch has no torch.distributed with gloo.",
            "Install a build from pytorch.org, or train with one worker.",
        )
    return torch


def _listening() -> tuple[int, int]:
    """A free port of this machine and a socket that listens there, for this machine only: the
    table's own would listen on all of its networks."""
    with socket.create_server((_LOCAL, 0)) as made:
        return made.getsockname()[1], made.detach()


def _of_this_attempt(torch: Any, store: Any) -> Any:
    """The table without what workers left there before torchrun started them again
    (--max-restarts). On several machines its counts may differ; a rendezvous that can restart there
    makes a new table."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if count == "0" or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return store
    return torch.distributed.PrefixStore(f"attempt-{count}", store)


class Meeting:
    """The table of keys at which workers meet before they are connected, and leave last words.

    Worker 0 keeps it: on a free port of this machine (`host`), or where torchrun says. Raises
    WorkerError where torchrun's workers do not meet within the timeout.
    """

    def __init__(self, rank: int, size: int, timeout: float, port: int | None = None) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        torch = _torch()
        torch.set_num_threads(1)
        span = timedelta(seconds=timeout)
        if port is None and launched() is not None:
            try:
                made = next(torch.distributed.rendezvous("env://", rank, size, timeout=span))
            except (RuntimeError, ValueError) as error:
                raise WorkerError(
                    f"The workers did not meet within {timeout:g} seconds: {str(error)[:200]}",
                    "Look at their machines and at MASTER_ADDR and MASTER_PORT, or allow more time "
                    "(--timeout).",
                ) from error
            self.store, self.port = _of_this_attempt(torch, made[0]), 0
        else:
            if sys.platform in _LOOPBACK:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK[sys.platform])
            self.port, descriptor = _listening() if rank == 0 else (port or 0, None)
            self.store = torch.distributed.TCPStore(
                _LOCAL, self.port, size, rank == 0, span, wait_for_workers=False,
                master_listen_fd=descriptor,
            )  # fmt: skip

    def put(self, key: str, value: bytes) -> None:
        self.store.set(f"tallystick/{key}", value)

    def has(self, key: str) -> bool:
        return bool(self.store.check([f"tallystick/{key}"]))

    def get(self, key: str) -> bytes:
        """The value of a key, waited for. Raises PeerLostError after the timeout."""
        try:
            return bytes(self.store.get(f"tallystick/{key}"))
        except RuntimeError as error:
            raise PeerLostError(0, str(error)) from error

    def connect(self) -> Transport:
        return Transport(self)


class Transport:
    """The connections of a worker to all others. Every receipt ends within the timeout.

    Raises PeerLostError where a worker is gone or silent. `sent` counts the bytes that this worker
    sent to others. Between two workers messages arrive in the order in which they are sent.
    """

    def __init__(self, meeting: Meeting) -> None:
        self.rank, self.size, self.sent = meeting.rank, meeting.size, 0
        self._torch = torch = _torch()
        self._dist = torch.distributed
        if self._dist.is_initialized():
            raise UsageError(
                "This process already has a process group of torch.distributed.",
                "Train in a separate process, or call destroy_process_group() first.",
            )
        try:
            self._dist.init_process_group(
                "gloo",
                store=meeting.store,
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=meeting.timeout),
            )
        except (RuntimeError, ValueError) as error:
            self.close()
            raise PeerLostError(None, str(error)) from error

    def send(self, data: Bytes, to: int) -> Pending:
        """Begin to send `data`, which stays as it is until the sending is waited for."""
        self.sent += data.nbytes
        try:
            return Pending(self._dist.isend(self._torch.from_numpy(data), to), to, data)
        except RuntimeError as error:
            raise PeerLostError(to, str(error)) from error

    def receive(self, into: Bytes, source: int) -> Pending:
        """Begin to receive exactly as many bytes as `into` has."""
        try:
            return Pending(self._dist.irecv(self._torch.from_numpy(into), source), source, into)
        except RuntimeError as error:
            raise PeerLostError(source, str(error)) from error

    def gather(self, data: Bytes) -> list[Bytes]:
        """The `data` of every worker, of one length, at every worker: sent to each at once, where
        a ring would wait for every worker in turn."""
        found = [np.empty_like(data) for _ in range(self.size)]
        found[self.rank][:] = data
        others = [rank for rank in range(self.size) if rank != self.rank]
        pending = [self.receive(found[rank], rank) for rank in others]
        for one in pending + [self.send(data, rank) for rank in others]:
            one.wait()
        return found

    def broadcast(self, data: Bytes, source: int) -> None:
        """Worker `source`'s `data` at every worker, in place."""
        if self.rank != source:
            self.receive(data, source).wait()
            return
        for one in [self.send(data, rank) for rank in range(self.size) if rank != source]:
            one.wait()

    def close(self) -> None:
        """End all connections: whoever waits for this worker learns at once that it is gone."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


class Pending:
    """A sending or a receipt under way."""

    def __init__(self, work: Any, peer: int, data: Bytes) -> None:
        self._work, self._peer = work, peer
        self._data = data  # kept alive

    def wait(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            raise PeerLostError(self._peer, str(error)) from error
