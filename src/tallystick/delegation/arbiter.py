"""The referee's driver of a session: it writes the log and makes the turns (PROTOCOL 12.3, 13).

Sans-IO: log, clock and key are injected. `tick` writes what is due, `take` logs a party's message,
`outgoing` gives the turns that parties should get now. All of it follows from the log, so a new
arbiter on the same log goes on where the old one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from tallystick.commit.signed import split_compact
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.entries import (
    Answered,
    Entry,
    Event,
    Forfeited,
    NoEffectError,
    Resumed,
    Sealed,
    SealOpened,
    SessionBegun,
    open_entry,
    sign_entry,
)
from tallystick.delegation.match import Match
from tallystick.delegation.rules import LATEST, Rules
from tallystick.delegation.seals import OPENING_TAG, SEAL_TAG
from tallystick.delegation.session import (
    ENDED,
    NOT_BEGUN,
    OPENING,
    PLAYING,
    SEALING,
    Session,
    check_rules,
)
from tallystick.delegation.turns import AskOpening, AskSeal, Ended, Play, Request, Turn, sign_turn
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.forfeit import sign_forfeit

# Bytes of a turn besides its messages: commitments, query, tags and counts.
_TURN_FRAME = 2 * LIMITS.commitment_bytes + LIMITS.query_bytes + 1024

# Entries of a sealing after which a return is not logged (11.5.2): two seals for each place and the
# closing still fit into a turn.
_MOST_BEGINNING = LIMITS.turn_entries - 2 * LIMITS.parties - 1


class SessionLog(Protocol):
    """A session's log: signed entries, in order."""

    def __iter__(self) -> Iterator[bytes]:
        """The entries there are."""

    def append(self, entry: bytes, /) -> object:
        """Add an entry. It is durable when the call returns (12.3)."""


class Arbiter:
    """Holds a session with `key` about the job of `terms`.

    `log` is the session's log. `now` gives the time in milliseconds (11.1). With an empty log a
    session begins by `rules`. Else the log's session goes on: `rules` are then None, or its own.

    Raises UsageError for rules that do not fit the job, the key or the log; DeviationError for a
    log that no referee has written; StorageError where the log cannot be written.
    """

    def __init__(
        self,
        terms: Terms,
        key: PrivateKey,
        log: SessionLog,
        now: Callable[[], int],
        rules: Rules | None = None,
    ) -> None:
        self.session = Session(terms)
        self._key, self._log, self._now = key, log, now
        self._stopped = False
        self._beginning: list[bytes] = []  # the entries to the closing of the sealing
        referee = None
        for message in log:
            entry = open_entry(message, referee)
            self._apply(entry, message)
            referee = self.rules.referee
        if self.session.length:
            self._go_on(rules)
        else:
            self._begin(terms, rules)

    def _begin(self, terms: Terms, rules: Rules | None) -> None:
        if rules is None:
            raise UsageError(
                "There is no session in this log, and there are no rules.",
                "Give the rules that a session is to have.",
            )
        if rules.referee != self._key.public:
            raise UsageError("The rules name another referee.", "Build them with this key.")
        check_rules(terms, rules)
        self._write(SessionBegun(rules))

    def _go_on(self, rules: Rules | None) -> None:
        if self.rules.referee != self._key.public:
            raise UsageError("The session in this log is another referee's.", "Use its key.")
        if rules is not None and rules != self.rules:
            raise UsageError(
                "The session in this log has other rules.", "Give none, or begin in an empty log."
            )
        sealing = self.session.state == SEALING
        if self.session.state != ENDED and not (sealing and self.session.length >= _MOST_BEGINNING):
            self._write(Resumed())
        self.tick()

    @property
    def rules(self) -> Rules:
        """The session's rules."""
        assert self.session.rules is not None
        return self.session.rules

    # -- entries -----------------------------------------------------------------------------------

    def tick(self) -> int | None:
        """Write all entries that are due now; the next deadline, or None without one.

        Raises StorageError where the log cannot be written, CannotCheckError after any error of a
        write and for a clock out of range (11.1): go on with a new arbiter on the log then.
        """
        return self._write_due(self._time())

    def _write_due(self, now: int) -> int | None:
        while True:
            event = self.session.follows()
            if event is None:
                late = self.session.overdue(now)
                if late is None:
                    return self.session.next_deadline()
                event = self._signed(late[1])
            self._write(event, now)

    def take(self, message: bytes, sender: PublicKey | None = None) -> None:
        """Log a party's signed seal, opening or answer, and write what follows from it.

        `sender` is the party that answers a query, where the caller knows it: only its games are
        looked at.

        Raises CounterpartyError for a message without effect here, NoEffectError among them. It is
        not logged, and convicts no party. Raises as `tick` besides.
        """
        # The message has come now. A later time would make an entry due before it (12.4).
        now = self._time()
        self._write_due(now)
        event = self._event(message, sender)
        if not isinstance(event, Answered):  # `_event` has checked answers
            self.session.check(event)
        self._write(event, now)
        self.tick()

    def _event(self, message: bytes, sender: PublicKey | None) -> Event:
        """What the message says it is; `Session.check` judges it."""
        data = split_compact(message, LIMITS.answer_bytes, "signed message").data
        if data.startswith(SEAL_TAG):
            return Sealed(message)
        if data.startswith(OPENING_TAG):
            return SealOpened(message)
        for match in self._games():
            for party, member in enumerate(match.members):
                if sender is not None and member.key != sender:
                    continue
                answered = Answered(match.number, party, message)
                try:
                    self.session.check(answered)
                except NoEffectError:
                    raise
                except (CorruptFileError, UsageError):
                    continue
                return answered
        raise NoEffectError("This message is not an answer to a query of a game.", "Refuse it.")

    def _games(self) -> list[Match]:
        if self.session.state != PLAYING:
            return []
        return [m for m in self.session.matches if m.begun and m.ending is None]

    def _signed(self, event: Event) -> Event:
        if not isinstance(event, Forfeited):
            return event
        word = self.session.matches[event.game].forfeit(event.party)
        return replace(event, message=sign_forfeit(self._key, word))

    def _time(self) -> int:
        now = max(self._now(), self.session.time)
        if now > LATEST:  # an entry with this time is none, and would end the log for everyone
            raise CannotCheckError(
                f"This machine's clock is at {now} milliseconds, a time that no log has.",
                "Set it right, and start the referee again. It goes on from its log.",
            )
        return now

    def _write(self, event: Event, now: int | None = None) -> None:
        if self._stopped:
            raise CannotCheckError(
                "The referee has stopped: an entry could not be written, or not be judged.",
                "Start it again. It goes on from its log.",
            )
        session = self.session
        time = max(self._time() if now is None else now, session.time)
        entry = Entry(session.length, session.last, time, event)
        message = sign_entry(self._key, entry)
        # Whether a failed entry is in the log is unknown here. Another one in its place could
        # contradict it (12.5.1).
        self._stopped = True
        self._log.append(message)  # 12.3: before it takes effect
        self._apply(entry, message)
        self._stopped = False

    def _apply(self, entry: Entry, message: bytes) -> None:
        if self.session.state in (NOT_BEGUN, SEALING):
            self._beginning.append(message)
        self.session.apply(entry)
        self._newest = message

    # -- turns (13.2) ------------------------------------------------------------------------------

    def invitation(self) -> bytes | None:
        """The turn that asks any party for its seal; None when the sealing is closed."""
        if self.session.state != SEALING:
            return None
        return self._turn(AskSeal(self._beginning[0]))

    def outgoing(self, known: dict[PublicKey, int] | None = None) -> dict[PublicKey, bytes]:
        """The turn for each party that owes something, by its key.

        `known` says how many messages of its game a party has already, by key: 0 without an entry.
        Where the missing messages do not fit into one turn, the turn brings a part of them and asks
        nothing. After the result every party that has sealed gets the end.
        """
        known = known or {}
        turns = {key: self.turn_for(key, known.get(key, 0)) for key in self.session.seals}
        return {key: turn for key, turn in turns.items() if turn is not None}

    def turn_for(self, key: PublicKey, known: int = 0) -> bytes | None:
        """The turn of `outgoing` for the party of `key` that has `known` messages; None without."""
        session = self.session
        if key not in session.seals:
            return None
        if session.state == OPENING:
            owes = key not in session.openings and key not in session.removed
            return self._turn(AskOpening(tuple(self._beginning))) if owes else None
        if session.state == ENDED:
            return self._turn(Ended(self._newest))
        for match in self._games():
            for party in match.owed:
                if match.members[party].key == key:
                    return self._turn(self._play(match, party, known))
        return None

    def _play(self, match: Match, party: int, first: int) -> Play:
        assert match.referee is not None
        # A party that still owes its answer is not shown the other one's (5.1, 13.2.1).
        transcript = match.referee.transcript[: match.referee.judged]
        first, room = min(first, len(transcript)), LIMITS.turn_bytes - _TURN_FRAME
        messages: list[tuple[int, bytes]] = []
        for seat, message in transcript[first : first + LIMITS.turn_messages]:
            room -= len(message) + 9
            if room < 0:
                break
            messages.append((seat, message))
        whole = first + len(messages) == len(transcript)
        commitments = (match.members[0].commitment, match.members[1].commitment)
        query = match.owed[party] if whole else b""
        return Play(match.number, party, commitments, first, tuple(messages), query)

    def _turn(self, request: Request) -> bytes:
        return sign_turn(self._key, Turn(self.session.session, request))
