"""Whole sessions, with calls, over HTTP and over HTTPS: the same tests (PROTOCOL 10 to 13)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from service.links import (
    HTTP,
    HTTPS,
    MEMORY,
    Host,
    drive,
    hosts,
    in_thread,
    judged,
    rules,
)
from service.parties import OTHER_REFEREE, REFEREE, A, B, C, Player
from service.transports import Certificates, now
from unit.protocol.simulator import Party

from tallystick.commit.signed import split_compact
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    UNCONTESTED,
    Answered,
    Asked,
    open_entry,
)
from tallystick.delegation.session import LOST, NEVER_OPENED, PLAYING
from tallystick.delegation.turns import Message, Needs, Play, Refusal, Reply, turn_of
from tallystick.job.job import Job
from tallystick.service.driver import Driver


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test by calls and over HTTP; over HTTPS one of them, or all with --exhaustive."""
    if "kind" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--exhaustive")
        tls = whole or metafunc.function is test_honest_against_cheat
        metafunc.parametrize("kind", [MEMORY, HTTP, HTTPS] if tls else [MEMORY, HTTP])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@dataclass(frozen=True)
class Place:
    """Where a session is held: its job, the kind of link to the parties, and their directory."""

    job: Job
    kind: str
    directory: Path
    certificates: Certificates

    def hosts(self, players: Sequence[Player]) -> AbstractContextManager[list[Host]]:
        return hosts(self.kind, players, self.directory, self.certificates)


@pytest.fixture
def place(kind: str, small_job: Job, tmp_path: Path, certificates: Certificates) -> Place:
    return Place(small_job, kind, tmp_path, certificates)


def accepted(driver: Driver, player: Player) -> bool:
    """Whether the result accepts this player's claim."""
    side = driver.arbiter.session.sides
    return len(side) == 1 and side[0][0].run.run_root == player.party.run.run_root


# P1, P3: the honest party wins, by evidence that anyone checks.
def test_honest_against_cheat(place: Place, pair: tuple[Player, Player]) -> None:
    with place.hosts(pair) as at:
        driver = drive(place.job, at, rules(place.job, pair))
    session = driver.arbiter.session
    assert driver.result is not None and driver.result.outcome == CONTESTED
    assert session.removed == {B.public: LOST} and accepted(driver, pair[0])
    found = judged(place.job, driver)
    assert [found.signers[c.party] for c in found.verdict.convicted] == [B.public.key_id]
    assert not found.verdict.forfeit
    # 10.7, 13.4: no query is executed twice, however often a turn came.
    assert all(len(p.asked) == len(set(p.asked)) for p in pair)
    assert session.matches[0].referee is not None
    asked = sum(len(p.asked) for p in pair)
    assert asked == len(session.matches[0].referee.transcript)


def test_two_honest(place: Place, honest_run: Party) -> None:
    players = Player(honest_run, A), Player(honest_run, B)
    with place.hosts(players) as at:
        driver = drive(place.job, at, rules(place.job, players))
    assert driver.result is not None and driver.result.outcome == UNCONTESTED
    assert not driver.arbiter.session.matches and not driver.arbiter.session.removed


# 10.5: sides meet pairwise; a Sybil on the honest claim that keeps silent takes nothing from it.
def test_three_parties(place: Place, honest_run: Party, cheat_run: Party) -> None:
    players = Player(honest_run, A), Player(cheat_run, B), Player(honest_run, C)
    with place.hosts(players) as at:
        driver = drive(place.job, at, rules(place.job, players))
    assert driver.arbiter.session.removed == {B.public: LOST}
    assert accepted(driver, players[0]) and accepted(driver, players[2])
    assert len(driver.arbiter.session.matches) == 1


# 11.5, P7: silence in a game is a forfeit, and shown as silence.
def test_a_party_that_falls_silent(place: Place, pair: tuple[Player, Player]) -> None:
    pair[1].going.clear()  # it is working, for ever
    short = rules(place.job, pair, budget=300, extension=300)
    with place.hosts(pair) as at:
        driver = drive(place.job, at, short)
        pair[1].going.set()
    assert driver.arbiter.session.removed == {B.public: LOST} and accepted(driver, pair[0])
    found = judged(place.job, driver)
    assert found.verdict.forfeit
    assert [c.clause for c in found.verdict.convicted] == ["2.10"]


# 10.2.1, 10.3.1: a party that is not there is no party; no one is convicted.
@pytest.mark.parametrize("when", ["sealing", "opening"])
def test_a_party_that_is_not_there(when: str, place: Place, pair: tuple[Player, Player]) -> None:
    found = rules(place.job, pair, opening=500)
    if when == "sealing":
        found = rules(place.job, pair, sealing=found.sealing - 59_000)

    with place.hosts(pair) as at:
        if when == "sealing":
            at[1].stop()

        def look(driver: Driver) -> None:
            if when == "opening" and B.public in driver.arbiter.session.seals:
                at[1].party.reply = lambda *_: Refusal("malformed", "no")  # type: ignore[method-assign]

        driver = drive(place.job, at, found, on_change=look)
    removed = driver.arbiter.session.removed
    assert driver.result is not None and driver.result.outcome == ALONE
    assert removed == ({} if when == "sealing" else {B.public: NEVER_OPENED})
    assert accepted(driver, pair[0])


# P9, 13.5: a server that is started again in a game goes on; its seal and its answers are the same.
def test_a_server_is_restarted_in_the_middle(place: Place, pair: tuple[Player, Player]) -> None:
    with place.hosts(pair) as at:
        restarts: list[Host] = []

        def restart() -> None:
            at[0].stop()
            at[0].start()

        def look(driver: Driver) -> None:
            session = driver.arbiter.session
            begun = session.state == PLAYING and session.matches and session.matches[0].referee
            if begun and begun.judged >= 4 and not restarts:
                restarts.append(at[0])
                in_thread(restart).join()

        driver = drive(place.job, at, rules(place.job, pair), on_change=look)
    assert restarts
    assert driver.arbiter.session.removed == {B.public: LOST} and accepted(driver, pair[0])


# P9, 12.3: a referee that is started again goes on from its log.
def test_a_referee_is_restarted_in_the_middle(place: Place, pair: tuple[Player, Player]) -> None:
    class Dead(Exception):  # noqa: N818
        pass

    class Dying(list[bytes]):
        left = 12

        def append(self, entry: bytes, /) -> None:
            if not self.left:
                raise Dead
            self.left -= 1
            super().append(entry)

    log, lives = Dying(), 0
    with place.hosts(pair) as at:
        found = rules(place.job, pair)
        while True:
            lives += 1
            try:
                driver = drive(place.job, at, found, log)
            except Dead:
                log.left = 12
                continue
            break
    assert lives > 2
    assert driver.arbiter.session.removed == {B.public: LOST} and accepted(driver, pair[0])


# 13.3: a referee that is not believed gets nothing.
def test_a_referee_that_is_not_believed(place: Place, pair: tuple[Player, Player]) -> None:
    found = rules(place.job, pair, referee=OTHER_REFEREE.public)
    found = rules(place.job, pair, referee=OTHER_REFEREE.public, sealing=found.sealing - 59_500)
    with place.hosts(pair) as at:
        driver = drive(place.job, at, found, key=OTHER_REFEREE)
        assert not driver.arbiter.session.seals
        assert not list(place.directory.rglob("*.seal"))


# 13.4: equal turns, equal replies; 5.1: no turn shows an answer before the other one is there.
def test_turns_are_idempotent_and_show_no_answer_too_early(
    place: Place,
    pair: tuple[Player, Player],
) -> None:
    sent: dict[bytes, int] = {}
    log: list[bytes] = []
    with place.hosts(pair) as at:

        def look(driver: Driver) -> None:
            for seat in driver.seats:
                if seat.turn is not None:
                    sent.setdefault(seat.turn, 0 if seat.key == A.public else 1)

        drive(place.job, at, rules(place.job, pair), log, on_change=look)
        for turn, seat in list(sent.items())[::3]:
            first, again = (_once(at[seat], turn) for _ in range(2))
            assert first == again
            assert isinstance(first, (Message, Needs))  # a game that is over is forgotten
    asked, answered = {}, {}
    for entry in (open_entry(message, REFEREE.public) for message in log[1:]):
        if isinstance(entry.event, Asked):
            asked[entry.event.party, entry.event.message] = entry.index
        elif isinstance(entry.event, Answered):
            answered[entry.event.message] = entry.index
    shown = 0
    for turn in sent:
        request = turn_of(split_compact(turn, 1 << 24, "turn").data).request
        if isinstance(request, Play):
            for _, message in request.messages:
                assert answered[message] < asked[request.party, request.query]
                shown += 1
    assert shown > 10


def _once(host: Host, turn: bytes) -> object:
    async def ask() -> object:
        link = host.link()
        try:
            return await link.turn(turn)
        finally:
            if hasattr(link, "__aexit__"):
                await link.__aexit__()

    return now(ask())


def test_no_server_ends_the_session_of_the_others(
    small_job: Job, honest_run: Party, cheat_run: Party, tmp_path: Path
) -> None:
    """Whatever happens on the way to one party is a fault on that way, and time decides."""
    players = Player(honest_run, A), Player(cheat_run, B), Player(honest_run, C)

    async def broken(_: bytes) -> Reply:
        raise ValueError("a fault that no one has thought of")

    found = rules(small_job, players)
    found = rules(small_job, players, sealing=found.sealing - 59_000)
    with hosts(MEMORY, players, tmp_path) as at:
        at[2].direct.turn = broken  # type: ignore[method-assign]
        driver = drive(small_job, at, found)
    assert driver.seats[2].faults and driver.seats[2].doing in ("ValueError", "waits")
    assert driver.arbiter.session.removed == {B.public: LOST} and accepted(driver, players[0])
