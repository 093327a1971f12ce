"""A referee's log, judged by anyone who has the job's terms (PROTOCOL 12.5)."""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.commit.compact import split_compact
from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import (
    ENTRY_TYPE,
    FIRST,
    DeviationError,
    Entry,
    SessionBegun,
    open_entry,
)
from tallystick.delegation.session import Session
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms


def replayed(terms: Terms, log: Iterable[bytes]) -> Session:
    """The session that the signed entries of a log tell, from entry 0 on.

    Raises DeviationError for an entry that convicts the referee. Raises CorruptFileError for bytes
    that the referee has not signed, and for entries that are not one session's from the first one
    on: they convict no referee (12.5.3). Raises UsageError for a log about another job,
    CannotCheckError where this machine or build cannot judge an answer.
    """
    session = Session(terms)
    for message in log:
        referee = None if session.rules is None else session.rules.referee
        session.apply(opened(message, referee, session.length))
    return session


def opened(message: bytes, referee: PublicKey | None, index: int) -> Entry:
    """The entry in a message. A referee that signs what is no entry deviates (12.5)."""
    try:
        return open_entry(message, referee)
    except CorruptFileError as error:
        signed = split_compact(message, LIMITS.entry_bytes, "log entry")
        if referee is None or not signed.verified(ENTRY_TYPE, referee):
            raise
        raise DeviationError(index, "12.1", "it is signed, and is not an entry") from error


def contradiction(one: Iterable[bytes], two: Iterable[bytes]) -> DeviationError | None:
    """Two copies of one session's log: the equivocation in them (12.5.1), None where they agree.

    One copy may be longer. Raises CorruptFileError for bytes that the referee has not signed, for
    logs of different sessions, and for entries that do not continue theirs.
    """
    referee: PublicKey | None = None
    last = FIRST
    for index, (first, second) in enumerate(zip(one, two, strict=False)):
        a, b = open_entry(first, referee), open_entry(second, referee)
        for entry in (a, b):
            if (entry.index, entry.previous) != (index, last):  # 12.5.3: of another session
                raise CorruptFileError(
                    f"Entry {entry.index} does not continue its log.", "Get the whole log again."
                )
        if a != b:
            if index == 0:
                raise CorruptFileError("These are logs of two sessions.", "Compare one session's.")
            return DeviationError(index, "12.5.1", "the referee has signed two such entries")
        if isinstance(a.event, SessionBegun):
            referee = a.event.rules.referee
        last = a.digest()
    return None
