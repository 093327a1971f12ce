"""The time that a party has in a game (PROTOCOL 11)."""

from __future__ import annotations

from random import Random

import pytest
from unit.delegation.players import REFEREE, Player, Time, play, playing, rules
from unit.protocol.simulator import Party

from tallystick.commit.encoding import sha256
from tallystick.delegation import session as s
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import open_entry
from tallystick.delegation.seals import sign_seal
from tallystick.delegation.watch import replayed
from tallystick.errors import CannotCheckError, CounterpartyError
from tallystick.job.job import Job
from tallystick.protocol.judge import judge


def test_a_last_moment_answer_gains_the_extension_and_no_more(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """11.3, 11.4, 11.6: each party has its own time, whatever the other does with its own."""
    players = [Player(honest, 11), Player(lies[2], 12)]
    time = Time()
    arbiter = playing(game_job, players, time)
    session = arbiter.session
    (match,) = session.matches
    seat = next(i for i, m in enumerate(match.members) if m.key == players[1].key.public)
    honest_player = players[0]
    began, asked = time.now, 0
    while match.ending is None:
        if 1 - seat in match.owed:
            arbiter.take(honest_player.party.answer(match.owed[1 - seat]))
        if seat in match.owed and match.ending is None:
            asked += 1
            deadline = match.clocks[seat].deadline
            assert deadline is not None
            time.now = deadline
            arbiter.take(players[1].party.answer(match.owed[seat]))
    budget, extension = 500 + 2 * 10, 50
    assert asked > 3
    assert match.clocks[seat].used == budget + (asked - 1) * extension == time.now - began
    assert match.clocks[1 - seat].used == 0
    assert session.removed == {players[1].key.public: s.LOST}


def test_a_late_answer_is_none(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """11.5: an answer at the deadline is in time, one after it is not."""
    for late in (0, 1):
        players = [Player(honest, 11), Player(lies[0], 12)]
        time = Time()
        arbiter = playing(game_job, players, time)
        session = arbiter.session
        (match,) = session.matches
        deadline = match.clocks[0].deadline
        assert deadline is not None
        time.now = deadline + late
        first = next(p for p in players if p.key.public == match.members[0].key)
        message = first.party.answer(match.owed[0])
        if late:
            with pytest.raises(CounterpartyError):
                arbiter.take(message)
            assert match.ending is not None and match.ending.convicted == 3  # both owed an answer
        else:
            arbiter.take(message)
            assert not match.forfeits


def test_the_referees_absence_is_on_no_partys_clock(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """11.5.2: deadlines move by the time from the last entry to the return."""
    players = [Player(honest, 11), Player(lies[0], 12)]
    time = Time()
    log: list[bytes] = []
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
    time.now = 400
    arbiter.take(
        sign_seal(players[0].key, game_job.digest, players[0].opening(arbiter.session.session))
    )
    time.now = 50_000
    again = Arbiter(game_job.terms, REFEREE, log, time)
    assert again.session.state == s.SEALING
    assert again.session.next_deadline() == 1000 + (50_000 - 400)
    play(again, players, time)
    assert again.session.result is not None
    assert again.session.result.accepted == sha256(players[0].party.commitment)


class Jumping(Time):
    """A clock that somebody sets back by up to an hour, every other time that it is looked at."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng, self._looks = Random(seed), 0

    def __call__(self) -> int:
        self._looks += 1
        return max(0, self.now - (self._looks % 2) * self._rng.randrange(3_600_000))


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_is_set_back_costs_nobody(
    seed: int, game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """12.4, 12.5: times in the log never run backwards, and the honest claim wins."""
    players = [Player(honest, 11), Player(lies[0], 12), Player(lies[1], 13)]
    time, log = Jumping(seed), list[bytes]()
    arbiter = playing(game_job, players, time, log)
    play(arbiter, players, time)
    session = arbiter.session
    assert session.result is not None
    assert session.result.accepted == sha256(players[0].party.commitment)
    assert players[0].key.public not in session.removed
    times = [open_entry(entry, REFEREE.public).time for entry in log]
    assert times == sorted(times)
    assert replayed(game_job.terms, log).result == session.result


@pytest.mark.parametrize("jump", [1 << 20, (1 << 53) - 1 - 10_000, 1 << 60])
def test_a_clock_that_jumps_ahead_convicts_nobody(
    jump: int, game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """THREATS 2.3: it makes parties silent, by the referee's word alone.

    A time that no log has (11.1) stops the referee, which goes on from its log when the clock is
    right again. It wrote such an entry, which nobody could read."""
    players = [Player(honest, 11), Player(lies[0], 12)]
    time, log = Time(), list[bytes]()
    arbiter = playing(game_job, players, time, log)
    time.now += jump
    if jump > 1 << 53:
        with pytest.raises(CannotCheckError, match="a time that no log has"):
            arbiter.tick()
        replayed(game_job.terms, log)
        time.now -= jump
        arbiter = Arbiter(game_job.terms, REFEREE, log, time)
        play(arbiter, players, time)
        assert arbiter.session.result is not None
        assert arbiter.session.result.accepted == sha256(players[0].party.commitment)
        return
    arbiter.tick()
    (match,) = arbiter.session.matches
    assert match.ending is not None and match.forfeits
    with pytest.raises(CannotCheckError, match="the word of referee"):
        judge(game_job.terms, match.evidence().to_bytes())
    assert replayed(game_job.terms, log).removed == arbiter.session.removed
