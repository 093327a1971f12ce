"""Workers of one run as threads of this process: the transport's interface over queues."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.launch import TeamMaker
from tallystick.run.distributed.team import Order, Team
from tallystick.run.distributed.transport import PeerLostError
from tallystick.run.distributed.worker import follow

# Changes a message's bytes on their way: (sender, receiver, bytes).
Fault = Callable[[int, int, np.ndarray], None]
_PATIENCE = 60.0


@dataclass
class Hub:
    """What the workers have in common."""

    size: int
    fault: Fault | None = None
    queues: dict[tuple[int, int], Queue[np.ndarray]] = field(init=False)

    def __post_init__(self) -> None:
        places = itertools.product(range(self.size), repeat=2)
        self.queues = {place: Queue() for place in places}


@dataclass
class Waiting:
    hub: Hub
    place: tuple[int, int] | None
    into: np.ndarray | None

    def wait(self) -> None:
        if self.into is None or self.place is None:
            return
        try:
            self.into[:] = self.hub.queues[self.place].get(timeout=_PATIENCE)
        except Empty:
            raise PeerLostError(self.place[0], "silent") from None


class ThreadTransport:
    """The interface of transport.Transport."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.size, self.sent = hub, rank, hub.size, 0

    def send(self, data: np.ndarray, to: int) -> Waiting:
        message = data.copy()
        if self.hub.fault is not None:
            self.hub.fault(self.rank, to, message)
        self.hub.queues[(self.rank, to)].put(message)
        self.sent += data.nbytes
        return Waiting(self.hub, None, None)

    def receive(self, into: np.ndarray, source: int) -> Waiting:
        return Waiting(self.hub, (source, self.rank), into)

    def broadcast(self, data: np.ndarray, source: int) -> None:
        if self.rank == source:
            for to in range(self.size):
                if to != source:
                    self.hub.queues[(source, to)].put(data.copy())
        else:
            self.receive(data, source).wait()

    def gather(self, data: np.ndarray) -> list[np.ndarray]:
        for to in range(self.size):
            if to != self.rank:
                self.hub.queues[(self.rank, to)].put(data.copy())
        found = [np.empty_like(data) for _ in range(self.size)]
        for source, into in enumerate(found):
            if source == self.rank:
                into[:] = data
            else:
                self.receive(into, source).wait()
        return found

    def close(self) -> None:
        pass


def with_team(
    job: Job, workers: int, do: Callable[[TeamEngine], Any], fault: Fault | None = None
) -> Any:
    """Execute `do` with worker 0's engine at state[0] of `job`; its result."""
    hub = Hub(workers, fault)
    teams = [
        Team(job, ThreadTransport(hub, rank), ExecutionContext(1))  # type: ignore[arg-type]
        for rank in range(workers)
    ]
    threads = [
        threading.Thread(target=follow, args=(team,), daemon=True, name=f"worker {team.rank}")
        for team in teams[1:]
    ]
    for thread in threads:
        thread.start()
    maker = TeamMaker(teams[0])
    state = maker.first_state(job, None)
    engine = maker.engine(job, state, 0, teams[0].context, None, [])
    assert isinstance(engine, TeamEngine)
    try:
        return do(engine)
    finally:
        if teams[0].idle:
            teams[0].give(Order.END)
            for thread in threads:
                thread.join(10)
            assert not any(thread.is_alive() for thread in threads)


def root_by(job: Job, workers: int, steps: int) -> tuple[list[int], bytes]:
    """The bits of the losses of the first steps, and the root of the state after them."""

    def do(engine: TeamEngine) -> tuple[list[int], bytes]:
        bits = [engine.run()[0] for _ in range(steps)]
        return bits, engine.root()

    found: tuple[list[int], bytes] = with_team(job, workers, do)
    return found
