"""How workers find out, before the first byte of a run, that they execute the same thing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from tallystick.errors import UnsupportedVersionError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.run.distributed.transport import Meeting, Transport, WorkerError

_GO = "go"
_WAIT_SECONDS = 0.02
_LONGEST = 1 << 16  # bytes of an introduction that are looked at


def introduction(job: Job, checks: bool = False) -> dict[str, str]:
    """What must be the same for all workers. Threads and instruction set may differ.

    The job digest says nothing of an evaluation, whose slots all workers hold."""
    programs, evaluation = job.commitment.timetable.programs, job.evaluation
    return {
        "version of Tallystick": tallystick_version(),
        "contract": job.commitment.contract,
        "job digest": job.digest.hex(),
        "programs": ", ".join(p.digest.hex() for p in programs),
        "micro-batches": ", ".join(str(p.micro_batches) for p in programs),
        "evaluation": "none" if evaluation is None else evaluation.program_digest.hex(),
        "check of workers": "on" if checks else "off",
    }


def difference(ours: Mapping[str, str], theirs: Mapping[str, str], rank: int) -> str | None:
    """A sentence about the first thing that differs; None where all is the same."""
    for what, value in ours.items():
        if theirs.get(what) != value:
            other = str(theirs.get(what, "none"))[:80]
            return (
                f"Worker {rank} does not execute the same: its {what} is {other}, not {value[:80]}."
            )
    return None


def join(meeting: Meeting, job: Job, checks: bool = False) -> Transport:
    """Say what this worker executes, wait for worker 0's word, and connect.

    Raises PeerLostError, WorkerError where worker 0 refuses one of the workers."""
    meeting.put(f"hello/{meeting.rank}", json.dumps(introduction(job, checks)).encode())
    refusal = meeting.get(_GO).decode()
    if refusal:
        raise WorkerError(refusal, "Start all workers with the same job and the same version.")
    return meeting.connect()


def welcome(
    meeting: Meeting, job: Job, check: Callable[[], None], checks: bool = False
) -> Transport:
    """Wait for all workers, compare them, and connect: worker 0's part of `join`.

    `check` raises where a worker is known to be dead already. Raises UnsupportedVersionError where
    a worker executes something else, WorkerError where one does not come within the timeout.
    """
    ours, end = introduction(job, checks), time.monotonic() + meeting.timeout
    for rank in range(1, meeting.size):
        while not meeting.has(f"hello/{rank}"):
            check()
            if time.monotonic() > end:
                raise WorkerError(
                    f"Worker {rank} did not come within {meeting.timeout:g} seconds.",
                    "Look at its machine, or allow more time (--timeout).",
                )
            time.sleep(_WAIT_SECONDS)
        try:
            theirs = json.loads(meeting.get(f"hello/{rank}")[:_LONGEST])
        except (ValueError, RecursionError):
            theirs = {}
        refusal = difference(ours, theirs if isinstance(theirs, dict) else {}, rank)
        if refusal is not None:
            meeting.put(_GO, refusal.encode())
            raise UnsupportedVersionError(
                refusal, "Start all workers with the same job and the same version of Tallystick."
            )
    meeting.put(_GO, b"")
    return meeting.connect()
