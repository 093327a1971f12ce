"""Where attempts at segments run: processes of this machine (processes.py), a cluster (cluster.py).

A driver starts attempts, which it numbers, and takes events until it has what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tallystick.run.parallel.segments import Segment
from tallystick.run.parallel.task import Answer


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
