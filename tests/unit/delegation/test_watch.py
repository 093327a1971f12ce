"""A referee that lies is convicted by its log, and an honest one never is (PROTOCOL 12.5)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.delegation.referee_lies import LIES, OTHER, Lie, World
from unit.protocol.simulator import Party

from tallystick.delegation import entries as e
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import DeviationError, Entry, sign_entry
from tallystick.delegation.session import Session
from tallystick.delegation.watch import contradiction, replayed
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    EnvironmentRefusedError,
    MachineFaultError,
    UsageError,
)
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol.referee import Referee


@pytest.fixture(scope="module")
def world(game_job: Job, honest: Party, lies: list[Party]) -> World:
    players = [Player(honest, 11), Player(lies[4], 12), Player(lies[2], 13),
               Silent(lies[1], 14, since=3, words=1), Player(honest, 15)]  # fmt: skip
    log: list[bytes] = []
    time = Time()
    fixed = rules(game_job, players)
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, fixed)
    play(arbiter, players, time)
    assert len(arbiter.session.matches) >= 3 and len(log) > 60
    return World(game_job, players, fixed, log)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_deviation_convicts_the_referee(lie: Callable[[World], Lie], world: World) -> None:
    # PROTOCOL 12.5
    log, index = lie(world)
    replayed(world.job.terms, log[:index])  # up to there it is honest
    with pytest.raises(DeviationError) as caught:
        replayed(world.job.terms, log)
    assert (caught.value.index, caught.value.clause) == (index, LIES[lie])
    assert caught.value.exit_code == 1


def test_no_other_entry_of_a_determined_kind_fits_anywhere(world: World) -> None:
    """12.4: of the kinds that follow, and of the clock's, there is one right entry at a time."""
    determined = (e.SealingClosed, e.OpeningClosed, e.Asked, e.Forfeited, e.GameBegun, e.GameEnded,
                  e.Result)  # fmt: skip
    pool = {x.event for x in world.entries if isinstance(x.event, determined)}
    session, tried = Session(world.job.terms), 0
    for entry in world.entries:
        for event in pool - {entry.event}:
            if entry.index == 0:
                continue
            with pytest.raises(DeviationError) as caught:
                session.apply(replace(entry, event=event))
            assert caught.value.index == entry.index
            tried += 1
        session.apply(entry)  # a refused entry has changed nothing
    assert session.result is not None and tried > 2000


def test_two_forfeits_in_the_wrong_order(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """12.4: of equal deadlines party 0's entry stands first."""
    players: list[Player] = [Silent(honest, 11, since=3), Silent(lies[0], 12, since=3)]
    log: list[bytes] = []
    time = Time()
    fixed = rules(game_job, players)
    play(Arbiter(game_job.terms, REFEREE, log, time, fixed), players, time)
    w = World(game_job, players, fixed, log)
    index = w.first(e.Forfeited)
    second = w.entries[index + 1].event
    assert isinstance(second, e.Forfeited) and second.party == 1
    with pytest.raises(DeviationError) as caught:
        replayed(game_job.terms, w.lie(index, second))
    assert (caught.value.index, caught.value.clause) == (index, "12.4")


def test_three_parties_under_a_contract_with_logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """10.1, 10.1.2: such rules begin no session, and convict no one."""
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    job = new_job(
        "logreg", tmp_path_factory.mktemp("watch") / "job", pairs, steps=2, contract="replay/1",
        checkpoint_interval=2, evaluate_every=0,
    )  # fmt: skip
    for most in (2, 3):
        entry = Entry(0, e.FIRST, 0, e.SessionBegun(rules(job, most=most)))
        log = [sign_entry(REFEREE, entry)]
        if most == 2:
            assert replayed(job.terms, log).length == 1
            continue
        with pytest.raises(UsageError, match="only two parties"):
            replayed(job.terms, log)


# --- two copies of a log (12.5.1) -----------------------------------------------------------------
def test_two_entries_with_one_index(world: World) -> None:
    index = world.first(e.Answered)
    other = world.lie(index, world.entries[index].event, world.entries[index].time + 1)
    found = contradiction(world.log, other)
    assert found is not None and (found.index, found.clause) == (index, "12.5.1")
    assert contradiction(world.log, world.log) is None
    assert contradiction(world.log[:7], world.log) is None


def test_a_mixed_log_convicts_no_referee(world: World) -> None:
    """12.5.3: the same referee holds two sessions, and a person mixes their entries."""
    log: list[bytes] = []
    time = Time()
    fixed = rules(world.job, world.players, nonce=b"2" * 32)
    play(Arbiter(world.job.terms, REFEREE, log, time, fixed), world.players, time)
    for index in (1, 5, world.first(e.Answered), len(log) - 1):
        mixed = [*world.log[:index], *log[index:]]
        with pytest.raises(CorruptFileError, match="does not continue"):
            replayed(world.job.terms, mixed)
        with pytest.raises(CorruptFileError, match="does not continue"):
            contradiction(world.log, mixed)
    with pytest.raises(CorruptFileError, match="two sessions"):
        contradiction(world.log, log)


# --- no honest referee is convicted ---------------------------------------------------------------
def test_a_log_with_an_entry_taken_out_convicts_no_referee(world: World) -> None:
    for index in range(0, len(world.log) - 1, 4):
        with pytest.raises(CorruptFileError):
            replayed(world.job.terms, [*world.log[:index], *world.log[index + 1 :]])


def test_entries_that_the_referee_has_not_signed(world: World) -> None:
    index = world.first(e.Asked)
    forged = sign_entry(OTHER, replace(world.entries[index], time=5))
    for message in (forged, b"", world.log[index][:-1], world.log[index] + b"\0", bytes(80)):
        with pytest.raises(CorruptFileError):
            replayed(world.job.terms, [*world.log[:index], message])


def test_the_log_of_another_job(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The watcher's own mistake says nothing about the referee."""
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    path = tmp_path_factory.mktemp("watch") / "other"
    other = new_job("logreg", path, pairs, steps=2, checkpoint_interval=2, evaluate_every=0)
    with pytest.raises(UsageError, match="another job"):
        replayed(other.terms, world.log)


def test_a_return_stands_anywhere(world: World) -> None:
    """11.5.2: a referee may stop at any entry, and its log does not say whether it had to."""
    for index in range(1, len(world.log), 7):
        time = world.entries[index - 1].time + 10**9
        log = world.lie(index, e.Resumed(), time)
        assert replayed(world.job.terms, log).length == index + 1


class Hasty(Time):
    """A clock that goes on with every look at it."""

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.mark.parametrize("seed", range(20))
def test_honest_logs_of_random_sessions(
    seed: int, game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """Silence anywhere, restarts anywhere, a clock that never stands still."""
    rng = random.Random(seed)
    players: list[Player] = []
    for number in range(rng.randint(2, 6)):
        party = rng.choice([honest, *lies])
        silent = Silent(party, 11 + number, rng.choice([1, 2, 3]), rng.randint(0, 5))
        players.append(silent if rng.random() < 0.5 else Player(party, 11 + number))
    log: list[bytes] = []
    time = rng.choice([Time, Hasty])()
    fixed = rules(game_job, players, budget=rng.choice([3, 500]), extension=rng.choice([0, 9]))
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, fixed)
    for _ in range(rng.randint(0, 3)):
        with suppress(StoppedError):
            play(arbiter, players, time, stopping_after(rng.randint(1, 30)))
        time.now += rng.choice([0, 5, 10**6])
        arbiter = Arbiter(game_job.terms, REFEREE, log, time, fixed)
    play(arbiter, players, time)
    session = replayed(game_job.terms, log)
    assert session.result == arbiter.session.result is not None


class StoppedError(Exception):
    """The referee's process ends here."""


def stopping_after(messages: int) -> Callable[[], None]:
    left = [messages]

    def watch() -> None:
        left[0] -= 1
        if not left[0]:
            raise StoppedError

    return watch


@pytest.mark.parametrize("error", [MachineFaultError, EnvironmentRefusedError])
def test_a_readers_own_machine_convicts_no_referee(
    error: type[CannotCheckError], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.8.1: what this machine cannot judge is no game without a verdict (2.6.1)."""

    def fail(*_: object) -> None:
        raise error("This machine cannot execute that.")

    monkeypatch.setattr(Referee, "judge_round", fail)
    with pytest.raises(error):
        replayed(world.job.terms, world.log)
