"""The time that a party has in a game (PROTOCOL 11)."""

from __future__ import annotations

import pytest
from unit.delegation.players import REFEREE, Player, Time, play, playing, rules
from unit.protocol.simulator import Party

from tallystick.commit.encoding import sha256
from tallystick.delegation import session as s
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.seals import sign_seal
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job


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
