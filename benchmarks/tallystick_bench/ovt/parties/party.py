"""A party of `bench ovt`: a job's state, and the arm (contract, kernels, log) that advances it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tallystick.commit.data import batch_columns
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.execute.engine import Engine


def batch_of(job: Job, step: int) -> dict[str, Array]:
    """The batch tensors of `step` (COMMITMENTS 8.4, 8.5), for sides that have their own state."""
    timetable = job.commitment.timetable
    return batch_columns(job.columns, timetable.indices(timetable.at(step)))


@dataclass(frozen=True)
class Given:
    """The inputs of step number `step`. The step changes `state` in place."""

    step: int
    state: dict[str, Array]
    batch: dict[str, Array]
    scalars: dict[str, float]
    key: tuple[int, int]


class Arm(Protocol):
    """A way to compute a step.

    `step` returns `loss`, and where they exist `log` (a path), `log_bytes`, `left` and `taken`
    (choices), `forward` and `backward` (corrections), `findings` (entries that do not fit a
    follower's values).
    """

    def step(self, given: Given, log: Path | None) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Party:
    """`job` from its genesis under `arm`; the next step to take is `step`."""

    def __init__(self, job: Job, arm: Arm) -> None:
        self.arm = arm
        # Gives every step's batch, scalars and random key, and holds the state.
        self.engine = Engine(job, job.genesis())
        self.step = 0

    @property
    def slots(self) -> dict[str, Array]:
        """The state, by slot."""
        return self.engine.state.slots

    def advance(self, log: Path | None) -> dict[str, Any]:
        """Take the next step, along `log` where it follows one."""
        engine, step = self.engine, self.step
        key = (engine.job.commitment.rng_seed, step)
        given = Given(step, self.slots, engine.batch(step), engine.scalars(step), key)
        found = self.arm.step(given, log)
        self.step += 1
        return found
