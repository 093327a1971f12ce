"""The workers of a distributed run as threads of one process, over connections in its memory.

Everything but the connections is that of `tallystick train --workers`. It needs no torch, and a run
of a small job takes a fraction of what processes take to start.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.devices.environment import exact_environment
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.run.distributed.checks import Hand, ShareChecks
from tallystick.run.distributed.going_on import GoingOn, train_on
from tallystick.run.distributed.launch import Checking, lead
from tallystick.run.distributed.team import Order, Team
from tallystick.run.distributed.transport import Bytes, PeerLostError, Pending, Transport
from tallystick.run.distributed.worker import follow
from tallystick.run.execute.listener import Listener
from tallystick.run.execute.trainer import Options, RunSummary, train_job

_SECONDS = 120.0


class _Wires:
    """A queue for each (kind, sender, receiver)."""

    def __init__(self) -> None:
        self._queues: defaultdict[tuple[str, int, int], Queue[Bytes]] = defaultdict(Queue)
        self._lock = threading.Lock()

    def of(self, kind: str, source: int, to: int) -> Queue[Bytes]:
        with self._lock:
            return self._queues[kind, source, to]


class _Receipt(Pending):
    def __init__(self, queue: Queue[Bytes] | None, into: Bytes, peer: int) -> None:
        self._queue, self._into, self._peer = queue, into, peer

    def wait(self) -> None:
        if self._queue is None:
            return
        try:
            self._into[:] = self._queue.get(timeout=_SECONDS)
        except Empty:
            raise PeerLostError(self._peer, "silence") from None


class LocalTransport(Transport):
    """The connections of worker `rank` to the other threads."""

    def __init__(self, wires: _Wires, rank: int, size: int) -> None:
        self.rank, self.size, self.sent, self._wires = rank, size, 0, wires

    def send_copy(self, kind: str, data: Bytes, to: int) -> None:
        self.sent += data.nbytes
        self._wires.of(kind, self.rank, to).put(data.copy())

    def _take(self, kind: str, into: Bytes, source: int) -> None:
        _Receipt(self._wires.of(kind, source, self.rank), into, source).wait()

    def send(self, data: Bytes, to: int) -> Pending:
        self.send_copy("one", data, to)
        return _Receipt(None, data, to)

    def receive(self, into: Bytes, source: int) -> Pending:
        return _Receipt(self._wires.of("one", source, self.rank), into, source)

    def gather(self, data: Bytes) -> list[Bytes]:
        others = [rank for rank in range(self.size) if rank != self.rank]
        for rank in others:
            self.send_copy("gather", data, rank)
        found = [np.array(data) for _ in range(self.size)]
        for rank in others:
            self._take("gather", found[rank], rank)
        return found

    def broadcast(self, data: Bytes, source: int) -> None:
        if self.rank != source:
            self._take("broadcast", data, source)
            return
        for rank in range(self.size):
            if rank != source:
                self.send_copy("broadcast", data, rank)

    def close(self) -> None:
        """Nothing is held open."""


def train_in_threads(
    job: Job,
    out: Path,
    workers: int,
    checking: Checking | None = None,
    hand_of: Callable[[int], Hand] = lambda _: Hand(),
    answering: Callable[[ShareChecks], None] | None = None,
    how: GoingOn | None = None,
    listener: Listener | None = None,
) -> RunSummary:
    """Train `job` with so many workers. With `checking` they check each other; `hand_of` gives the
    hand of a worker by its rank, and `answering` is what one does in a dispute. `how` says whether
    others go on.

    Raises as `lead`, and the error of a worker that ended by itself.
    """

    def once(left: int, options: Options) -> RunSummary:
        if left == 1:
            return train_job(job, out, options, listener)
        return _once(job, out, left, checking, hand_of, answering, options, listener)

    return train_on(once, workers, Options(ExecutionContext(1)), how or GoingOn())


def _once(
    job: Job,
    out: Path,
    workers: int,
    checking: Checking | None,
    hand_of: Callable[[int], Hand],
    answering: Callable[[ShareChecks], None] | None,
    options: Options,
    listener: Listener | None,
) -> RunSummary:
    wires, errors = _Wires(), list[BaseException]()

    def team_of(rank: int) -> Team:
        transport, context = LocalTransport(wires, rank, workers), ExecutionContext(1)
        checks = None
        if checking is not None:
            fraction = checking.fraction
            checks = ShareChecks(job, transport, context, fraction, hand=hand_of(rank))
        return Team(job, transport, context, checks)

    def be(rank: int) -> None:
        try:
            with exact_environment():
                team = team_of(rank)
                with team.context.entered():
                    follow(team, answering or (checking.answering if checking else None))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(1, workers)]
    for thread in threads:
        thread.start()
    team: Team | None = None
    try:
        team = team_of(0)
        return lead(team, out, replace(options, context=team.context), listener, checking)
    except TallystickError:
        if errors:
            raise errors[0] from None
        raise
    finally:
        if team is not None and team.idle:
            team.give(Order.END)
        for thread in threads:
            thread.join(_SECONDS)
