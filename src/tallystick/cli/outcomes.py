"""Outcomes of sessions for commands: from a file, or from a referee's log (PROTOCOL 14.6)."""

from __future__ import annotations

from pathlib import Path

from tallystick.delegation.book import Book
from tallystick.delegation.ended import outcome_of
from tallystick.delegation.ordered import check_session
from tallystick.delegation.outcome import Outcome
from tallystick.delegation.rules import Rules
from tallystick.delegation.statement import read_outcome
from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.regular import read_file
from tallystick.errors import UsageError
from tallystick.job.job_file import load_terms
from tallystick.limits import LIMITS


def outcome_in(path: str) -> Outcome:
    """The outcome in a file of canonical JSON."""
    return read_outcome(read_file(Path(path), LIMITS.envelope_bytes, "outcome"))


def outcome_in_log(directory: str, job: str | None) -> tuple[Outcome, Rules]:
    """The outcome of the session in a referee's directory, whose log is played again, and the
    session's rules. Raises DeviationError for a log that convicts its referee."""
    if job is None:
        raise UsageError("A log can only be replayed with its job.", "Pass the job with --job.")
    session = replayed(load_terms(Path(job)), EntryLog(Path(directory)))
    outcome = outcome_of(session)
    assert session.rules is not None
    return outcome, session.rules


def session_outcome(
    name: str,
    file: str | None,
    log: str | None,
    job: str | None,
    book: Book,
    first: Outcome | None = None,
) -> Outcome | None:
    """The outcome that options name, None where none does.

    With a log the session must be the one that the offer orders: its own, or after `first` the
    challenge session (14.5, 14.7.1). Raises MismatchError for another.
    """
    if file is not None and log is not None:
        raise UsageError(
            f"The outcome of the {name} was given twice.", "Pass either a file or a log."
        )
    if log is None:
        return None if file is None else outcome_in(file)
    outcome, rules = outcome_in_log(log, job)
    check_session(book, rules, first)
    return outcome
