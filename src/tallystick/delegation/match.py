"""The games of a session: sides and pairs, a party's clock, and one game, which is the pure
referee, two clocks and forfeits (PROTOCOL 10.4, 10.5, 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tallystick.commit.signing import PublicKey, RunCommitment
from tallystick.delegation.entries import (
    CONVICTED,
    NO_VERDICT,
    UNDECIDED,
    Answered,
    Asked,
    Event,
    GameBegun,
    GameEnded,
    NoEffectError,
)
from tallystick.delegation.rules import Rules
from tallystick.errors import CannotCheckError
from tallystick.program.terms import Terms
from tallystick.protocol.evidence import Evidence
from tallystick.protocol.forfeit import Forfeit
from tallystick.protocol.game import BOTH
from tallystick.protocol.messages import open_answer
from tallystick.protocol.referee import Referee

# -- sides and pairs: equal claims stand together, arrival decides nothing (10.4, 10.5) ------------
Claim = tuple[bytes, int, int, bytes]


@dataclass(frozen=True)
class Member:
    """A party that has opened: its key, its commitment's envelope, and the run in it."""

    key: PublicKey
    commitment: bytes
    run: RunCommitment

    @property
    def claim(self) -> Claim:
        """All that the commitment says about the run (10.4); claims are compared in this order."""
        run = self.run
        return run.run_root, run.final_step, run.checkpoints, run.final_state_root


def sides_of(members: Iterable[Member]) -> list[list[Member]]:
    """The sides in order, each with its signers in order (10.4)."""
    sides: dict[Claim, list[Member]] = {}
    for member in sorted(members, key=lambda m: (m.claim, m.key.raw)):
        sides.setdefault(member.claim, []).append(member)
    return list(sides.values())


def pairs_of(sides: Sequence[Sequence[Member]]) -> list[tuple[Member, Member]]:
    """The games of a round: first signers of neighbouring sides. A last odd side waits (10.5)."""
    return [(a[0], b[0]) for a, b in zip(sides[::2], sides[1::2], strict=False)]


# -- a party's clock in one game (11.3 to 11.5) ----------------------------------------------------
class Clock:
    """The time that a party has left, in milliseconds. It runs while the party owes an answer."""

    def __init__(self, rules: Rules) -> None:
        self.left = rules.game_budget
        self.used = 0
        self._extension = rules.extension
        self._since: int | None = None

    @property
    def deadline(self) -> int | None:
        """The last moment at which the open answer is in time; None while no answer is owed."""
        return None if self._since is None else self._since + self.left

    def ask(self, now: int) -> None:
        """The party owes an answer from `now` on, with at least the extension left (11.4)."""
        self.left = max(self.left, self._extension)
        self._since = now

    def stop(self, now: int) -> None:
        """The answer is there, or the game has ended."""
        if self._since is not None:
            self.left -= now - self._since
            self.used += now - self._since
            self._since = None

    def pause(self, away: int) -> None:
        """The referee was away for `away` milliseconds, which count for no party (11.5.2)."""
        if self._since is not None:
            self._since += away


# -- a game ----------------------------------------------------------------------------------------
class Match:
    """Game `number`, of round `round` (from 1), between two members, as the log tells it.

    `owed` holds the queries that were put and not answered, by party. `ending` is the entry that
    the game's end has; None while it goes on. `why` says in words why a game has no verdict.
    """

    def __init__(
        self,
        number: int,
        round_: int,
        members: tuple[Member, Member],
        terms: Terms,
        rules: Rules,
    ) -> None:
        self.number, self.round, self.members = number, round_, members
        self.clocks = (Clock(rules), Clock(rules))
        self.owed: dict[int, bytes] = {}
        self.forfeits: dict[int, bytes] = {}
        self.ending: GameEnded | None = None
        self.why = ""
        self.begun = self.ended = False
        self.referee: Referee | None = None
        self._terms, self._rules = terms, rules

    # -- what follows (12.4) -----------------------------------------------------------------------

    def follows(self) -> Event | None:
        """The entry of this game that follows from the log so far; None while it waits."""
        if not self.begun:
            return GameBegun(self.number, (self.members[0].key, self.members[1].key))
        if self.ending is not None:
            return None if self.ended else self.ending
        assert self.referee is not None
        for party, query in sorted(self.referee.pending.items()):
            if party not in self.owed and party not in self.forfeits:
                return Asked(self.number, party, query)
        return None

    def deadlines(self) -> list[tuple[int, int]]:
        """(deadline, party) of every answer that is owed; none once the game has its end."""
        found = [(self.clocks[p].deadline, p) for p in self.owed]
        return [(deadline, p) for deadline, p in found if deadline is not None]

    def forfeit(self, party: int) -> Forfeit:
        """The statement that the referee signs where the party's time has passed (2.10)."""
        roots = (self.members[0].run.run_root, self.members[1].run.run_root)
        query = self.owed[party]
        return Forfeit(self._terms.digest, roots, party, query, self._rules.referee)

    # -- entries that take effect ------------------------------------------------------------------

    def begin(self) -> None:
        """The game begins: its first queries can be put."""
        self.begun = True
        first, second = (m.commitment for m in self.members)
        try:
            self.referee = Referee(self._terms, (first, second), self._rules.arity)
        except CannotCheckError as error:
            self._give_up(error)
        else:
            self._see()

    def ask(self, asked: Asked, now: int) -> None:
        """The query is put to the party, whose clock runs from `now` on."""
        self.owed[asked.party] = asked.message
        self.clocks[asked.party].ask(now)

    def check(self, answered: Answered) -> None:
        """Raise CounterpartyError for a message that has no effect in this game."""
        if self.ending is not None or self.referee is None:
            raise NoEffectError("The game has ended.", "Refuse the message.")
        if not self.referee.expects(answered.party, answered.message):
            raise NoEffectError("This answer was there before.", "Ignore it.")
        if self.forfeits and not self._answers_owed(answered):
            # 11.5: the evidence of the game has no place for an equivocation beside a forfeit.
            raise NoEffectError("The party does not owe this answer.", "Refuse the message.")

    def _answers_owed(self, answered: Answered) -> bool:
        assert self.referee is not None
        query = open_answer(answered.message, self.members[answered.party].key).query
        return self.owed.get(answered.party) == query

    def answer(self, answered: Answered, now: int) -> None:
        """Take in an answer that `check` has passed."""
        assert self.referee is not None
        party = answered.party
        try:
            self.referee.receive(party, answered.message)
        except CannotCheckError as error:
            self._give_up(error)
        self.clocks[party].stop(now)
        self.owed.pop(party, None)
        self._settle()
        if self.ending is not None:  # 2.9 may end a game while the other party owes an answer
            for clock in self.clocks:
                clock.stop(now)
            self.owed.clear()

    def lose(self, party: int, envelope: bytes, now: int) -> None:
        """The party's time has passed; the referee's signed forfeit says so."""
        self.clocks[party].stop(now)
        del self.owed[party]
        self.forfeits[party] = envelope
        self._settle()

    def pause(self, away: int) -> None:
        """The referee was away (11.5.2)."""
        for clock in self.clocks:
            clock.pause(away)

    # -- the end -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """End the game by forfeit where no answer is owed any more (11.5, 2.10.2)."""
        assert self.referee is not None
        if self.ending is None and self.referee.verdict is None and self.forfeits and not self.owed:
            self.referee.silent(*sorted(self.forfeits))
        self._see()

    def _see(self) -> None:
        """Note the verdict, if there is one."""
        assert self.referee is not None
        verdict = self.referee.verdict
        if verdict is None or self.ending is not None:
            return
        if verdict.convicted:
            self._end(CONVICTED, sum(1 << c.party for c in verdict.convicted))
        elif verdict.undecided:
            self._end(UNDECIDED, why="the parties followed different logs (1.5.1)")
        else:
            self._end(NO_VERDICT, why="the two claims agree")

    def _give_up(self, error: CannotCheckError) -> None:
        """End the game without a verdict (2.6.1), if every referee would.

        A fault of this machine or this build (a subclass) ends no game, because another machine can
        judge the same answers. A referee that ended the game would be convicted by its log. A
        reader that took the game as ended would convict an honest referee.
        """
        if type(error) is not CannotCheckError:
            raise error
        self._end(NO_VERDICT, why=error.message)

    def _end(self, outcome: int, convicted: int = 0, why: str = "") -> None:
        self.ending, self.why = GameEnded(self.number, outcome, convicted), why

    def evidence(self) -> Evidence:
        """The evidence of the game so far (8.1); it convicts once there is a verdict."""
        transcript = () if self.referee is None else tuple(self.referee.transcript)
        forfeits = tuple(self.forfeits[p] for p in BOTH if p in self.forfeits)
        commitments = (self.members[0].commitment, self.members[1].commitment)
        return Evidence(self._terms.digest, self._rules.arity, commitments, transcript, forfeits)
