"""The sessions of referees about kept answers, on the disk: `sessions/JOB` in the keeper's
directory, which `serve --answers` writes (prover.sessions).

A session that began before a promise ended is answered to its end, so its answer is not deleted
while it may go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tallystick.disk.files import remove_tree
from tallystick.disk.regular import is_directory, names, statuses

SESSIONS = "sessions"
# So long after its last record a session counts as over (ANSWERS 7.7.3).
SESSION_MS = 7 * 24 * 60 * 60 * 1000
_JOB = re.compile(r"[0-9a-f]{64}")


def sessions_of(directory: Path, job: bytes) -> Path:
    """Where the sessions about one job lie."""
    return directory / SESSIONS / job.hex()


def jobs_in_session(directory: Path, now: int) -> list[bytes]:
    """The jobs of which a session may still go on at `now`, in milliseconds since 1970."""
    return [job for job in _jobs(directory) if now - _newest(directory, job) <= SESSION_MS]


def forget_sessions(directory: Path, kept: Callable[[bytes], bool]) -> None:
    """Remove the records of sessions about answers that are not kept any more."""
    for job in _jobs(directory):
        if not kept(job):
            remove_tree(sessions_of(directory, job))


def _jobs(directory: Path) -> list[bytes]:
    room = directory / SESSIONS
    if not is_directory(room):
        return []
    return [bytes.fromhex(name) for name in names(room, directory) if _JOB.fullmatch(name)]


def _newest(directory: Path, job: bytes) -> int:
    found = statuses(sessions_of(directory, job), directory)
    return max((status.st_mtime_ns for _, status in found), default=0) // 1_000_000
