"""The referee's driver against links that misbehave, step by step (PROTOCOL 11.5, 13)."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from service.links import MEMORY, Direct, drive, hosts, rules
from service.parties import REFEREE, B, Player
from service.transports import now

from tallystick.delegation.entries import Answered, Entry
from tallystick.delegation.session import LOST, Session
from tallystick.delegation.turns import Needs, Play, Reply, Turn, sign_turn
from tallystick.job.job import Job
from tallystick.service.driver import Arrival, Driver, session_clock

Pair = tuple[Player, Player]


class Copying(Direct):
    """A link that names another party's key, and says that it needs messages of far ahead."""

    async def turn(self, turn: bytes) -> Reply:
        return Needs(1 << 40)


# P1: no signature covers a card. Another link that names the honest party's key keeps no message
# of its game from it.
def test_a_copied_card_starves_no_party(small_job: Job, pair: Pair, tmp_path: Path) -> None:
    short = rules(small_job, pair, budget=4000, extension=1000)
    with hosts(MEMORY, pair, tmp_path) as at:
        third = copy.copy(at[1])
        third.direct = Copying(at[0].party)
        driver = drive(small_job, [*at, third], short)
    assert driver.arbiter.session.removed == {B.public: LOST}


def _driver(job: Job, pair: Pair, at: list[Any], log: list[bytes], **more: Any) -> Driver:
    links = [host.link() for host in at]
    return Driver(job.terms, REFEREE, log, links, rules(job, pair), **more)


# A party that asks for messages in circles, or beyond those there are, waits before each turn.
def test_messages_asked_for_in_circles_are_no_progress(
    small_job: Job, pair: Pair, tmp_path: Path
) -> None:
    async def asked(driver: Driver, first: int) -> bool:
        seat = driver.seats[0]
        brought = Play(0, 0, (b"", b""), 2, ((0, b"x"), (1, b"y")), b"")
        turn = sign_turn(REFEREE, Turn(bytes(32), brought))
        waits = asyncio.create_task(driver._brings(seat, turn, Needs(first)))
        arrival = await driver._queue.get()
        arrival.taken.set_result(True)
        return await waits

    async def play() -> list[bool]:
        driver = _driver(small_job, pair, at, [])
        return [await asked(driver, first) for first in (4, 4, 0, 1 << 40, 0, 3, 3, 4)]

    with hosts(MEMORY, pair, tmp_path) as at:
        assert now(play()) == [True, False, False, False, False, True, False, True]


# 11.5: an answer that came in time is not late because the referee's thread began later.
def test_the_moment_of_a_step_is_taken_before_the_thread_begins(
    small_job: Job, pair: Pair, tmp_path: Path
) -> None:
    moments: list[int] = []
    time = [1000]

    class Late(ThreadPoolExecutor):
        def submit(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
            time[0] += 5000  # the machine is busy
            return super().submit(work, *given, **named)

    async def play() -> None:
        driver = _driver(small_job, pair, at, [], now=lambda: time[0])
        tick = driver.arbiter.tick

        def noted() -> int | None:
            moments.append(driver._moment())
            return tick()

        driver.arbiter.tick = noted  # type: ignore[method-assign]
        with Late(1) as thread:
            await driver._step(thread)
            await driver._queue.put(Arrival(time[0], driver.seats[0], None))
            await driver._step(thread)

    with hosts(MEMORY, pair, tmp_path) as at:
        now(play())
    assert moments == [1000, 6000]


# 13.2.1: an answer is not shown while its entry is written and has had no effect yet.
def test_an_answer_is_not_published_before_it_has_its_effect(
    small_job: Job, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers: list[Driver] = []
    early: list[int] = []
    looked = [0]
    apply = Session.apply

    def watched(session: Session, entry: Entry) -> None:
        own = bool(drivers) and session is drivers[0].arbiter.session  # and no reader's
        if own and isinstance(entry.event, Answered):
            looked[0] += 1
            if drivers[0].published > entry.index:
                early.append(entry.index)
        apply(session, entry)

    monkeypatch.setattr(Session, "apply", watched)
    with hosts(MEMORY, pair, tmp_path) as at:
        driver = drive(small_job, at, rules(small_job, pair), on_change=drivers.append)
    assert looked[0] > 5 and early == []
    assert driver.published == driver.arbiter.session.length


# The result is told to a party whose link is first reached when the session has ended.
def test_the_end_is_told_to_a_link_that_came_late(
    small_job: Job, pair: Pair, tmp_path: Path
) -> None:
    log: list[bytes] = []
    ends: list[bytes] = []
    with hosts(MEMORY, pair, tmp_path) as at:
        drive(small_job, at, rules(small_job, pair), log)

        class Watched(Direct):
            async def turn(self, turn: bytes) -> Reply:
                ends.append(turn)
                return await super().turn(turn)

        links = [Watched(host.party) for host in at]
        driver = Driver(small_job.terms, REFEREE, log, links, None)
        assert [seat.key for seat in driver.seats] == [None, None]

        async def last() -> None:
            for seat in driver.seats:
                await asyncio.wait_for(driver._talk(seat), 10)

        now(last())
    assert len(ends) == 2


def test_a_clock_that_is_set_meanwhile_makes_nobody_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 11.1, THREATS 2.3: the referee read the machine's time at each look, so a clock that
    was set a day ahead made every party forfeit."""
    before = session_clock()
    assert abs(before - time.time() * 1000) < 60_000
    day = 86_400_000_000_000
    for jump in (day, -day):
        real = time.time_ns() + jump
        monkeypatch.setattr(time, "time_ns", lambda real=real: real)
        monkeypatch.setattr(time, "time", lambda real=real: real / 1e9)
        assert before <= session_clock() < before + 60_000
