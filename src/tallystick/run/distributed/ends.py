"""What the journal and the user learn of a worker that ended a session of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tallystick.disk.files import locked
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.run.distributed.faults import WorkerError
from tallystick.run.distributed.team import Team
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import (
    CONVICTED,
    ENDED_BY,
    ENDED_WHEN_DRAWN,
    Journal,
    journal_limit,
)


def name_who_ended(error: WorkerError, team: Team, out: Path) -> None:
    """Record in the journal of the run at `out` that the worker of `error` has ended the session.

    Where its work was drawn just then, `error` says so, and how often that has happened: a worker
    that lies may see by the time that others take that it is drawn.
    """
    rank, checks = error.rank, team.checks
    if rank is None:
        return
    drawn = checks is not None and rank in checks.open
    sessions = _record(team.job, out, {ENDED_BY: rank, ENDED_WHEN_DRAWN: drawn})
    if checks is None or not drawn:
        return
    ends = [session for session in sessions if session.get(ENDED_BY) == rank]
    times = sum(session.get(ENDED_WHEN_DRAWN) is True for session in ends)
    error.message += (
        f" Worker {rank} ended the run in step {checks.step} when its work was drawn to be "
        f"computed again: so it was {times} of the {len(ends)} times that it ended this run. An "
        f"honest worker's work is drawn with probability {checks.chance(rank):.2g}."
    )


def record_conviction(worker: int, team: Team, out: Path) -> None:
    """Record in the journal of the run at `out` that the session ended with the conviction of a
    worker."""
    _record(team.job, out, {CONVICTED: worker})


def _record(job: Job, out: Path, facts: Mapping[str, int]) -> Sequence[Mapping[str, object]]:
    """The run's sessions, when `facts` are appended to the last one; none where that fails: what
    has ended the session matters more."""
    store = RunStore(out)
    try:
        with locked(store.lock_path):
            journal = Journal.open(store.journal_path, job.digest, journal_limit(job))
            try:
                journal.session_broken(facts)
                return list(journal.content.sessions)
            finally:
                journal.close()
    except TallystickError:
        return []
