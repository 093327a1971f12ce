"""Where attempts at segments run: a cluster (cluster.py), or processes of this machine, which are
here.

A driver starts attempts, which it numbers, and takes events until it has what it needs.

Each worker is an interpreter of its own that speaks JSON over pipes (worker.py), not one of
`multiprocessing`: that would run the caller's script again in each, and a worker that dies would
take a pool of `concurrent.futures` with it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from tallystick.errors import MachineFaultError
from tallystick.run.parallel.task import Answer, Segment, Task
from tallystick.started import Child


@dataclass(frozen=True)
class AttemptProgress:
    """Attempt `attempt` has executed `steps` steps; 0: it has just begun."""

    attempt: int
    steps: int


@dataclass(frozen=True)
class AttemptEnded:
    """An attempt's answer (task.Repeater.answer), and the machine it comes from."""

    attempt: int
    answer: Answer
    where: str


@dataclass(frozen=True)
class Died:
    """An attempt's worker is gone without an answer. `memory`: perhaps because it took too much."""

    attempt: int
    why: str
    memory: bool = False


Event = AttemptProgress | AttemptEnded | Died


class SegmentExecutor(Protocol):
    """Runs attempts at segments."""

    kind: str  # "processes" or "ray"
    workers: int  # how many attempts at once

    def start(self, attempt: int, segment: Segment) -> None:
        """Begin an attempt. The caller has no more than `workers` under way."""

    def events(self, timeout: float) -> list[Event]:
        """What has happened since the last call; waits for something for `timeout` seconds."""

    def stop(self, attempt: int) -> None:
        """Give an attempt up; nothing more is heard of it."""

    def close(self) -> None:
        """Stop all that is under way, and let go of the workers."""


# An answer holds at most 1000 findings of a few hundred bytes.
_LINE_BYTES = 16 << 20
_GRACE_S = 5.0


class Processes:
    """`workers` processes at most, made when they are needed; an idle one is used again."""

    kind = "processes"

    def __init__(self, task: Task, workers: int) -> None:
        self.workers = workers
        self._task = task
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._heard: queue.SimpleQueue[tuple[_Worker, bytes | None]] = queue.SimpleQueue()

    def pids(self) -> list[int]:
        """The processes under way, for tests that kill one."""
        return [worker.pid for worker in self._busy.values()]

    def start(self, attempt: int, segment: Segment) -> None:
        """As Executor.start. Raises MachineFaultError where no process can be made."""
        worker = self._idle.pop() if self._idle else _Worker(self._task, self._heard)
        worker.attempt = attempt
        self._busy[attempt] = worker
        worker.give([segment.first, segment.last])

    def events(self, timeout: float) -> list[Event]:
        """As Executor.events."""
        found: list[Event] = []
        wait = timeout
        while True:
            try:
                worker, line = self._heard.get(timeout=wait) if wait else self._heard.get_nowait()
            except queue.Empty:
                return found
            wait = 0.0
            event = self._event(worker, line)
            if event is not None:
                found.append(event)

    def _event(self, worker: _Worker, line: bytes | None) -> Event | None:
        attempt = worker.attempt
        if attempt is None or self._busy.get(attempt) is not worker:
            if line is None and worker in self._idle:
                self._idle.remove(worker)  # it died while it waited
                worker.end()
            return None
        if line is not None:
            value: Any = json.loads(line)
            if "steps" in value:
                return AttemptProgress(attempt, value["steps"])
            del self._busy[attempt]
            worker.attempt = None
            self._idle.append(worker)
            return AttemptEnded(attempt, value, f"process {worker.pid}")
        del self._busy[attempt]
        why, memory = worker.why()
        return Died(attempt, why, memory)

    def stop(self, attempt: int) -> None:
        """As Executor.stop."""
        worker = self._busy.pop(attempt, None)
        if worker is not None:
            worker.end()

    def close(self) -> None:
        """As Executor.close."""
        for worker in [*self._busy.values(), *self._idle]:
            worker.end()
        self._busy, self._idle = {}, []


class _Worker(Child):
    def __init__(self, task: Task, heard: queue.SimpleQueue[tuple[_Worker, bytes | None]]) -> None:
        self.attempt: int | None = None
        try:
            super().__init__(
                "tallystick.run.parallel.worker",
                answering=True,
                environment={"OMP_NUM_THREADS": str(task.threads), **os.environ},
            )
        except OSError as error:
            raise MachineFaultError(
                f"A worker process could not be started: {error}.", "Use fewer workers."
            ) from error
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()
        self.give(task.as_json())

    def give(self, value: Any) -> None:
        """One line to the worker. That it is gone is heard from its output."""
        with suppress(OSError):
            self.write(json.dumps(value).encode("ascii") + b"\n")

    def _listen(self, heard: queue.SimpleQueue[tuple[_Worker, bytes | None]]) -> None:
        while line := self.output.readline(_LINE_BYTES):
            if not line.endswith(b"\n"):  # it was killed while it wrote
                break
            heard.put((self, line))
        heard.put((self, None))

    def why(self) -> tuple[str, bool]:
        """Why a worker without an answer is gone, and whether memory may be the reason."""
        code = self.end(_GRACE_S)
        if code == -signal.SIGKILL:
            return "signal 9, as the system ends a process that takes too much memory", True
        if code < 0:
            return f"signal {-code}", False
        said = self.said()
        return f"exit code {code}" + (f": {said}" if said else ""), False
