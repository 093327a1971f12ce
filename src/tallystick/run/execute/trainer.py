"""The trainer: it trains a job into a run directory, or takes up the run that is there, and signs.

It opens and locks the directory; the loop over steps is in loop.py.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.disk.files import locked
from tallystick.disk.regular import lies_in
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.execute.engine import check_environment
from tallystick.run.execute.listener import Listener as Listener
from tallystick.run.execute.listener import Silent as Silent
from tallystick.run.execute.listener import Steady
from tallystick.run.execute.loop import Stop, TrainingLoop, interrupts
from tallystick.run.execute.options import Options as Options
from tallystick.run.logs.training import check_logs_kept, followed_run
from tallystick.run.show.estimate import check_disk
from tallystick.run.show.summary import RunSummary as RunSummary
from tallystick.run.show.summary import summary
from tallystick.run.store.claim import sign, signed_already
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal, journal_limit


def train_job(
    job: Job, out: Path, options: Options | None = None, listener: Listener | None = None
) -> RunSummary:
    """Train `job` into the run directory `out`, or resume the run that is there.

    Raises UsageError for a directory that holds other files, StorageError for a full disk or a
    directory that cannot be written (the same command resumes the run later), MismatchError when
    repeated steps give other bits than before, CounterpartyError for an altered job.
    """
    options = options or Options()
    with options.context.entered():
        return _train(job, out, options, Steady(listener or Silent()))


def _train(job: Job, out: Path, options: Options, listener: Steady) -> RunSummary:
    check_environment()
    store = RunStore(out)
    began = options.clock()
    if options.trace is not None and not 0 <= options.trace[0] < options.trace[1] <= job.steps:
        first, last = options.trace
        raise UsageError(
            f"The job has {job.steps} steps, so there is no range {first}:{last} to trace.",
            f"Choose A and B with 0 <= A < B <= {job.steps}.",
        )
    check_logs_kept(job, options.replay, options.compress)
    genesis = options.maker.verified(job)
    if options.overwrite:
        for used in (job.directory, options.replay):
            if used is not None and lies_in(used, out):
                raise UsageError(
                    f"{used} is inside {out}, which --overwrite would remove.",
                    "Use a copy of it elsewhere, or choose another directory with --out.",
                )
        followed_run(job, options.replay, options.compress)  # refused before anything is removed
        store.discard()
    if store.exists and store.stored_steps():
        genesis = None  # a stored state will be loaded: there need be memory for one state only
    _room_for_job(job, store)
    store.create(job)
    with locked(store.lock_path):
        options.maker.begin(job, store)
        journal = Journal.open(store.journal_path, job.digest, journal_limit(job))
        try:
            return _train_locked(job, store, journal, options, listener, genesis, began)
        finally:
            journal.close()


def _room_for_job(job: Job, store: RunStore) -> None:
    if not store.exists:
        check_disk(store.directory, job.disk_bytes, "the copy of the job alone")


def _train_locked(
    job: Job,
    store: RunStore,
    journal: Journal,
    options: Options,
    listener: Steady,
    genesis: State | None,
    began: float,
) -> RunSummary:
    stop = Stop()
    finished = journal.content.finished
    if finished:
        listener.notice(f"{store.directory} is finished already.")
    else:
        training = TrainingLoop(job, store, journal, options, listener, genesis)
        training.prepare()
        failed = False
        try:
            with interrupts(stop):
                finished = training.run(stop)
        except Exception:
            failed = True
            raise
        finally:
            training.close(failed)
    signer = ""
    if finished:
        signer = signed_already(store) or sign(store, job, journal, options.key)
    return summary(job, store, journal, signer, options.clock() - began)
