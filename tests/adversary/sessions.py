"""Sessions in memory: the real arbiter, a list as its log, a clock that tests set, any parties.

Parties get the referee's turns and send messages (attacks/sessions/_provider.py); each message has
a time of arrival. The referee may crash at any entry and come back on its log. After every step the
table checks the bounds of PROTOCOL 10.7 (P4, P5, P7, P10) and that no honest party is harmed (P2);
`Ended.check` checks the rest: P1, P3, and that the log tells the same session again.
"""

from __future__ import annotations

import heapq
import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from adversary.members import Member

from tallystick.commit.encoding import sha256
from tallystick.commit.signed import split_compact
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    CONVICTED,
    NONE_ACCEPTED,
    UNCONTESTED,
    GameBegun,
    GameEnded,
    OpeningClosed,
    Resumed,
    open_entry,
)
from tallystick.delegation.match import Match
from tallystick.delegation.rules import Rules
from tallystick.delegation.session import ENDED, EXCLUDED, LOST, NEVER_OPENED
from tallystick.delegation.turns import Play, turn_of
from tallystick.delegation.watch import replayed
from tallystick.errors import CounterpartyError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.judge import judge
from tallystick.run.cheats.attacks import attacks_directory, load_attack

REFEREE = PrivateKey(bytes([5]) * 32)
START = 1_000_000  # milliseconds
BUDGET, STEP, EXTENSION, OPENING = 4_000, 10, 300, 2_000
LATENCY = 2


def session_attacks() -> dict[str, Any]:
    """The attacks of attacks/sessions by name."""
    load_attack("silent")  # makes the package of attacks
    paths = sorted((attacks_directory() / "sessions").glob("[!_]*.py"))
    load = importlib.import_module
    return {p.stem: load(f"tallystick_attacks.sessions.{p.stem}").ATTACK for p in paths}


def honest_provider() -> type[Any]:
    """The class of an honest party."""
    load_attack("silent")
    found: type[Any] = importlib.import_module("tallystick_attacks.sessions._provider").Provider
    return found


def make_rules(job_digest: bytes, steps: int, most: int, arity: int = 2, **changed: Any) -> Rules:
    """The rules of these sessions; any key may take part."""
    given = {
        "job_digest": job_digest, "nonce": b"n" * 32, "referee": REFEREE.public, "arity": arity,
        "most": most, "sealing": START + 1_000, "opening": OPENING, "budget": BUDGET, "step": STEP,
        "steps": steps, "extension": EXTENSION,
    }  # fmt: skip
    return Rules(**{**given, **changed})


class CrashError(BaseException):
    """The referee stops here; nothing catches it but the table."""


class Entries:
    """The log: entries in memory, and a plan of crashes."""

    def __init__(self, crash: Callable[[], int]) -> None:
        self.signed: list[bytes] = []
        self._crash = crash  # 1: before the entry is durable, 2: after it, 0: not here

    def __iter__(self) -> Any:
        return iter(list(self.signed))

    def append(self, entry: bytes) -> None:
        """As a durable log: the entry is there, or it is not."""
        at = self._crash() if self.signed else 0  # without an entry there is no session yet
        if at == 1:
            raise CrashError
        self.signed.append(entry)
        if at == 2:
            raise CrashError


@dataclass
class Seat:
    """A party at the table. `honest`: it runs the honest code over the honest run."""

    member: Member
    honest: bool
    make: type[Any]
    variant: str = ""
    ends: tuple[str, ...] = ()
    provider: Any = None
    asked: set[Any] = field(default_factory=set)
    known: int = 1 << 40  # messages of its game that it need not be told: it answers facts
    faulty: Callable[[], int] = lambda: 0  # milliseconds until it is back, 0: it does not stop now

    @property
    def key(self) -> PublicKey:
        return self.member.key.public


class Table:
    """A session under way. Each look at the clock moves it by `drift` milliseconds."""

    def __init__(
        self,
        terms: Terms,
        rules: Rules,
        seats: list[Seat],
        most_rounds: int,
        crash: Callable[[], int] = lambda: 0,
        drift: int = 0,
        away: Callable[[], int] = lambda: 50,
    ) -> None:
        self.terms, self.rules, self.seats, self.most_rounds = terms, rules, seats, most_rounds
        self.now, self.drift, self.away, self.crashes = START, drift, away, 0
        self.log = Entries(crash)
        self.refused, self.seconds = 0, 0.0  # the referee's own processor time
        self._queue: list[tuple[int, int, Seat, bytes | None, bytes | None]] = []
        self._number = 0
        self._told: tuple[Any, int] = (None, 0)
        for seat in seats:
            seat.provider = seat.make(seat.member, self.log.signed, seat.variant)
        self.arbiter: Arbiter | None = None
        self._guarded(lambda _: None)

    # -- the referee -------------------------------------------------------------------------------

    def _clock(self) -> int:
        self.now += self.drift
        return self.now

    def _guarded(self, act: Callable[[Arbiter], object]) -> None:
        """Let the referee act. Where it crashes, another one takes its place after a while."""
        began = time.process_time()
        self._act(act)
        self.seconds += time.process_time() - began

    def _act(self, act: Callable[[Arbiter], object]) -> None:
        while True:
            try:
                if self.arbiter is None:
                    rules = self.rules
                    self.arbiter = Arbiter(self.terms, REFEREE, self.log, self._clock, rules)
                    act = lambda _: None  # noqa: E731 — a crash loses what was being done
                act(self.arbiter)
                return
            except CrashError:
                self.arbiter = None
                self.crashes += 1
                self.now += self.away()
                for seat in self.seats:  # a new referee asks again
                    seat.asked.clear()

    # -- parties -----------------------------------------------------------------------------------

    def _later(self, after: int, seat: Seat, turn: bytes | None, message: bytes | None) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + after, self._number, seat, turn, message))

    def _dispatch(self) -> None:
        """Each party gets the turns that it has not got yet."""
        assert self.arbiter is not None
        if self._told == (self.arbiter, self.arbiter.session.length):
            return
        self._told = (self.arbiter, self.arbiter.session.length)
        invitation = self.arbiter.invitation()
        if invitation is not None:
            for seat in self.seats:
                self._give(seat, "seal", invitation)
            return
        keys = {seat.key: seat for seat in self.seats}
        for key, message in self.arbiter.outgoing({k: s.known for k, s in keys.items()}).items():
            turn = turn_of(split_compact(message, LIMITS.turn_bytes, "turn").data)
            request, name = turn.request, type(turn.request).__name__
            if isinstance(request, Play):
                self._give(keys[key], (request.game, request.query), message)
            else:
                self._give(keys[key], name, message)

    def _give(self, seat: Seat, name: Any, turn: bytes) -> None:
        if name not in seat.asked:
            seat.asked.add(name)
            self._later(LATENCY + seat.provider.late, seat, turn, None)

    def _deadline(self, seat: Seat) -> int:
        """The last moment of what the party owes."""
        assert self.arbiter is not None
        session = self.arbiter.session
        for match in session.matches:
            for party, member in enumerate(match.members):
                deadline = match.clocks[party].deadline
                if member.key == seat.key and match.ending is None and deadline is not None:
                    return deadline
        return session.next_deadline() or self.now

    def _deliver(self, seat: Seat, turn: bytes | None, message: bytes | None) -> None:
        if turn is not None:
            away = seat.faulty()
            if away:  # it stops, forgets all that it does not keep, and the turn comes again
                seat.provider = seat.make(seat.member, self.log.signed, seat.variant)
                self._later(away, seat, turn, None)
                return
            for sent in seat.provider.take(turn):
                after = sent.after if sent.after >= 0 else self._deadline(seat) - self.now
                self._later(max(after, 0), seat, None, sent.data)
            return
        assert message is not None

        def take(arbiter: Arbiter) -> None:
            try:
                arbiter.take(message, seat.key)
            except CounterpartyError:
                self.refused += 1

        self._guarded(take)

    # -- the play ----------------------------------------------------------------------------------

    def play(self, most_events: int = 200_000) -> Ended:
        """To the result."""
        for _ in range(most_events):
            assert self.arbiter is not None
            self.check()
            if self.arbiter.session.state == ENDED:
                return Ended(self)
            self._dispatch()
            due = self.arbiter.session.next_deadline()
            event = self._queue[0][0] if self._queue else None
            assert due is not None or event is not None, "the session waits for nothing"
            if event is None or (due is not None and due < event):
                assert due is not None
                self.now = max(self.now, due + 1)
                self._guarded(lambda arbiter: arbiter.tick())
            else:
                when, _, seat, turn, message = heapq.heappop(self._queue)
                self.now = max(self.now, when)
                self._deliver(seat, turn, message)
        raise AssertionError("the session does not end")

    def check(self) -> None:
        """P2, P4, P5 at any moment (PROTOCOL 7, 10.7)."""
        assert self.arbiter is not None
        session = self.arbiter.session
        for seat in self.seats:
            if seat.honest:
                assert seat.key not in session.removed, session.removed[seat.key]
        parties = len(session.members)
        if session.matches:
            assert len(session.matches) <= max(parties - 1, 0)
        for match in session.matches:
            if match.referee is not None:
                assert match.referee.rounds <= self.most_rounds
                assert match.referee.terms <= 256  # P5: one operator's terms per verdict


@dataclass
class Ended:
    """A finished session, and what must be true of it."""

    table: Table

    @property
    def session(self) -> Any:
        assert self.table.arbiter is not None
        return self.table.arbiter.session

    def fate(self, seat: Seat) -> str:
        """What became of a party: convicted, forfeits, excluded, absent, or stands."""
        session = self.session
        why = session.removed.get(seat.key)
        if why == LOST:
            for match in session.matches:
                keys = [member.key for member in match.members]
                if seat.key in keys and match.ending.convicted >> keys.index(seat.key) & 1:
                    return "forfeits" if match.forfeits else "convicted"
        absent = seat.key not in session.seals or why == NEVER_OPENED
        return "excluded" if why == EXCLUDED else "absent" if absent else "stands"

    def check(self, judged: bool = True) -> None:
        """P1, P3, P4, P9, P10 at the end; `judged`: all evidence again, offline."""
        table, session = self.table, self.session
        honest = [seat for seat in table.seats if seat.honest]
        result = session.result
        if honest:
            claims = {side[0].commitment: [m.key for m in side] for side in session.sides}
            accepted = [keys for data, keys in claims.items() if sha256(data) == result.accepted]
            assert accepted and {seat.key for seat in honest} <= set(accepted[0])
            assert result.outcome in (CONTESTED, UNCONTESTED, ALONE)
        else:
            assert result.outcome in (CONTESTED, UNCONTESTED, ALONE, NONE_ACCEPTED)
        true = {seat.member.facts.run.run_root for seat in honest}
        for seat in table.seats:
            fate = self.fate(seat)
            if seat.member.facts.run.run_root not in true and honest:
                assert fate != "stands"  # P1: no false claim is left
                assert not seat.ends or fate in seat.ends, (fate, seat.ends)
        self._counted()
        if judged:
            self._timed()
            self.judged()

    def judged(self) -> None:
        """Every conviction again from its evidence (P3), and the log again from its bytes (P9)."""
        table, session = self.table, self.session
        for match in session.matches:
            if match.ending.outcome == CONVICTED:
                _judge(table.terms, match)
        again = replayed(table.terms, table.log.signed)
        assert (again.state, again.result, again.last) == (ENDED, session.result, session.last)
        assert again.removed == session.removed

    def _counted(self) -> None:
        """10.7, 11.3, 11.4: games, rounds, and the time that each party took."""
        rules, session = self.table.rules, self.session
        k = len(session.members)
        m = len({member.claim for member in session.members.values()})
        most = (k - m) + (m - 1).bit_length() if m else 0
        assert len(session.matches) <= max(k - 1, 0)
        assert session.rounds <= most
        for match in session.matches:
            asked = match.referee.rounds if match.referee is not None else 0
            longest = rules.game_budget + asked * rules.extension
            assert all(clock.used <= longest + self._own() for clock in match.clocks)

    def _timed(self) -> None:
        """11.6: the time of each game, and of all after the opening, by the log."""
        rules, session = self.table.rules, self.session
        longest = 2 * rules.game_budget + self.table.most_rounds * rules.extension
        opened, begun, absent = None, dict[int, int](), 0
        last = START
        for message in self.table.log.signed:
            entry = open_entry(message, REFEREE.public)
            event, when = entry.event, entry.time
            if isinstance(event, Resumed):
                absent += when - last
            if isinstance(event, OpeningClosed):
                opened = when
            if isinstance(event, GameBegun):
                begun[event.game] = when - absent
            if isinstance(event, GameEnded):
                assert when - absent - begun[event.game] <= longest + self._own(), "P4: time"
            last = when
        if opened is not None and not absent:
            assert last - opened <= longest * session.rounds + self._own()

    def _own(self) -> int:
        """The referee's own time (11.6): it looks at the clock, and wakes after a deadline."""
        return (self.table.drift * 40 + LATENCY + 2) * len(self.table.log.signed)


def _judge(terms: Terms, match: Match) -> None:
    """The verdict of a game from its evidence alone."""
    assert match.referee is not None and match.referee.verdict is not None
    assert match.ending is not None
    data = match.evidence().to_bytes()
    found = judge(terms, data, trust_referees=[REFEREE.public]).verdict
    assert found == match.referee.verdict
    assert sum(1 << c.party for c in found.convicted) == match.ending.convicted


def keys(count: int, first: int = 0) -> list[PrivateKey]:
    """Keys of parties, in no special order."""
    return [PrivateKey(sha256(b"party %d" % n)) for n in range(first, first + count)]


def fates(ended: Ended, seats: Iterable[Seat]) -> list[str]:
    """The fates of `seats`."""
    return [ended.fate(seat) for seat in seats]
