"""Several kinds of hardware training one job in step: processes, and the distance between them.

Each kind is a process of its own, and its environment sets the kind that it emulates. All take a
step, the followers with the logs that the trainers have just written. Then the module compares the
weights.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.contracts.replay.stock.emulated import Hardware
from tallystick.errors import CannotCheckError
from tallystick_bench import process


@dataclass
class Child:
    """A process that takes steps of a job as one kind of hardware."""

    hardware: Hardware
    process: subprocess.Popen[str]
    errors: Any

    def ask(self, **command: Any) -> None:
        """Send a command; the answer is fetched by `answer`."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except OSError:
            self._died()

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest command. Raises CannotCheckError if the process ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self._died()
        found: dict[str, Any] = json.loads(line)
        return found

    def _died(self) -> None:
        self.process.wait()
        self.errors.seek(0)
        raise CannotCheckError(
            f"The process for {self.hardware.name} failed: {self.errors.read()[-1500:].strip()}",
            "Run it where there is more memory, or report it.",
        )


@contextmanager
def children(hardware: Sequence[Hardware], work: Path, threads: int) -> Iterator[list[Child]]:
    """A process for each kind of hardware, ended with the block; their files go to `work`."""
    made: list[Child] = []
    try:
        for kind in hardware:
            arguments = {
                "hardware": kind.name,
                "work": str(work),
                "threads": threads,
            }
            errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
            started = subprocess.Popen(
                process.command("tallystick_bench.ovt.parties.child", json.dumps(arguments)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=process.environment(kind.environment),
            )
            made.append(Child(kind, started, errors))
        yield made
    finally:
        for child in made:
            for stream in (child.process.stdin, child.process.stdout):
                # A command that a dead process has not read would be written again, and hide why.
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            child.process.terminate()
        for child in made:
            child.process.wait()
            child.errors.close()


def pairs_of(count: int, logged: bool) -> list[tuple[int, int]]:
    """Every pair of `count` kinds once; under a log (trainer, follower), each trains for one."""
    if logged and count == 3:
        return [(0, 1), (1, 2), (2, 0)]
    return list(itertools.combinations(range(count), 2))


def _weights(answer: Mapping[str, Any]) -> np.ndarray:
    return np.fromfile(answer["weights"], dtype=np.float32).astype(np.float64)


def distance(mine: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The l2 distance of two parties' weights; exactly 0 where the whole states are equal."""
    if mine["state"] == other["state"]:
        return 0.0
    return float(np.linalg.norm(_weights(mine) - _weights(other)))


@dataclass
class Series:
    """A pair's results, step by step.

    `equal` counts the steps after which the whole states (weights, moments, buffers) had the same
    bits. `left` and `taken` are choices (NUMERICS 14.8) as far as the follower determined them.
    `findings` are entries that do not fit the follower's values: an honest log has some after the
    values have parted, which the published form allows where terms cancel (NUMERICS 14.9.2).
    """

    l2: list[float] = field(default_factory=list)
    equal: int = 0
    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    left: int = 0
    taken: int = 0
    findings: int = 0

    def add(self, mine: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        """The step that both have just taken; `other` is the follower where there is a log."""
        self.l2.append(distance(mine, other))
        self.equal += mine["state"] == other["state"]
        if "forward" in other:
            self.forward.append(other["forward"])
            self.backward.append(other["backward"])
        self.left += other.get("left", 0)
        self.taken += other.get("taken", 0)
        self.findings += other.get("findings", 0)


def run_arm(
    made: Sequence[Child], job: Path, arm: str, contract: str | None, steps: int, logged: bool
) -> dict[str, Any]:
    """All kinds through `steps` steps of `job` in one arm.

    Returns a series for each pair, losses and log bytes. With `logged`, the first of each pair
    trains and the second follows its log.
    """
    chosen = pairs_of(len(made), logged)
    series = {pair: Series() for pair in chosen}
    losses: dict[str, list[float]] = {child.hardware.name: [] for child in made}
    log_bytes = 0
    followers = [second for _, second in chosen] if logged else []
    for number, child in enumerate(made):
        lanes = 1 + followers.count(number)
        child.ask(do="start", job=str(job), arm=arm, contract=contract, lanes=lanes)
    for child in made:
        child.answer()
    for _ in range(steps):
        for child in made:
            child.ask(do="step", lane=0)
        trained = [child.answer() for child in made]
        for child, answer in zip(made, trained, strict=True):
            losses[child.hardware.name].append(answer["loss"])
            log_bytes += answer.get("log_bytes", 0)
        followed: list[Mapping[str, Any]] = [trained[second] for _, second in chosen]
        if logged:
            followed = _follow(made, chosen, trained)
            for said in (*trained, *followed):
                Path(said["log"]).unlink()
        for pair, mine, other in zip(
            chosen, (trained[first] for first, _ in chosen), followed, strict=True
        ):
            series[pair].add(mine, other)
    for child in made:
        child.ask(do="stop")
    for child in made:
        child.answer()
    return {
        "pairs": {
            f"{made[a].hardware.name}|{made[b].hardware.name}": vars(found)
            for (a, b), found in series.items()
        },
        "losses": losses,
        "log_bytes_per_step": log_bytes / (steps * len(made)),
    }


def _follow(
    made: Sequence[Child], chosen: Sequence[tuple[int, int]], trained: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """A step of every follower along its trainer's log; answers in the order of `chosen`."""
    lanes = [0] * len(made)
    for first, second in chosen:
        lanes[second] += 1
        made[second].ask(do="step", lane=lanes[second], log=trained[first]["log"])
    return [made[second].answer() for _, second in chosen]
