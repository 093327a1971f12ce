"""The referee's own driver: deadlines, and writes that fail (PROTOCOL 12.3 to 12.5)."""

from __future__ import annotations

import pytest
from unit.delegation.players import REFEREE, Player, Time, play, playing, rules
from unit.protocol.simulator import Party

from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.seals import sign_seal
from tallystick.delegation.watch import replayed
from tallystick.errors import CannotCheckError, StorageError
from tallystick.job.job import Job
from tallystick.protocol.judge import judge
from tallystick.protocol.messages import Answer, sign_answer


def test_a_deadline_that_passes_while_an_answer_is_taken(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """12.4: the answer has come in time. The entry has the time of its arrival."""

    class Passing(Time):
        left = 10**9

        def __call__(self) -> int:
            self.left -= 1
            return self.now + (self.left < 0)

    players, time = [Player(honest, 11), Player(lies[0], 12)], Passing()
    arbiter = playing(game_job, players, time)
    (match,) = arbiter.session.matches
    deadline = match.clocks[0].deadline
    assert deadline is not None
    time.now, time.left = deadline, 1
    player = next(p for p in players if p.key.public == match.members[0].key)
    arbiter.take(player.party.answer(match.owed[0]))
    assert 0 not in match.forfeits


def test_a_game_that_has_ended_has_no_deadline(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """2.9 ends a game while the other party owes an answer; another game goes on."""
    players = [Player(honest, 11), *(Player(lie, 12 + i) for i, lie in enumerate(lies[:3]))]
    time = Time()
    arbiter = playing(game_job, players, time)
    first, second = arbiter.session.matches
    liar = next(p for p in players if p.key.public == first.members[0].key)
    query = first.owed[0]
    for status in (0, 1):
        arbiter.take(_answered(liar, query, status))
    assert first.ended and 1 not in first.forfeits and second.ending is None
    time.now += 10**6
    arbiter.tick()
    assert second.forfeits and not first.forfeits
    assert judge(game_job.terms, first.evidence().to_bytes()).verdict.convicted[0].clause == "2.9"


def _answered(player: Player, query: bytes, status: int) -> bytes:
    run = player.party.run
    return sign_answer(player.key, Answer(run.job_digest, run.run_root, query, status, b""))


def test_a_referee_stops_after_a_write_that_failed(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """12.5.1: whether the entry is in the log is unknown, so no other one takes its place."""

    class Failing(list[bytes]):
        fails = False

        def append(self, entry: bytes) -> None:
            super().append(entry)  # it may be there
            if self.fails:
                raise StorageError("The disk is full.")

    players, time, log = [Player(honest, 11), Player(lies[0], 12)], Time(), Failing()
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
    seals = [sign_seal(p.key, game_job.digest, p.opening(arbiter.session.session)) for p in players]
    log.fails = True
    with pytest.raises(StorageError):
        arbiter.take(seals[0])
    log.fails, length = False, len(log)
    with pytest.raises(CannotCheckError, match="has stopped"):
        arbiter.take(seals[1])
    assert len(log) == length
    again = Arbiter(game_job.terms, REFEREE, log, time)
    play(again, players, time)
    assert replayed(game_job.terms, log).result == again.session.result
