"""The other workers, as worker 0 sees them: what is known of them, who of them failed, and what the
journal and the user learn of that.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.disk.files import locked
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.run.distributed.team import Team
from tallystick.run.distributed.torchrun import check_signalled
from tallystick.run.distributed.transport import RESUME, Meeting, PeerLostError, WorkerError
from tallystick.run.distributed.worker import FAULT, LAST_WORDS, LOST
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import (
    CONVICTED,
    CONVICTED_TOO,
    ENDED_BY,
    ENDED_WHEN_DRAWN,
    Journal,
    journal_limit,
)
from tallystick.started import Child


def name_who_ended(error: WorkerError, team: Team, out: Path) -> None:
    """Record in the journal of the run at `out` that the worker of `error` has ended the session.

    Where its work was drawn just then, `error` says so, and how often that has happened: a worker
    that lies may see by the time that others take that it is drawn. Of bytes that arrived altered
    nothing is recorded: sender, receiver or the network between them has altered them.
    """
    rank, checks = error.rank, team.checks
    if rank is None or error.accuses:
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


def record_convictions(workers: Sequence[int], team: Team, out: Path) -> None:
    """Record in the journal of the run at `out` that the session ended with the conviction of one
    worker, or of both parties of a dispute."""
    _record(team.job, out, dict(zip((CONVICTED, CONVICTED_TOO), workers, strict=False)))


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


LAST_WORDS_SECONDS, _GRACE_S = 3.0, 10.0


@dataclass
class Others:
    """The other workers, as worker 0 sees them: processes that it started, or torchrun's."""

    meeting: Meeting
    processes: dict[int, Child] = field(default_factory=dict)

    def start(self, module: str, given: Mapping[str, Any]) -> None:
        """Start the other workers on this machine: `module`, which is told `given` and where to
        meet."""
        for rank in range(1, self.meeting.size):
            told = {
                "rank": rank,
                "size": self.meeting.size,
                "timeout": self.meeting.timeout,
                "port": self.meeting.port,
                **given,
            }
            self.processes[rank] = Child(module, json.dumps(told))

    def check(self) -> None:
        """Raise WorkerError where one of them is known to have ended."""
        check_signalled()
        why = self._known()
        if why is not None:
            raise why

    def explained(self, error: PeerLostError) -> WorkerError:
        """The error for the worker that failed first, by what the processes and the others' last
        words say; else `error` itself. Where all that is known is who has lost whom, it is of the
        worker that all losses lead to, and of none where they lead to none."""
        end = time.monotonic() + LAST_WORDS_SECONDS
        while time.monotonic() < end:
            why = self._known()
            if why is not None:
                return why
            time.sleep(0.05)
        if error.rank is None:
            return error
        seen, rank = [0], error.rank
        while rank not in seen:
            seen.append(rank)
            lost = self._word(f"{LOST}/{rank}")
            if not lost:
                if rank == error.rank:
                    return error
                return PeerLostError(rank, f"worker {seen[-2]} has lost its connection")
            rank = self._rank(lost)
        return PeerLostError(
            None, "workers " + ", ".join(map(str, sorted(seen))) + " have lost each other"
        )

    def _rank(self, word: str) -> int:
        """The worker that a last word names; 0, of whom nothing is concluded, where it names
        none."""
        known = {str(rank): rank for rank in range(self.meeting.size)}
        return known.get(word, 0)

    def _known(self) -> WorkerError | None:
        """The error for a worker that is known to have failed by itself."""
        for rank, why in self._failed():
            return WorkerError(f"Worker {rank} {why}", RESUME).of(rank)
        return None

    def _failed(self) -> Iterator[tuple[int, str]]:
        codes = {rank: child.code() for rank, child in self.processes.items()}
        for rank, code in codes.items():
            if code is not None and code < 0:
                pid = self.processes[rank].pid
                yield rank, f"(process {pid}) was killed by {_signal(-code)}."
        for rank in range(1, self.meeting.size):
            fault = self._word(f"{FAULT}/{rank}")
            if fault:
                try:
                    message = str(json.loads(fault)[0])
                except (ValueError, LookupError, TypeError, RecursionError):
                    message = "it does not say why."
                yield rank, f"ended: {message}"
        for rank, code in codes.items():
            if code is not None and not self._word(f"{LOST}/{rank}"):
                pid = self.processes[rank].pid
                yield rank, f"(process {pid}) ended with exit code {code}."

    def _word(self, key: str) -> str:
        try:
            words = self.meeting.get(key) if self.meeting.has(key) else b""
            return words[:LAST_WORDS].decode(errors="replace")
        except (RuntimeError, PeerLostError):
            return ""

    def end(self) -> None:
        """End the processes that worker 0 started: their standard input closes."""
        for child in self.processes.values():
            child.dismiss()
        for child in self.processes.values():
            child.end(_GRACE_S)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
