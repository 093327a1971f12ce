"""Worker 0: it starts or finds the others, trains, and says who failed.

On one machine it starts the other workers itself (`--workers`). Where torchrun has started all of
them, on one machine or many, it is one of them. Its trainer gets the parts of the run from a
maker, which makes those that several workers execute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.state import CHAIN_START, LOG_CHAIN_SLOT, LOSS_CHAIN_SLOT
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.disk.tensorfile import TensorFile
from tallystick.errors import TallystickError, UsageError
from tallystick.job.job import STATE0, Job, altered
from tallystick.numerics.types import DTYPES
from tallystick.program.state import State
from tallystick.run.distributed.checks import ShareChecks
from tallystick.run.distributed.claims import FalseShareError, WorkerConvictedError, check_two
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.going_on import GoingOn, train_on
from tallystick.run.distributed.hello import welcome
from tallystick.run.distributed.others import Others, name_who_ended, record_convictions
from tallystick.run.distributed.team import Order, Team, owners_of
from tallystick.run.distributed.torchrun import outliving_sigterm, say_ending
from tallystick.run.distributed.transport import (
    Meeting,
    PeerLostError,
    Transport,
    WorkerError,
    launched,
)
from tallystick.run.distributed.worker import Answering, work
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.listener import Listener
from tallystick.run.execute.options import Maker
from tallystick.run.execute.trainer import Options, RunSummary, train_job
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


DEFAULT_TIMEOUT = 1800.0
_MODULE = "tallystick.run.distributed.worker"


def threads_each(workers: int) -> int:
    """The threads of each worker on a machine that they share, where the user names none."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return max(1, cores // workers)


def workers_of(asked: int | None) -> int:
    """The number of workers of this call: torchrun's, or as many as the user asks for.

    Raises UsageError where the two differ."""
    found = launched()
    if found is None:
        return asked or 1
    if asked is not None and asked != found[1]:
        raise UsageError(
            f"torchrun started {found[1]} workers, but --workers is {asked}.",
            "Leave --workers out.",
        )
    return found[1]


def timeout_of(seconds: float | None, workers: int) -> float:
    """The seconds after which a silent worker counts as dead: `seconds`, or the default. Raises
    UsageError where `seconds` is given for one worker alone."""
    if seconds is not None and workers == 1 and launched() is None:
        raise UsageError(
            "With one worker, there is no other worker to wait for.",
            "Use --workers 2 or more, or leave --timeout out.",
        )
    return DEFAULT_TIMEOUT if seconds is None else seconds


def train_by(
    workers: Workers,
    job: Job,
    out: Path,
    options: Options,
    listener: Listener | None,
    how: GoingOn | None = None,
) -> RunSummary:
    """Train `job` with `workers`, one of them as `train_job` does, and go on with others as `how`
    says. Raises as `train_on`, `train_with` and `train_job`."""
    if workers.checking is not None:
        check_two(workers.count)

    def once(left: int, given: Options) -> RunSummary:
        if left == 1:
            return train_job(job, out, given, listener)
        return train_with(replace(workers, count=left), job, out, given, listener)

    return train_on(once, workers.count, options, how or GoingOn())


@dataclass(frozen=True)
class Checking:
    """How shares of the workers are checked (checks.py): worker 0 draws `fraction` of them.

    The other workers are started as `python -m module`, with `extra` in their arguments. Where two
    have signed different things, `settle` gets worker 0's checks, and returns the error that ends
    the run; the other workers answer by `answering`.
    """

    fraction: float
    module: str
    settle: Callable[[ShareChecks], TallystickError]
    answering: Answering
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise UsageError(
                f"--check-workers {self.fraction} is out of range.",
                "Give a number above 0 and at most 1, such as --check-workers 0.1.",
            )


@dataclass(frozen=True)
class Workers:
    """The workers of a run, of which this process is the first: the device of those that it
    starts, the seconds after which a silent one counts as dead, and how they are checked."""

    count: int
    device: str = "cpu"
    timeout: float = DEFAULT_TIMEOUT
    checking: Checking | None = None


@outliving_sigterm
def train_with(
    workers: Workers, job: Job, out: Path, options: Options, listener: Listener | None
) -> RunSummary:
    """Train `job` with two workers or more.

    `options.context` is this worker's; the others get as many threads. With `workers.checking` they
    sign their shares, and compute some of each other's again. Raises as `train_job`; WorkerError
    where a worker fails; UsageError where the job is not for so many; the error of
    `checking.settle` where a worker has signed a false share.
    """
    owners_of(job, workers.count)
    if options.trace is not None:
        raise UsageError(
            "Several workers cannot keep node digests (--trace).",
            "Leave --trace out, or train with one worker. The bits are the same.",
        )
    meeting, checking = Meeting(0, workers.count, workers.timeout), workers.checking
    others = Others(meeting)
    transport: Transport | None = None
    team: Team | None = None
    try:
        if launched() is None:
            others.start(
                checking.module if checking is not None else _MODULE,
                {
                    "job": str(job.directory),
                    "threads": options.context.threads,
                    "device": workers.device,
                    **(checking.extra if checking is not None else {}),
                },
            )
        transport = welcome(meeting, job, others.check, checking is not None)
        checks = None
        if checking is not None:
            checks = ShareChecks(job, transport, options.context, checking.fraction)
        team = Team(job, transport, options.context, checks)
        return lead(team, out, options, listener, checking, others.explained)
    except PeerLostError as error:
        raise (error if team is not None else others.explained(error)) from error.__cause__
    finally:
        say_ending(meeting)
        _dismiss(team, transport)
        others.end()


def lead(
    team: Team,
    out: Path,
    options: Options,
    listener: Listener | None = None,
    checking: Checking | None = None,
    explained: Callable[[PeerLostError], WorkerError] = lambda error: error,
) -> RunSummary:
    """Train as worker 0 of `team`, whose other workers follow. `explained` finds out whose end has
    cut a connection. Raises as `train_with`."""
    maker = TeamMaker(team)
    try:
        return _lead(team, out, replace(options, maker=maker), listener, checking)
    except WorkerConvictedError as error:
        record_convictions([one.worker for one in error.convicted], team, out)
        raise
    except WorkerError as error:
        found = explained(error) if isinstance(error, PeerLostError) else error
        found.begun = maker.begun
        if maker.begun:
            name_who_ended(found, team, out)
        if found is error:
            raise
        raise found from error


def _lead(
    team: Team,
    out: Path,
    options: Options,
    listener: Listener | None,
    checking: Checking | None,
) -> RunSummary:
    try:
        return train_job(team.job, out, options, listener)
    except FalseShareError as error:
        assert team.checks is not None and checking is not None
        team.give(Order.DISPUTE)
        with team.all_alike(), options.context.entered():
            found = checking.settle(team.checks)
        raise found from error


def _dismiss(team: Team | None, transport: Transport | None) -> None:
    """Tell waiting workers that the run is over or paused; cut off those that wait for a dead
    one. A team may have failed before it was made: its connections end too, for another one's."""
    try:
        if team is not None and team.idle:
            team.give(Order.END)
    except PeerLostError:
        pass
    if transport is not None:
        transport.close()


def as_launched(
    job: Path,
    threads: int | None,
    device: str,
    timeout: float,
    answering: Answering | None = None,
) -> Callable[[], int] | None:
    """What this process is to do if torchrun started it as a worker other than the first: be that
    worker; the result is the exit code. It raises PeerLostError where worker 0 is gone, and nobody
    else says so."""
    found = launched()
    if found is None or found[0] == 0:
        return None
    rank, size = found
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    count = threads or threads_each(local)
    # On worker 0's machine it has hashed the job's records itself; on another one a worker does.
    verify = os.environ.get("LOCAL_RANK") == "0"

    def be() -> int:
        return work(Meeting(rank, size, timeout), job, count, device, verify, answering)

    return be
