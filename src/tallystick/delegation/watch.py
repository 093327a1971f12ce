"""A referee's log, judged by anyone who has the job's terms (PROTOCOL 12.5)."""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.commit.signing import PublicKey
from tallystick.delegation.deviation import DeviationError
from tallystick.delegation.entries import SessionBegun, open_entry
from tallystick.delegation.session import Session
from tallystick.errors import CorruptFileError
from tallystick.program.terms import Terms


def replayed(terms: Terms, log: Iterable[bytes]) -> Session:
    """The session that the signed entries of a log tell, from entry 0 on.

    Raises DeviationError for an entry that convicts the referee, CorruptFileError for bytes that
    the referee has not signed: they say nothing about any one.
    """
    session = Session(terms)
    for message in log:
        referee = None if session.rules is None else session.rules.referee
        session.apply(open_entry(message, referee))
    return session


def contradiction(one: Iterable[bytes], two: Iterable[bytes]) -> DeviationError | None:
    """Two copies of one session's log: the equivocation in them (12.5.1), None where they agree.

    One copy may be longer. Raises CorruptFileError for bytes that the referee has not signed, and
    for logs of different sessions.
    """
    referee: PublicKey | None = None
    for index, (first, second) in enumerate(zip(one, two, strict=False)):
        a, b = open_entry(first, referee), open_entry(second, referee)
        if a != b:
            if index == 0:
                raise CorruptFileError("These are logs of two sessions.", "Compare one session's.")
            return DeviationError(index, "12.5.1", "the referee has signed two such entries")
        if isinstance(a.event, SessionBegun):
            referee = a.event.rules.referee
    return None
