"""A session, driven live: all parties are asked at once, and one thread holds the referee.

Theory of operation. Each party has a task that sends it the turn that is for it now, and puts what
comes back into one queue with the moment at which it came. One thread takes from the queue, in
order, and gives the arbiter that moment as the time: so the referee's own computing, which may take
a second, is on no party's clock. Where nothing comes, the clock alone acts. A party that cannot be
reached is asked again, at growing intervals, until its time has passed: time alone decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from tallystick.commit.encoding import Reader
from tallystick.commit.signed import split_compact
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.arbiter import Arbiter, SessionLog
from tallystick.delegation.entries import ENTRY_TAG, Answered, Result
from tallystick.delegation.rules import Rules
from tallystick.delegation.session import SEALING
from tallystick.delegation.turns import (
    Card,
    Ended,
    Message,
    Needs,
    Play,
    Refusal,
    Reply,
    Working,
    own_request,
)
from tallystick.errors import CounterpartyError, MachineFaultError, TallystickError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms

# Seconds between two requests to a party: from the first to the last, each twice the one before.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 5.0
# Seconds after which the referee, whose machine has failed, takes up its log again.
_REST = 1.0


class Link(Protocol):
    """A way to one party."""

    url: str

    async def card(self) -> Card:
        """The party's card. Raises UnreachableError, CounterpartyError."""

    async def turn(self, turn: bytes) -> Reply:
        """The reply to a turn. Raises UnreachableError, CounterpartyError."""


class _Noted:
    """A log that notes where each game's newest answer stands."""

    def __init__(self, log: SessionLog) -> None:
        self._log, self.count = log, 0
        self.answers: dict[int, int] = {}
        for entry in log:
            self._note(entry)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._log)

    def append(self, entry: bytes, /) -> None:
        self._log.append(entry)
        self._note(entry)

    def _note(self, entry: bytes) -> None:
        source = Reader(split_compact(entry, LIMITS.entry_bytes, "log entry").data, "log entry")
        source.expect(ENTRY_TAG)
        index, _, _, kind = source.u64(), source.hash(), source.u64(), source.u8()
        if kind == Answered.KIND:
            self.answers[source.u64()] = index
        self.count = index + 1


def _words(error: Exception) -> str:
    return error.message if isinstance(error, TallystickError) else type(error).__name__


_STARTED_NS = time.time_ns() - time.monotonic_ns()


def session_clock() -> int:
    """Milliseconds since 1970 (PROTOCOL 11.1): the machine's time when this process began, and what
    has passed since. A clock that is set meanwhile makes no party late."""
    return (_STARTED_NS + time.monotonic_ns()) // 1_000_000


@dataclass
class Seat:
    """What the referee knows about one link, for people. `doing` is a short phrase."""

    link: Link
    key: PublicKey | None = None
    doing: str = "not reached yet"
    faults: int = 0
    known: int = 0  # messages of its game that the party has
    left: int | None = None  # milliseconds on its clock, at the last look
    turn: bytes | None = None  # the turn that is for it now


@dataclass
class Arrival:
    """What came from a party: its message, or None where only the turns may have changed."""

    at: int
    seat: Seat
    message: bytes | None
    taken: asyncio.Future[bool] = field(default_factory=lambda: asyncio.Future())


class Driver:
    """Drives the session in `log` between the parties of `links`.

    `rules` begin a session where the log is empty. The driver calls `on_change` after each step of
    the session. After the result the parties have `farewell` seconds to be told it. Raises as
    Arbiter.
    """

    def __init__(
        self,
        terms: Terms,
        key: PrivateKey,
        log: SessionLog,
        links: Sequence[Link],
        rules: Rules | None = None,
        now: Callable[[], int] = session_clock,
        on_change: Callable[[Driver], None] = lambda _: None,
        farewell: float = 5.0,
    ) -> None:
        self.seats = [Seat(link) for link in links]
        self._terms, self._key, self._log, self._now = terms, key, _Noted(log), now
        self._time: int | None = None  # the moment of the message that is being judged
        self._on_change, self._farewell = on_change, farewell
        self.arbiter = Arbiter(terms, key, self._log, self._moment, rules)
        self._invitation: bytes | None = None
        self._deadline: int | None = None
        self._published = 0
        self._unseated: dict[PublicKey, bytes] = {}  # turns of parties that no link has named
        self._changed = asyncio.Event()
        self._queue: asyncio.Queue[Arrival] = asyncio.Queue()
        self._refresh()

    @property
    def result(self) -> Result | None:
        """The session's result, once there is one."""
        return self.arbiter.session.result

    @property
    def published(self) -> int:
        """How many entries of the log may be shown: none from an answer on whose opponent still
        owes its own (PROTOCOL 5.1)."""
        return self._published

    @property
    def deadline(self) -> int | None:
        """The next moment at which time alone changes something."""
        return self._deadline

    async def run(self) -> Result:
        """Drive the session to its result.

        Raises StorageError where the log cannot be written; the session goes on from its log.
        """
        talks = [asyncio.create_task(self._talk(seat)) for seat in self.seats]
        thread = ThreadPoolExecutor(1, "tallystick-referee")
        try:
            while self.result is None:
                self._fail_with(talks)
                await self._step(thread)
            sealed = self.arbiter.session.seals
            last = [t for t, s in zip(talks, self.seats, strict=True) if s.key in sealed]
            if last:
                await asyncio.wait(last, timeout=self._farewell)
        finally:
            left = set(talks)
            while left:  # before Python 3.12 `wait_for` may lose a cancellation
                for talk in left:
                    talk.cancel()
                _, left = await asyncio.wait(left, timeout=0.1)
            await asyncio.gather(*talks, return_exceptions=True)
            thread.shutdown()
        assert self.result is not None
        return self.result

    def _fail_with(self, talks: Sequence[asyncio.Task[None]]) -> None:
        for talk in talks:
            if talk.done() and not talk.cancelled() and (error := talk.exception()):
                raise error

    # -- the referee's thread ----------------------------------------------------------------------

    async def _step(self, thread: ThreadPoolExecutor) -> None:
        """Let the next arrival, or the clock, take effect."""
        wait = 1.0
        if self._deadline is not None:
            wait = min(wait, max(0, self._deadline + 1 - self._now()) / 1000)
        try:
            arrival: Arrival | None = await asyncio.wait_for(self._queue.get(), wait)
        except asyncio.TimeoutError:
            arrival = None if self._queue.empty() else self._queue.get_nowait()
        # The moment is taken here, where arrivals are stamped: what comes before the referee's
        # thread begins is not late because of that.
        moment = self._now() if arrival is None else arrival.at
        loop = asyncio.get_running_loop()
        try:
            took = await loop.run_in_executor(thread, self._judge, arrival, moment)
        except MachineFaultError:
            await asyncio.sleep(_REST)
            await loop.run_in_executor(thread, self._take_up)
            took = False
        if arrival is not None and not arrival.taken.done():
            arrival.taken.set_result(took)
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change(self)

    def _moment(self) -> int:
        return self._now() if self._time is None else self._time

    def _judge(self, arrival: Arrival | None, moment: int) -> bool:
        took = True
        self._time = moment
        try:
            if arrival is not None and arrival.message is not None:
                try:
                    self.arbiter.take(arrival.message, arrival.seat.key)
                except CounterpartyError as error:
                    arrival.seat.doing = f"sent what has no effect: {error.message}"
                    took = False
            self.arbiter.tick()
        finally:
            self._time = None
        self._refresh()
        return took

    def _take_up(self) -> None:
        self.arbiter = Arbiter(self._terms, self._key, self._log, self._moment)
        self._refresh()

    def _shown(self) -> int:
        found = self._log.count
        for match in self.arbiter.session.matches:
            game = match.referee
            if match.ending is None and game is not None and len(game.transcript) > game.judged:
                found = min(found, self._log.answers[match.number])
        return found

    def _refresh(self) -> None:
        """The turns that are for the parties now."""
        session = self.arbiter.session
        self._invitation = self.arbiter.invitation()
        self._deadline = session.next_deadline()
        # Not while an entry is written and has no effect yet: readers are in another thread.
        self._published = self._shown()
        left = {}
        for match in session.matches:
            for party, member in enumerate(match.members):
                if match.ending is None and party in match.owed:
                    left[member.key] = (match.clocks[party].deadline or 0) - self._now()
        for seat in self.seats:
            # No signature covers a card, so two links may name one key. Each has a turn of its own:
            # what one of them says that it knows is not believed of the other one.
            key = seat.key
            seat.turn = None if key is None else self.arbiter.turn_for(key, seat.known)
            seat.left = None if key is None else left.get(key)
        seated = set() if self.result is not None else {seat.key for seat in self.seats}
        turns = {k: self.arbiter.turn_for(k) for k in session.seals if k not in seated}
        self._unseated = {key: turn for key, turn in turns.items() if turn is not None}

    # -- the parties' tasks ------------------------------------------------------------------------

    def _turn_for(self, seat: Seat) -> bytes | None:
        session = self.arbiter.session
        if session.state == SEALING:
            return None if seat.key in session.seals else self._invitation
        if seat.key is None or seat.turn is not None:
            return seat.turn
        return self._unseated.get(seat.key)

    async def _talk(self, seat: Seat) -> None:
        await self._introduce(seat)
        answered, pause = b"", _FIRST_PAUSE
        while True:
            changed = self._changed
            turn = self._turn_for(seat)
            if turn is None or turn == answered:
                if turn is None:
                    seat.doing = "waits"
                if self.result is not None and (turn is None or answered):
                    return
                await changed.wait()
                pause = _FIRST_PAUSE
                continue
            reply = await self._asked(seat, turn, changed)
            if reply is None:  # another turn is for this party now
                pause = _FIRST_PAUSE
                continue
            if isinstance(reply, Message) and await self._deliver(seat, turn, reply):
                answered, pause = turn, _FIRST_PAUSE
                continue
            if isinstance(reply, Needs) and await self._brings(seat, turn, reply):
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def _introduce(self, seat: Seat) -> None:
        """Ask for the party's key, until there is one."""
        pause = _FIRST_PAUSE
        while seat.key is None:
            try:
                card = await seat.link.card()
                if card.job_digest == self._terms.digest:
                    seat.key = card.key
                    return
                seat.doing = "serves another job"
            except Exception as error:  # as in `_heard`
                seat.doing = _words(error)
            seat.faults += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def _asked(self, seat: Seat, turn: bytes, changed: asyncio.Event) -> Reply | None:
        """The reply to `turn`; None where the turn for this party has changed before it came."""
        request = asyncio.create_task(seat.link.turn(turn))
        try:
            while True:
                waiter = asyncio.create_task(changed.wait())
                await asyncio.wait({request, waiter}, return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                if request.done():
                    return self._heard(seat, request)
                if self._turn_for(seat) != turn:
                    return None
                changed = self._changed
        finally:
            request.cancel()

    def _heard(self, seat: Seat, request: asyncio.Task[Reply]) -> Reply:
        try:
            reply = request.result()
        except Exception as error:  # one party's server must not end the session of the others
            seat.faults += 1
            seat.doing = _words(error)
            return Working(seat.doing)
        if isinstance(reply, Working):
            seat.doing = f"working: {reply.done}" if reply.done else "working"
        elif isinstance(reply, Refusal):
            seat.doing = f"refuses: {reply.why}"
        else:
            seat.doing = "answers"
        return reply

    async def _deliver(self, seat: Seat, turn: bytes, reply: Message) -> bool:
        """Hand a message to the referee; False where it has no effect."""
        request = own_request(turn)
        if isinstance(request, Ended):
            return True
        if len(reply.data) > LIMITS.answer_bytes:
            return False
        if isinstance(request, Play):
            seat.known = request.first + len(request.messages)
        arrival = Arrival(self._now(), seat, reply.data)
        await self._queue.put(arrival)
        return await arrival.taken

    async def _brings(self, seat: Seat, turn: bytes, reply: Needs) -> bool:
        """Send from where the party asks for it; False unless it has taken messages of `turn`.

        A game has few messages, so a party that asks in circles soon waits before each turn.
        """
        request = own_request(turn)
        end = request.first + len(request.messages) if isinstance(request, Play) else 0
        new = seat.known < reply.first <= end
        seat.known = reply.first
        arrival = Arrival(self._now(), seat, None)
        await self._queue.put(arrival)
        await arrival.taken
        return new
