"""A party's answers are kept once, within bounds that no stranger fills for a game (PROTOCOL 6.15,
10.7, 13.4)."""

from __future__ import annotations

import pytest
from unit.protocol.scenarios import MM, STEP
from unit.protocol.simulator import Party

from tallystick.protocol import queries as q
from tallystick.protocol.queries import encode_query
from tallystick.protocol.referee import Referee
from tallystick.prover import answers as kept_answers
from tallystick.prover.answers import FROM_FILES, TO_GAMES, TO_STRANGERS, Answers, Worker
from tallystick.prover.prover import Prover


def name(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_an_answer_is_kept_until_its_share_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "ANSWERS_ROOM", (108 * 3, 108 * 3, 108))
    answers = Answers()
    for number in range(3):
        answers.keep(name(number), bytes(100), TO_GAMES)
    assert answers.get(name(0)) == bytes(100)  # so 1 was asked for longest ago
    answers.keep(name(3), bytes(100), TO_GAMES)
    assert [n for n in range(4) if answers.get(name(n)) is None] == [1]
    answers.keep(name(4), bytes(10_000), TO_GAMES)  # the newest one is kept, whatever its length
    assert [n for n in range(5) if answers.get(name(n)) is not None] == [4]


def test_strangers_push_out_no_answer_to_a_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "ANSWERS_ROOM", (108 * 3, 108 * 3, 108))
    answers = Answers()
    answers.keep(b"game", bytes(100), TO_GAMES)
    answers.keep(b"loss", bytes(100), TO_STRANGERS)
    for number in range(100):
        answers.keep(name(number), bytes(100), FROM_FILES)
    assert answers.get(b"loss") is not None
    for number in range(100, 200):
        answers.keep(name(number), bytes(100), TO_STRANGERS)
    assert answers.get(b"game") is not None and answers.get(b"loss") is None
    assert sum(answers.get(name(number)) is not None for number in range(200)) == 1 + 3


def test_an_equal_query_costs_no_step(prover: Prover) -> None:
    query = encode_query(q.Leaf(STEP, MM, q.OUTPUT, 0, 0))
    assert prover.kept(query) is None
    answer, steps = prover.answer(query), prover.executed_steps
    worker = Worker(prover)
    assert worker.ask(query).result(0) == prover.kept(query) == prover.answer(query) == answer
    assert prover.executed_steps == steps
    assert worker.close()


def test_a_game_holds_each_answer_as_it_came(honest: Party) -> None:
    referee = Referee(honest.job.terms, (honest.commitment, honest.commitment))
    (query,) = set(referee.pending.values())
    assert referee.said(0, query) is None
    message = honest.answer(query)
    referee.receive(0, message)
    assert referee.said(0, query) is message and referee.said(1, query) is None
