"""What a referee's log says, for a person: no job is needed, and no statement is judged.

The entries must be signed and linked, and the messages of parties that they hold must be whole.
Whether the referee was right is another question: watch.py plays the log again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.commit.signing import PublicKey, RunCommitment
from tallystick.delegation.entries import (
    FIRST,
    Answered,
    Asked,
    Entry,
    Forfeited,
    GameBegun,
    GameEnded,
    OpeningClosed,
    Result,
    Resumed,
    Sealed,
    SealingClosed,
    SealOpened,
    SessionBegun,
    open_entry,
)
from tallystick.delegation.match import Clock, Member, sides_of
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import Seal, open_opening, open_seal, opened_run
from tallystick.delegation.session import (
    ENDED,
    EXCLUDED,
    LOST,
    NEVER_OPENED,
    NOT_BEGUN,
    OPENING,
    PLAYING,
    SEALING,
)
from tallystick.errors import CorruptFileError


@dataclass
class PartyAccount:
    """A key that has sealed: times in milliseconds (PROTOCOL 11.1), None for what did not happen.

    `commitment` and `run` are those that it has opened. `removed` says why it is out, or is empty.
    """

    seal: Seal
    sealed: int
    opened: int | None = None
    commitment: bytes = b""
    run: RunCommitment | None = None
    removed: str = ""


@dataclass
class GameAccount:
    """One game. Rounds are counted from 1. `time` and `ended` are in milliseconds (PROTOCOL 11.1).

    `entries` are the indices of its questions, answers and forfeits in the log. By party,
    `questions` counts the questions and `clocks` has the time. `forfeits` are the parties whose
    time has passed. `ending` and `ended` are None while the game goes on.
    """

    begun: GameBegun
    round: int
    time: int
    clocks: tuple[Clock, Clock]
    entries: list[int] = field(default_factory=list)
    questions: list[int] = field(default_factory=lambda: [0, 0])
    forfeits: list[int] = field(default_factory=list)
    ending: GameEnded | None = None
    ended: int | None = None


class Account:
    """The entries that `take` was given, in order.

    `session` is the session's digest, `length` the number of entries, `time` that of the last one,
    `returns` how often the referee began again.
    """

    def __init__(self) -> None:
        self.state = NOT_BEGUN
        self.session, self.last = b"", FIRST
        self.length = self.time = self.began = self.returns = 0
        self.parties: dict[PublicKey, PartyAccount] = {}
        self.games: list[GameAccount] = []
        self.result: Result | None = None
        self._rules: Rules | None = None

    @property
    def rules(self) -> Rules:
        """The session's rules. Raises CorruptFileError where no entry is there."""
        if self._rules is None:
            raise CorruptFileError(
                "The log has no entry.", "Start the referee again, or get the log again."
            )
        return self._rules

    def take(self, message: bytes) -> Entry:
        """Take in the next signed entry.

        Raises CorruptFileError for one that the referee has not signed, that does not continue the
        log, or that no referee writes there; the account stays as it was.
        """
        entry = open_entry(message, None if self._rules is None else self._rules.referee)
        if (entry.index, entry.previous) != (self.length, self.last) or entry.time < self.time:
            raise self._refused(entry, "does not continue the log before it")
        away = entry.time - self.time
        try:
            self._take(entry, away)
        except (LookupError, ValueError):
            raise self._refused(entry, "names what the log does not have") from None
        self.length, self.last, self.time = entry.index + 1, entry.digest(), entry.time
        return entry

    @property
    def sides(self) -> list[list[Member]]:
        """The sides of all parties that have opened, the removed ones included (10.4)."""
        members = [
            Member(key, p.commitment, p.run)
            for key, p in self.parties.items()
            if p.run is not None and p.removed != EXCLUDED
        ]
        return sides_of(members)

    def _refused(self, entry: Entry, why: str) -> CorruptFileError:
        return CorruptFileError(
            f"Entry {entry.index} of the log {why}.",
            "Get the log again; `tallystick fsck --job` says whether its referee is to blame.",
        )

    def _take(self, entry: Entry, away: int) -> None:
        event = entry.event
        if isinstance(event, SessionBegun):
            if self._rules is not None:
                raise ValueError
            self._rules, self.session, self.began = event.rules, entry.digest(), entry.time
            self.state = SEALING
        elif isinstance(event, Sealed):
            self._seal(open_seal(event.message), entry.time)
        elif isinstance(event, SealingClosed):
            self.state = OPENING
        elif isinstance(event, SealOpened):
            self._open(event.message, entry.time)
        elif isinstance(event, OpeningClosed):
            self.state = PLAYING
            for party in self.parties.values():
                if party.opened is None and not party.removed:
                    party.removed = NEVER_OPENED
        elif isinstance(event, Resumed):
            self.returns += 1
            for game in self.games:
                for clock in game.clocks:
                    clock.pause(away)
        elif isinstance(event, Result):
            self.result, self.state = event, ENDED
        elif isinstance(event, GameBegun):
            self._begin(event, entry.time)
        else:
            self._play(entry, event)

    def _seal(self, seal: Seal, time: int) -> None:
        if seal.key in self.parties:
            self.parties[seal.key].removed = EXCLUDED
        else:
            self.parties[seal.key] = PartyAccount(seal, time)

    def _open(self, message: bytes, time: int) -> None:
        opening = open_opening(message)
        party = self.parties[opening.key]
        run = opened_run(party.seal, opening, self.rules.job_digest)
        if run is None or party.opened is not None:
            party.removed = EXCLUDED
        else:
            party.run, party.commitment = run, opening.commitment
        party.opened = time if party.opened is None else party.opened

    def _begin(self, event: GameBegun, time: int) -> None:
        if event.game != len(self.games) or not set(event.keys) <= self.parties.keys():
            raise ValueError
        before = self.games[-1].round if self.games else 0
        over = all(game.ending is not None for game in self.games)
        clocks = (Clock(self.rules), Clock(self.rules))
        self.games.append(GameAccount(event, before + over, time, clocks))

    def _play(self, entry: Entry, event: Asked | Answered | Forfeited | GameEnded) -> None:
        game = self.games[event.game]
        if game.ending is not None:
            raise ValueError
        if isinstance(event, GameEnded):
            game.ending, game.ended = event, entry.time
            for party, key in enumerate(game.begun.keys):
                game.clocks[party].stop(entry.time)
                if event.convicted >> party & 1:
                    self.parties[key].removed = LOST
            return
        game.entries.append(entry.index)
        clock = game.clocks[event.party]
        if isinstance(event, Asked):
            game.questions[event.party] += 1
            clock.ask(entry.time)
            return
        clock.stop(entry.time)
        if isinstance(event, Forfeited):
            game.forfeits.append(event.party)


def account(log: Iterable[bytes]) -> Account:
    """The account of a whole log. Raises as `Account.take`."""
    found = Account()
    for message in log:
        found.take(message)
    return found
