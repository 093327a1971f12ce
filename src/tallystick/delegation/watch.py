"""What anyone makes of a referee's log: a judgement, with the job's terms (PROTOCOL 12.5), and the
outcome of a session that has ended (14.6).
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.commit.encoding import sha256
from tallystick.commit.signed import split_compact
from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import (
    CONVICTED,
    ENTRY_TYPE,
    FIRST,
    DeviationError,
    Entry,
    SessionBegun,
    open_entry,
)
from tallystick.delegation.match import Match
from tallystick.delegation.outcome import (
    ACCEPTING,
    Fate,
    Outcome,
    PlayedGame,
    SealedMember,
    claim_digest,
)
from tallystick.delegation.session import EXCLUDED, NEVER_OPENED, Session
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol import queries as q
from tallystick.protocol.messages import open_answer

# Queries about one step, which a party executes to answer them (14.6.1).
_OF_A_STEP = (
    q.Nodes, q.NodeHashes, q.NodeRecord, q.TensorHashes, q.Leaf, q.Values, q.Opening, q.Log,
    q.LogHashes, q.LogBlock,
)  # fmt: skip


def outcome_of(session: Session) -> Outcome:
    """The outcome of a session. Raises UsageError for one that has not ended."""
    if session.result is None or session.rules is None:
        raise UsageError("The session has not ended.", "Wait for the entry with its result.")
    result = session.result.outcome
    accepted = None
    if result in ACCEPTING:
        signed = (m for m in session.members.values() if sha256(m.commitment) ==
                  session.result.accepted)  # fmt: skip
        accepted = claim_digest(next(signed).run)
    fates = fates_of(session)
    return Outcome(
        offer=session.rules.offer,
        session=session.session,
        head=session.last,
        ended=session.time,
        result=result,
        accepted=accepted,
        members=tuple(fates[key] for key in sorted(fates, key=lambda key: key.raw)),
        games=tuple(_game(match, session) for match in session.matches),
    )


def fates_of(session: Session) -> dict[PublicKey, SealedMember]:
    """What became of each sealed key, in a session that has ended (PROTOCOL 14.6)."""
    silent = {m.members[party].key for m in session.matches for party in _silent(m)}
    found = {}
    for key in session.seals:
        why, member = session.removed.get(key), session.members.get(key)
        if why in (EXCLUDED, NEVER_OPENED) or member is None:
            fate = Fate.EXCLUDED if why == EXCLUDED else Fate.UNOPENED
            found[key] = SealedMember(key, fate, None)
            continue
        fate = Fate.REMAINING if why is None else Fate.SILENT if key in silent else Fate.CONVICTED
        found[key] = SealedMember(key, fate, claim_digest(member.run))
    return found


def _silent(match: Match) -> tuple[int, ...]:
    """The parties that the game's end removed by a forfeit."""
    ending = match.ending
    if ending is None or ending.outcome != CONVICTED:
        return ()
    return tuple(party for party in match.forfeits if ending.convicted >> party & 1)


def _game(match: Match, session: Session) -> PlayedGame:
    ending = match.ending
    bits = ending.convicted if ending is not None and ending.outcome == CONVICTED else 0
    first, second = match.members
    interval = session.terms.commitment.checkpoint_interval
    return PlayedGame(
        match.number,
        (first.key, second.key),
        (bool(bits & 1), bool(bits & 2)),
        (_executed(match, 0, interval), _executed(match, 1, interval)),
    )


def _executed(match: Match, party: int, interval: int) -> int:
    """The steps that the party's answers in the game count for (14.6.1)."""
    if match.referee is None:
        return 0
    states: set[int] = set()
    steps: set[int] = set()
    for at, message in match.referee.transcript:
        if at != party:
            continue
        query = q.decode_query(open_answer(message, match.members[party].key).query)
        if isinstance(query, q.States):
            states.update(query.steps)
        elif isinstance(query, _OF_A_STEP):
            steps.add(query.step)
    return tariff(states, steps, interval)


def tariff(states: set[int], steps: set[int], interval: int) -> int:
    """The steps that answers count for: kind 2 about `states`, other kinds about `steps` (14.6.1).

    `interval` is the number of steps between two checkpoints.
    """
    # From the checkpoint before the first state to the last one.
    repeated = max(states) - (min(states) - 1) // interval * interval if states else 0
    return repeated + len(steps)


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
