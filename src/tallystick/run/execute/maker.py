"""The maker of a run's parts: here the one of an honest trainer.

A trainer that cheats on purpose gets another maker (`run.cheats.training`). The trainer's own code
knows of no cheat.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine
from tallystick.run.logs.training import TrainerLogs, trainer_logs
from tallystick.run.store.declaration import Declaration, read_declaration
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal


class Maker:
    """Makes the parts of a run, and reads them back when a trainer resumes the run."""

    def begin(self, job: Job, store: RunStore) -> None:
        """The trainer calls this once, when the directory is laid out and locked. Raises
        UsageError where a declared cheat began the run that is there."""
        before = read_declaration(store.override_path)
        if before is not None:
            raise begun_otherwise(store, before)

    def verified(self, job: Job) -> State | None:
        """Check every byte of the job. Returns state[0], or None where `first_state` reads it."""
        return job.verify()

    def first_state(self, job: Job, verified: State | None) -> State:
        """state[0], which `verified` is where it is still there. Raises as Job.genesis."""
        return self.genesis(verified or job.genesis())

    def session(self) -> dict[str, int]:
        """What the journal's record of a session says besides what the trainer knows."""
        return {}

    def genesis(self, state: State) -> State:
        """The state from which the run begins, made of the job's state[0]."""
        return state

    def genesis_root(self, engine: Engine) -> bytes:
        """The root that the run commits to for state[0], the state of `engine`. Loading that state
        has hashed it already."""
        return engine.job.commitment.genesis_root

    def load_state(self, store: RunStore, job: Job, step: int, root: bytes) -> State:
        """Load a stored state of the run, which must have `root`. Raises as RunStore.load_state."""
        return store.load_state(job, step, root)

    def logs(
        self, job: Job, store: RunStore, journal: Journal, replay: Path | None, compress: bool
    ) -> TrainerLogs | None:
        """The run's rounding logs, as `trainer_logs` makes them."""
        return trainer_logs(job, store, journal, replay, compress)

    def engine(
        self,
        job: Job,
        state: State,
        step: int,
        context: ExecutionContext,
        logs: TrainerLogs | None,
        losses: Sequence[int],
    ) -> Engine:
        """The engine that executes the run from state[step] on; `losses` are the bits of
        the losses before it."""
        return Engine(job, state, step, context, log=logs)


def begun_otherwise(store: RunStore, before: Declaration | None) -> UsageError:
    """The error for a directory whose run another kind of trainer began."""
    was = f"by the declared override {before.attack}" if before else "without an override"
    return UsageError(
        f"{store.directory} contains a run that was begun {was}.",
        "Choose another directory with --out.",
    )
