"""A session as the fold of its referee's log (PROTOCOL 10 to 12).

Theory of operation. `apply` takes one entry after the other. After each of them `follows` names the
entry that follows from those before, and `overdue` the clock's entry that must stand before a given
time. An entry takes effect only if it is the one that is due, or, where none is, a message that has
an effect. So two readers of one log have one session, the referee's own driver (arbiter.py) among
them, and a log that a referee could not have written convicts the referee (12.5).
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.commit.encoding import sha256
from tallystick.commit.signed import same_words
from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    CONVICTED,
    FIRST,
    NO_RESULT,
    NONE_ACCEPTED,
    UNCONTESTED,
    Answered,
    Asked,
    DeviationError,
    Entry,
    Event,
    Forfeited,
    GameBegun,
    GameEnded,
    NoEffectError,
    OpeningClosed,
    Result,
    Resumed,
    Sealed,
    SealingClosed,
    SealOpened,
    SessionBegun,
)
from tallystick.delegation.match import Match, Member, pairs_of, sides_of
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import Seal, SealOpening, open_opening, open_seal, opened_run
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.numerics.contracts import find_contract
from tallystick.program.terms import Terms
from tallystick.protocol.forfeit import open_forfeit

NOT_BEGUN, SEALING, OPENING, PLAYING, ENDED = "not begun", "sealing", "opening", "playing", "ended"
# Why a key is no party any more.
EXCLUDED, LOST, NEVER_OPENED = "excluded", "lost", "never opened"


def check_rules(terms: Terms, rules: Rules) -> None:
    """Raise UsageError for rules of another job, or of k > 2 under a contract with logs (10.1)."""
    if rules.job_digest != terms.digest:
        raise UsageError("The session is about another job.", "Pass the job that it names.")
    contract = find_contract(terms.commitment.contract)
    if contract.keeps_log and rules.most > 2:
        raise UsageError(
            f"Under {contract.name} only two parties can be compared, because a run also depends "
            "on a log.",
            "Choose at most 2 parties, or a contract without logs (rounded/1).",
        )


class Session:
    """A session about the job of `terms`, as far as its log has come.

    `state` is one of the names above. `seals` has each key's seal, `members` the parties that have
    opened, `removed` why a key is out (EXCLUDED, LOST or NEVER_OPENED), `matches` all games by
    number, `result` the last entry's event. `session` is the digest that names it (10.1.1).
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.state = NOT_BEGUN
        self.rules: Rules | None = None
        self.session = b""
        self.length, self.time, self.last = 0, 0, FIRST
        self.seals: dict[PublicKey, tuple[Seal, bytes]] = {}
        self.openings: dict[PublicKey, bytes] = {}
        self.members: dict[PublicKey, Member] = {}
        self.removed: dict[PublicKey, str] = {}
        self.matches: list[Match] = []
        self.rounds = 0
        self.result: Result | None = None
        self._round: list[Match] = []  # the games of this round
        self._closing = 0  # the deadline of the sealing, then of the opening

    # -- what is due (12.4) ------------------------------------------------------------------------

    def follows(self) -> Event | None:
        """The entry that follows from the log so far; None where only a party or time can add."""
        if self.state == SEALING:
            return SealingClosed() if self._all_sealed() else None
        if self.state == OPENING:
            waits = any(k not in self.openings and k not in self.removed for k in self.seals)
            return None if waits else OpeningClosed()
        if self.state != PLAYING:
            return None
        for match in self._round:
            event = match.follows()
            if event is not None:
                return event
        return None if any(not match.ended for match in self._round) else self._ending()

    def overdue(self, now: int) -> tuple[int, Event] | None:
        """The first deadline before `now` and its entry; a forfeit's message is still empty."""
        found = next(iter(sorted(self._deadlines(), key=lambda d: d[:3])), None)
        return (found[0], found[3]) if found is not None and found[0] < now else None

    def next_deadline(self) -> int | None:
        """The next moment at which a clock's entry may become due."""
        return min((deadline for deadline, *_ in self._deadlines()), default=None)

    def _deadlines(self) -> Iterator[tuple[int, int, int, Event]]:
        """(deadline, game, party, entry); sealing and opening count as the lowest game."""
        if self.state == SEALING:
            yield self._closing, -1, 0, SealingClosed()
        elif self.state == OPENING:
            yield self._closing, -1, 0, OpeningClosed()
        elif self.state == PLAYING:
            for match in self._round:
                for deadline, party in match.deadlines():
                    yield deadline, match.number, party, Forfeited(match.number, party, b"")

    def _all_sealed(self) -> bool:
        allowed = self._rules.allowed
        return bool(allowed) and all(key in self.seals for key in allowed)

    @property
    def _rules(self) -> Rules:
        assert self.rules is not None
        return self.rules

    # -- entries -----------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Let an entry take effect whose signature was verified (entries.open_entry).

        Raises DeviationError for one that no referee of these rules writes (12.5), CorruptFileError
        for one that does not continue this log, and UsageError for a log of another job, or with
        rules that the job of `terms` does not allow (10.1.2): the session has not changed then.
        Raises CannotCheckError (a subclass) where this machine or build cannot judge an answer:
        the session must be folded again then.
        """
        self._check_place(entry)
        event = entry.event
        if not isinstance(event, (SessionBegun, Resumed)):
            self._check_due(entry)
        try:
            self.check(event)
        except CounterpartyError as error:
            raise DeviationError(entry.index, "12.5", _within(error.message)) from error
        except UsageError as error:
            raise DeviationError(entry.index, "12.5", _within(error.message)) from error
        away = entry.time - self.time
        self.length, self.last, self.time = entry.index + 1, entry.digest(), entry.time
        self._take(event, away)

    def _check_place(self, entry: Entry) -> None:
        """Index, chain, time, and the beginning and end of the log (12.1).

        An entry that does not continue the log says nothing about the referee (12.5.3). Such a one
        is shown by a person who takes an entry out of an honest log, or mixes two sessions' logs.
        """
        index = entry.index
        if index != self.length or entry.previous != self.last:
            raise CorruptFileError(
                f"Entry {index} does not continue the log before it, which has {self.length} "
                "entries: some are missing, or are another session's.",
                "Get all entries of one session again.",
            )
        if self.state == NOT_BEGUN and isinstance(entry.event, SessionBegun):
            check_rules(self.terms, entry.event.rules)  # 10.1.2
        if entry.time < self.time:
            raise DeviationError(index, "12.1", "its time is before that of the entry before it")
        if isinstance(entry.event, SessionBegun) != (self.state == NOT_BEGUN):
            raise DeviationError(index, "12.2", "a session begins with entry 0 and no other")
        if self.state == ENDED:
            raise DeviationError(index, "12.2", "it stands after the result")

    def _check_due(self, entry: Entry) -> None:
        """The entry is the one that is due, if one is (12.4)."""
        due = self.follows()
        if due is None:
            late = self.overdue(entry.time)
            due = None if late is None else late[1]
        if due is not None and not self._fits(due, entry.event):
            raise DeviationError(
                entry.index, "12.4", f"{_name(entry.event)} stands where {_name(due)} was due"
            )
        if due is None and not isinstance(entry.event, (Sealed, SealOpened, Answered)):
            raise DeviationError(entry.index, "12.4", f"{_name(entry.event)} is not due")

    def _fits(self, due: Event, event: Event) -> bool:
        if not isinstance(due, Forfeited) or not isinstance(event, Forfeited):
            return due == event
        if (due.game, due.party) != (event.game, event.party):
            return False
        try:
            word = open_forfeit(event.message)
        except CounterpartyError:
            return False
        return word == self.matches[due.game].forfeit(due.party)

    def check(self, event: Event) -> None:
        """Raise CounterpartyError or UsageError for an event without effect here (12.5).

        It judges the messages of parties.
        """
        if isinstance(event, Sealed):
            self._check_seal(open_seal(event.message))
        elif isinstance(event, SealOpened):
            self._check_opening(open_opening(event.message), event.message)
        elif isinstance(event, Answered):
            if self.state != PLAYING or event.game >= len(self.matches):
                raise NoEffectError("There is no such game.", "Refuse the message.")
            self.matches[event.game].check(event)

    def _check_seal(self, seal: Seal) -> None:
        """A seal that counts, or that excludes its key (10.2.1)."""
        rules, known = self._rules, self.seals.get(seal.key)
        if self.state != SEALING or seal.session != self.session:
            raise NoEffectError("The seal is late, or of another session.", "Refuse it.")
        if seal.key == rules.referee or (rules.allowed and seal.key not in rules.allowed):
            raise NoEffectError("This key may not take part.", "Refuse the seal.")
        if known is None and len(self.seals) >= rules.most:
            raise NoEffectError("The session has all its parties.", "Refuse the seal.")
        if seal.key in self.removed or (known is not None and known[0] == seal):
            raise NoEffectError("The seal has no effect any more.", "Ignore it.")

    def _check_opening(self, opening: SealOpening, message: bytes) -> None:
        """An opening that counts, or that excludes its key (10.3.1)."""
        if self.state != OPENING or opening.session != self.session:
            raise NoEffectError("The opening is late, early, or of another session.", "Refuse it.")
        if opening.key not in self.seals or opening.key in self.removed:
            raise NoEffectError("The opening's key has no seal that counts.", "Refuse it.")
        known = self.openings.get(opening.key)
        if known is not None and same_words(known, message):
            raise NoEffectError("The opening was there before.", "Ignore it.")

    # -- effects -----------------------------------------------------------------------------------

    def _take(self, event: Event, away: int) -> None:
        if isinstance(event, SessionBegun):
            self.rules, self.session, self.state = event.rules, self.last, SEALING
            self._closing = event.rules.sealing
        elif isinstance(event, Resumed):
            self._closing += away
            for match in self._round:
                match.pause(away)
        elif isinstance(event, Sealed):
            self._take_seal(open_seal(event.message), event.message)
        elif isinstance(event, SealOpened):
            self._take_opening(open_opening(event.message), event.message)
        elif isinstance(event, SealingClosed):
            self.state, self._closing = OPENING, self.time + self._rules.opening
        elif isinstance(event, OpeningClosed):
            self._close_opening()
        elif isinstance(event, Result):
            self.result, self.state = event, ENDED
        else:
            self._take_game(event)

    def _take_seal(self, seal: Seal, message: bytes) -> None:
        if seal.key in self.seals:
            self.removed[seal.key] = EXCLUDED
        else:
            self.seals[seal.key] = seal, message

    def _take_opening(self, opening: SealOpening, message: bytes) -> None:
        key, digest = opening.key, self.terms.digest
        run = opened_run(self.seals[key][0], opening, digest)
        if run is None or key in self.openings:
            self.removed[key] = EXCLUDED
            self.members.pop(key, None)
        else:
            self.members[key] = Member(key, opening.commitment, run)
        self.openings.setdefault(key, message)

    def _close_opening(self) -> None:
        for key in self.seals:
            if key not in self.openings:
                self.removed.setdefault(key, NEVER_OPENED)
        self.state = PLAYING
        self._next_round()

    def _take_game(self, event: Asked | Answered | Forfeited | GameBegun | GameEnded) -> None:
        match = self.matches[event.game]
        if isinstance(event, GameBegun):
            match.begin()
        elif isinstance(event, Asked):
            match.ask(event, self.time)
        elif isinstance(event, Answered):
            match.answer(event, self.time)
        elif isinstance(event, Forfeited):
            match.lose(event.party, event.message, self.time)
        else:
            match.ended = True
            for party, member in enumerate(match.members):
                if event.convicted >> party & 1:
                    self.removed[member.key] = LOST
            if all(m.ended for m in self._round):
                self._next_round()

    # -- sides (10.4 to 10.6) ----------------------------------------------------------------------

    @property
    def sides(self) -> list[list[Member]]:
        """The sides with the signers that are left, in order."""
        left = [m for key, m in self.members.items() if key not in self.removed]
        return sides_of(left)

    def _next_round(self) -> None:
        """Pair the sides, unless a game of the last round could not be decided (10.5.2)."""
        if self._undecided():
            self._round = []
            return
        pairs = pairs_of(self.sides)
        first = len(self.matches)
        self.rounds += bool(pairs)
        self._round = [
            Match(first + i, self.rounds, pair, self.terms, self._rules)
            for i, pair in enumerate(pairs)
        ]
        self.matches += self._round

    def _undecided(self) -> bool:
        return any(m.ending is not None and m.ending.outcome != CONVICTED for m in self.matches)

    def _ending(self) -> Result:
        """The result, where no round follows (10.6)."""
        sides = self.sides
        if self._undecided():
            return Result(NO_RESULT)
        if not sides:
            return Result(NONE_ACCEPTED)
        outcome = CONTESTED if self.matches else UNCONTESTED if len(self.members) > 1 else ALONE
        return Result(outcome, sha256(sides[0][0].commitment))


def _name(event: Event) -> str:
    return f"an entry of kind {event.KIND} ({type(event).__name__})"


def _within(message: str) -> str:
    """A message's sentence as a part of another one."""
    return message[:1].lower() + message[1:].rstrip(".")
