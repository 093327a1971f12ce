"""How to train a run: what a caller may choose, and the maker of the run's parts.

No choice changes a bit, but for the maker: a trainer that cheats on purpose gets another one
(`run.cheats.training`) than that of an honest trainer, which is here. The trainer's own code knows
of no cheat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine
from tallystick.run.logs.training import TrainerLogs, trainer_logs
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal
from tallystick.run.store.stored_states import DEFAULT_KEEP
from tallystick.run.store.unsigned import Declaration, TraceRange, read_declaration


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


@dataclass
class Options:
    """How to train. No option but the maker of a cheat changes a bit of the run.

    The trainer stores `keep` states, evenly over the run, however long that takes. By default it
    stores a few, as long as that takes little time. `maker` makes the parts of the run.
    """

    context: ExecutionContext = DEFAULT
    keep: int | None = None
    key: PrivateKey | None = None
    trace: TraceRange | None = None
    # Under a contract that keeps logs: follow the rounding logs of this run; compress our own.
    replay: Path | None = None
    compress: bool = False
    overwrite: bool = False  # begin anew: a run that is there is removed
    maker: Maker = field(default_factory=Maker)
    # Stop before this step as if interrupted; for tests and demonstrations.
    stop_before: int | None = None
    clock: Callable[[], float] = time.monotonic

    @property
    def kept(self) -> int:
        """The number of states to keep."""
        return DEFAULT_KEEP if self.keep is None else self.keep
