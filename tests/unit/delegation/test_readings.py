"""Where two readings of the text differed, and what it says now (PROTOCOL 10 to 12)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reference.judge.evidence import judge as by_the_text
from unit.delegation.players import REFEREE, Player, Time, play, playing, rules
from unit.delegation.second_signature import signed_again
from unit.protocol.simulator import Party

from tallystick.commit.signing import pae
from tallystick.delegation import session as s
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import (
    DeviationError,
    Entry,
    NoEffectError,
    Resumed,
    SessionBegun,
    open_entry,
    sign_entry,
)
from tallystick.delegation.seals import OPENING_TYPE, SEAL_TYPE, sign_opening, sign_seal
from tallystick.delegation.turns import AskOpening, open_turn
from tallystick.delegation.watch import contradiction, replayed
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.protocol.judge import judge
from tallystick.protocol.messages import ANSWER_TYPE, ANSWERED, Answer, sign_answer


def again(message: bytes, seed: int, payload_type: str) -> bytes:
    """The same statement with another signature of the same key."""
    data = message[8:-64]
    signature = signed_again(seed.to_bytes(32, "big"), pae(payload_type, data), 987654321)
    assert signature != message[-64:]
    return message[:-64] + signature


def false_answer(player: Player, query: bytes) -> bytes:
    run = player.party.run
    answer = Answer(run.job_digest, run.run_root, query, ANSWERED, b"another")
    return sign_answer(player.key, answer)


def test_a_statement_signed_twice_is_one(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """2.9, 10.2.1, 10.3.1: a signer whose signatures vary has not said two things."""
    players, time = [Player(honest, 11), Player(lies[0], 12)], Time()
    arbiter = Arbiter(game_job.terms, REFEREE, [], time, rules(game_job, players))
    session = arbiter.session.session
    seals = [sign_seal(p.key, game_job.digest, p.opening(session)) for p in players]
    openings = [sign_opening(p.key, p.opening(session)) for p in players]
    for messages, payload_type in ((seals, SEAL_TYPE), (openings, OPENING_TYPE)):
        arbiter.take(messages[0])
        with pytest.raises(NoEffectError):
            arbiter.take(again(messages[0], 11, payload_type))
        arbiter.take(messages[1])
    (match,) = arbiter.session.matches
    seat = next(i for i, m in enumerate(match.members) if m.key == players[0].key.public)
    answer = players[0].party.answer(match.owed[seat])
    arbiter.take(answer)
    with pytest.raises(NoEffectError):
        arbiter.take(again(answer, 11, ANSWER_TYPE))
    assert arbiter.session.removed == {} and match.ending is None


def test_an_answer_signed_twice_is_no_equivocation_to_a_judge(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """2.9, 8.3: evidence with it is refused; no party is convicted by it."""
    players, time = [Player(honest, 11), Player(lies[0], 12)], Time()
    arbiter = playing(game_job, players, time)
    play(arbiter, players, time)
    (match,) = arbiter.session.matches
    seeds = [11 if m.key == players[0].key.public else 12 for m in match.members]
    evidence = match.evidence()
    party, message = evidence.messages[0]
    for seat_of_it in (1, 2):
        twice = (party, again(message, seeds[party], ANSWER_TYPE))
        messages = (*evidence.messages[:seat_of_it], twice, *evidence.messages[seat_of_it:])
        data = replace(evidence, messages=messages).to_bytes()
        with pytest.raises(CorruptFileError):
            judge(game_job.terms, data)
        files = [(game_job.directory / name).read_bytes() for name in ("job.json", "program.txt")]
        assert "refused" in by_the_text(*files, data)


def test_an_equivocation_after_the_others_forfeit_is_none(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """11.5, P3: party 0 forfeits while party 1 still owes; the game's evidence can be judged."""
    players, time = [Player(honest, 11), Player(lies[2], 12)], Time()
    arbiter = playing(game_job, players, time, budget=100, step=0, steps=0, extension=0)
    (match,) = arbiter.session.matches
    seats = [next(p for p in players if p.key.public == m.key) for m in match.members]
    query = match.owed[1]
    time.now += 60  # of party 0's time; party 1 has all of it in the next round
    arbiter.take(seats[1].party.answer(query))
    time.now += 20
    arbiter.take(seats[0].party.answer(match.owed[0]))
    ends = [c.deadline for c in match.clocks]
    assert ends[0] is not None and ends[1] is not None and ends[0] < ends[1]
    time.now = ends[0] + 1
    arbiter.tick()
    assert set(match.forfeits) == {0} and set(match.owed) == {1}
    with pytest.raises(NoEffectError):
        arbiter.take(false_answer(seats[1], query))
    arbiter.take(seats[1].party.answer(match.owed[1]))
    assert match.ending is not None and match.ending.convicted == 1
    found = judge(game_job.terms, match.evidence().to_bytes(), trust_referees=[REFEREE.public])
    assert [c.party for c in found.verdict.convicted] == [0]


def test_a_log_of_another_job_or_of_no_session_convicts_no_one(
    game_job: Job, honest: Party
) -> None:
    """10.1.2."""
    log: list[bytes] = []
    Arbiter(game_job.terms, REFEREE, log, Time(), rules(game_job))
    entry = open_entry(log[0])
    assert isinstance(entry.event, SessionBegun)
    other = replace(entry, event=SessionBegun(replace(entry.event.rules, job_digest=b"x" * 32)))
    with pytest.raises(UsageError, match="another job"):
        replayed(game_job.terms, [sign_entry(REFEREE, other)])
    for changed in ({"arity": 1}, {"most": 65}, {"steps": 1 << 41}, {"sealing": 1 << 53}):
        with pytest.raises(UsageError):
            replace(entry.event.rules, **changed)


def test_a_clocks_entry_is_not_written_at_its_deadline(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """11.5, 12.5: at the deadline an answer is in time, so a forfeit there convicts."""
    players, time = [Player(honest, 11), Player(lies[0], 12)], Time()
    log: list[bytes] = []
    arbiter = playing(game_job, players, time, log)
    deadline = arbiter.session.next_deadline()
    assert deadline is not None
    time.now = deadline
    arbiter.tick()
    assert not arbiter.session.matches[0].forfeits
    time.now = deadline + 1
    arbiter.tick()
    index = next(i for i, e in enumerate(log) if open_entry(e, REFEREE.public).event.KIND == 8)
    early = replace(open_entry(log[index], REFEREE.public), time=deadline)
    with pytest.raises(DeviationError) as found:
        replayed(game_job.terms, [*log[:index], sign_entry(REFEREE, early)])
    assert found.value.index == index


def test_a_referee_that_often_returns_can_still_show_its_sealing(
    game_job: Job, honest: Party
) -> None:
    """11.5.2, 13.2: the entries to the closing fit into a turn; else no party could open."""
    players, time = [Player(honest, 11), Player(honest, 12)], Time()
    log: list[bytes] = []
    Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
    last = open_entry(log[0])
    while len(log) < 894:
        last = Entry(last.index + 1, last.digest(), 0, Resumed())
        log.append(sign_entry(REFEREE, last))
    for _ in range(4):
        arbiter = Arbiter(game_job.terms, REFEREE, log, time)
    assert len(log) == 895
    session = arbiter.session.session
    for p in players:
        arbiter.take(sign_seal(p.key, game_job.digest, p.opening(session)))
    turns = arbiter.outgoing()
    assert set(turns) == {p.key.public for p in players}
    for data in turns.values():
        request = open_turn(data, (REFEREE.public,))[0].request
        assert isinstance(request, AskOpening) and len(request.entries) == len(log) == 898
    assert 895 + 2 * LIMITS.parties + 1 == LIMITS.turn_entries


def test_who_stops_the_referee_before_each_deadline_gains_time_and_nothing_else(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """11.5.3: what a return gives back is the time since the last entry, whoever used it."""
    players, time = [Player(honest, 11), Player(lies[0], 12)], Time()
    log: list[bytes] = []
    arbiter = playing(game_job, players, time, log)
    (match,) = arbiter.session.matches
    liar = next(i for i, m in enumerate(match.members) if m.key == players[1].key.public)
    if 1 - liar in match.owed:
        arbiter.take(players[0].party.answer(match.owed[1 - liar]))
    began = time.now
    for _ in range(20):
        deadline = arbiter.session.next_deadline()
        assert deadline is not None
        time.now = deadline
        arbiter = Arbiter(game_job.terms, REFEREE, log, time)
    assert time.now - began > 10 * (500 + 2 * 10) and not arbiter.session.matches[0].forfeits
    deadline = arbiter.session.next_deadline()
    assert deadline is not None
    time.now = deadline + 1
    arbiter.tick()
    assert arbiter.session.removed == {players[1].key.public: s.LOST}


def test_two_sessions_of_one_referee_are_no_contradiction(game_job: Job, honest: Party) -> None:
    """12.5.1: entries of one index and two sessions say nothing about the referee."""
    logs: list[list[bytes]] = [[], []]
    for log, nonce in zip(logs, (b"1" * 32, b"2" * 32), strict=True):
        Arbiter(game_job.terms, REFEREE, log, Time(), rules(game_job, nonce=nonce))
        Arbiter(game_job.terms, REFEREE, log, Time())  # a return
    with pytest.raises(CorruptFileError):
        contradiction(logs[0], logs[1])
    with pytest.raises(CorruptFileError):
        contradiction(logs[0], [logs[0][0], logs[1][1]])
    second = open_entry(logs[0][1], REFEREE.public)
    fork = [logs[0][0], sign_entry(REFEREE, Entry(1, second.previous, 7, Resumed()))]
    assert contradiction(logs[0], fork) is not None
    assert replayed(game_job.terms, fork).state == s.SEALING
