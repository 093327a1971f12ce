"""The maker of a run that several workers execute: worker 0's trainer gets its parts from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tallystick.commit.state import CHAIN_START, LOG_CHAIN_SLOT, LOSS_CHAIN_SLOT
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.disk.tensorfile import TensorFile
from tallystick.errors import UsageError
from tallystick.job.job import STATE0, Job, altered
from tallystick.numerics.types import DTYPES
from tallystick.program.state import State
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.team import Team
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.maker import Maker
from tallystick.run.logs.training import TrainerLogs
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal


@dataclass
class TeamMaker(Maker):
    """Makes the parts of a run for the workers of `team`. No worker has a whole state."""

    team: Team
    begun: bool = False  # the journal has a record of this session

    def verified(self, job: Job) -> State | None:
        job.verify_but_state()
        return None

    def first_state(self, job: Job, verified: State | None) -> State:
        with job.open_genesis() as file:
            read = partial(self._genesis, job, file)
            state = self.team.load(0, read, (CHAIN_START, CHAIN_START))
        if state.loaded_root() != job.commitment.genesis_root:
            altered(job.directory / STATE0)
        return state

    def _genesis(self, job: Job, file: TensorFile, name: str, start: int, stop: int) -> Array:
        if name not in job.fills:
            return file.elements(name, start, stop)
        return np.full(stop - start, job.fills[name], DTYPES[self.team.types[name].dtype])

    def load_state(self, store: RunStore, job: Job, step: int, root: bytes) -> State:
        with store.open_state(job, step) as file:
            chains = tuple(file.raw(n).tobytes() for n in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT))
            state = self.team.load(step, file.elements, (chains[0], chains[1]))
        store.check_root(step, state.loaded_root(), root)
        return state

    def logs(
        self, job: Job, store: RunStore, journal: Journal, replay: Path | None, compress: bool
    ) -> TrainerLogs | None:
        if replay is not None:
            raise UsageError("Several workers cannot follow rounding logs.", "Use one worker.")
        return super().logs(job, store, journal, replay, compress)

    def engine(
        self,
        job: Job,
        state: State,
        step: int,
        context: ExecutionContext,
        logs: TrainerLogs | None,
        losses: Sequence[int],
    ) -> Engine:
        if self.team.checks is not None:
            self.team.checks.taken_up(len(losses))
        return TeamEngine(job, state, step, context, team=self.team)

    def session(self) -> dict[str, int]:
        self.begun = True
        return {"workers": self.team.transport.size}
