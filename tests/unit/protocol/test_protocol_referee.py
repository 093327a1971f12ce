"""The referee against every lie of scenarios.py, and against what is no answer (PROTOCOL)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from unit.protocol.scenarios import (
    ADDMM,
    ENDINGS,
    MM,
    SCENARIOS,
    STEP,
    WRONG,
    WRONG_NODE,
    WRONG_PART,
    Lie,
    Scenario,
    answering,
    put,
    signalling,
    tampering,
)
from unit.protocol.simulator import Party, play

from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.protocol import queries as q
from tallystick.protocol import referee as module
from tallystick.protocol.answers import Answer, make_answer, sign_answer
from tallystick.protocol.referee import STEPS, Referee
from tallystick.protocol.states import AGREEMENT, TABLE, page
from tallystick.protocol.verdict import Verdict
from tallystick.run.job import Job

ROOT = Path(__file__).resolve().parents[3]


def liar(job: Job, scenario: Scenario) -> Party:
    return Party(job, Lie(**scenario.hooks), scenario.tamper, scenario.statement)


@pytest.fixture(scope="module")
def honest(game_job: Job) -> Party:
    return Party(game_job)


def judged(job: Job, parties: tuple[Party, Party], arity: int = 20) -> Verdict:
    """The verdict of a game, which a replay of its transcript must give again."""
    commitments = (parties[0].commitment, parties[1].commitment)
    referee = Referee(job, commitments, arity)
    play(referee, parties)
    again = Referee(job, commitments, arity)
    for party, message in referee.transcript:
        again.receive(party, message)
    backwards = Referee(job, commitments, arity)
    play(backwards, parties, order=(1, 0))
    assert referee.verdict is not None
    assert again.verdict == referee.verdict == backwards.verdict
    assert referee.pending == {} and referee.verdict.story == tuple(referee.events)
    return referee.verdict


def check(job: Job, honest: Party, scenario: Scenario, seat: int, arity: int) -> None:
    cheat = liar(job, scenario)
    parties = (cheat, honest) if seat == 0 else (honest, cheat)
    verdict = judged(job, parties, arity)
    if scenario.zero_only and seat == 1:  # then the cheat is not asked, and convicted otherwise
        assert [c.party for c in verdict.convicted] == [1]
        assert verdict.accepted == 0
        return
    assert [(c.party, c.clause) for c in verdict.convicted] == [(seat, scenario.clause)]
    assert verdict.accepted == 1 - seat
    assert verdict.case == scenario.case
    assert not verdict.agreement and not verdict.forfeit
    if scenario.phase is not None:
        assert verdict.phase == scenario.phase


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lie_convicts_the_liar_alone(game_job: Job, honest: Party, name: str, seat: int) -> None:
    check(game_job, honest, SCENARIOS[name], seat, 20)


@pytest.mark.parametrize("arity", [2, 3, 256])
@pytest.mark.parametrize("name", ["a wrong product", "only a middle checkpoint"])
def test_any_arity(game_job: Job, honest: Party, name: str, arity: int) -> None:
    check(game_job, honest, SCENARIOS[name], 1, arity)


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", ENDINGS)
def test_different_ends(diverging_job: Job, name: str, seat: int) -> None:
    """PROTOCOL 4.7 to 4.10, at a checkpoint and between two."""
    honest = Party(diverging_job)
    assert honest.run.final_step == 2
    check(diverging_job, honest, ENDINGS[name], seat, 2)


def test_random_key(mlp_job: Job) -> None:
    """PROTOCOL 5.6.4 for the rng input."""
    cheat = Lie(random_key=lambda step, key: (key[0] + 1, key[1]) if step == STEP else key)
    verdict = judged(mlp_job, (Party(mlp_job), Party(mlp_job, cheat)))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "5.6.4")]
    assert (verdict.case, verdict.place.step) == ("2d", STEP)


def test_agreement(game_job: Job, honest: Party) -> None:
    verdict = judged(game_job, (honest, Party(game_job)))
    assert verdict.agreement and verdict.accepted is None and verdict.convicted == ()


def test_the_place_is_known(game_job: Job, honest: Party) -> None:
    verdict = judged(game_job, (honest, liar(game_job, SCENARIOS["a wrong product"])))
    place = verdict.place
    assert place.interval == (4, 8)
    assert (place.step, place.node, place.operator) == (STEP, MM, "aten.mm")
    assert (place.side, place.operand, place.element) == ("output", 0, 1350)
    assert place.quantity == "element" and verdict.terms == 1 and verdict.phase == 3
    assert verdict.claimed[0] == verdict.value != verdict.claimed[1]


# -- both lie (P11) ------------------------------------------------------------------------------


def test_both_have_another_structure_before_the_dispute(game_job: Job) -> None:
    """PROTOCOL 5.6.2: the producing node is in both trees, and in no honest one."""
    odd = tampering(0, operator="aten.t")
    worse = tampering(ADDMM, inputs=put(2))
    parties = (
        Party(game_job, Lie(), odd),
        Party(game_job, Lie(**WRONG_NODE), lambda s, i, b: worse(s, i, odd(s, i, b))),
    )
    verdict = judged(game_job, parties)
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "5.6.2"), (1, "5.6.2")]
    assert verdict.accepted is None and verdict.case == "1"


def test_both_agree_on_an_operand_that_is_not_canonical(game_job: Job) -> None:
    """PROTOCOL 6.5."""

    def batch(step: int, given: dict) -> None:
        if step == STEP:
            signalling(given["x"])

    def node(step: int, index: int, _: object, outputs: list) -> None:
        if (step, index) == (STEP, MM):  # everything else of this step is NaN by now
            outputs[0][1, 650] = 1

    worse = Lie(batch=batch, node=node, answer=WRONG_PART)
    parties = (Party(game_job, Lie(batch=batch)), Party(game_job, worse))
    verdict = judged(game_job, parties)
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.5"), (1, "6.5")]


def test_neither_is_right(game_job: Job, honest: Party) -> None:
    def other(step: int, index: int, node: object, outputs: list) -> None:
        if (step, index) == (STEP, MM):
            outputs[0][1, 650] += 2

    parties = (liar(game_job, SCENARIOS["a wrong product"]), Party(game_job, Lie(node=other)))
    verdict = judged(game_job, parties)
    assert [c.party for c in verdict.convicted] == [0, 1] and verdict.accepted is None


# -- messages (PROTOCOL 2.6 to 2.10) -------------------------------------------------------------


@pytest.fixture
def cheat(game_job: Job) -> Party:
    return liar(game_job, SCENARIOS["a wrong product"])


@pytest.fixture
def game(game_job: Job, honest: Party, cheat: Party) -> Referee:
    return Referee(game_job, (honest.commitment, cheat.commitment))


def test_equivocation(game: Referee, honest: Party, cheat: Party) -> None:
    """PROTOCOL 2.9; the same answer again is nothing."""
    query = game.pending[1]
    game.receive(1, cheat.answer(query))
    game.receive(1, cheat.answer(query))
    assert game.verdict is None and len(game.transcript) == 1
    asked = q.decode_query(query)
    game.receive(1, make_answer(cheat.key, cheat.job.digest, cheat.run.run_root, asked, None))
    assert game.verdict is not None
    assert [(c.party, c.clause) for c in game.verdict.convicted] == [(1, "2.9")]
    assert game.verdict.accepted == 0 and len(game.transcript) == 2


def test_equivocation_about_an_earlier_round(game: Referee, honest: Party, cheat: Party) -> None:
    first = game.pending[1]
    for party, who in enumerate((honest, cheat)):
        game.receive(party, who.answer(game.pending[party]))
    assert game.verdict is None and game.rounds == 2
    asked = q.decode_query(first)
    game.receive(1, make_answer(cheat.key, cheat.job.digest, cheat.run.run_root, asked, None))
    assert game.verdict is not None
    assert [(c.party, c.clause) for c in game.verdict.convicted] == [(1, "2.9")]


def test_silence(game: Referee, honest: Party) -> None:
    """PROTOCOL 2.10."""
    game.receive(0, honest.answer(game.pending[0]))
    with pytest.raises(UsageError):
        game.silent(0)
    game.silent(1)
    assert game.verdict is not None and game.verdict.forfeit
    assert [(c.party, c.clause) for c in game.verdict.convicted] == [(1, "2.10")]
    assert game.verdict.accepted == 0
    with pytest.raises(UsageError):
        game.receive(0, b"")


def test_what_is_no_answer_changes_nothing(
    game: Referee, game_job: Job, honest: Party, cheat: Party
) -> None:
    """PROTOCOL 2.6."""
    query = game.pending[0]
    good = honest.answer(query)
    asked = q.decode_query(query)
    root = honest.run.run_root
    elsewhere = q.States((1,))
    bad = [
        b"",
        good[:-1],
        good[:-1] + bytes([good[-1] ^ 1]),
        good + b"\0",
        bytes(LIMITS.answer_bytes + 1),
        make_answer(cheat.key, game_job.digest, root, asked, honest.facts(asked)),
        make_answer(honest.key, WRONG, root, asked, honest.facts(asked)),
        make_answer(honest.key, game_job.digest, WRONG, asked, honest.facts(asked)),
        make_answer(honest.key, game_job.digest, root, elsewhere, honest.facts(elsewhere)),
    ]
    for message in bad:
        with pytest.raises(CorruptFileError):
            game.receive(0, message)
    with pytest.raises(UsageError):
        game.receive(2, good)
    assert game.transcript == [] and game.received == 0 and game.pending[0] == query
    game.receive(0, good)
    assert game.verdict is None and 0 not in game.pending


@pytest.mark.parametrize("status, body", [(0, b"\1"), (1, b"\1"), (2, b"")])
def test_malformed(game: Referee, honest: Party, cheat: Party, status: int, body: bytes) -> None:
    """PROTOCOL 2.7, for any bytes after the head."""
    answer = Answer(cheat.job.digest, cheat.run.run_root, game.pending[1], status, body)
    game.receive(1, sign_answer(cheat.key, answer))
    assert game.verdict is None  # judged when the round is whole
    game.receive(0, honest.answer(game.pending[0]))
    assert game.verdict is not None
    assert [(c.party, c.clause) for c in game.verdict.convicted] == [(1, "2.7")]


def test_an_opening_of_other_leaves_is_malformed(game_job: Job, honest: Party) -> None:
    other = answering(q.Opening, lambda k, _: honest.facts(replace(k, leaves=(0,))))
    worse = Lie(
        answer=lambda k, b: other(k, b) if getattr(k, "operand", 0) == 1 else WRONG_PART(k, b),
        **WRONG_NODE,
    )
    verdict = judged(game_job, (Party(game_job, worse), honest))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "2.7")]


def test_no_party_to_the_game(game_job: Job, logreg_job: Job, honest: Party) -> None:
    """PROTOCOL 3.1."""
    stranger = Party(logreg_job)
    forged = honest.commitment.replace(b'"sig":"', b'"sig":"AA')
    for other in (stranger.commitment, forged, b"{}"):
        with pytest.raises(UsageError):
            Referee(game_job, (honest.commitment, other))
    for arity in (1, 257):
        with pytest.raises(UsageError):
            Referee(game_job, (honest.commitment, honest.commitment), arity)


# -- the table -----------------------------------------------------------------------------------


def test_table_and_states_are_the_same() -> None:
    assert set(STEPS) == set(TABLE)
    for state in TABLE.values():
        assert set(state.follows) <= set(TABLE) | {AGREEMENT}


def test_every_state_is_reached(game_job: Job, diverging_job: Job, mlp_job: Job) -> None:
    reached = set()

    class Watching(Referee):
        def _enter(self, name: str) -> None:
            reached.add(name)
            super()._enter(name)

    def watch(job: Job, scenarios: dict[str, Scenario]) -> None:
        honest = Party(job)
        for scenario in scenarios.values():
            cheat = liar(job, scenario)
            play(Watching(job, (cheat.commitment, honest.commitment)), (cheat, honest))

    watch(game_job, SCENARIOS)
    watch(diverging_job, ENDINGS)
    assert reached == set(TABLE)


def test_a_transition_outside_the_table_is_refused(game: Referee) -> None:
    with pytest.raises(RuntimeError):
        game._follow("element")


def test_the_page_is_the_table() -> None:
    assert (ROOT / "docs" / "PROTOCOL-STATES.md").read_text() == page()


def test_every_clause_that_convicts_is_tested() -> None:
    room = Path(module.__file__).parent
    names = ("phase0", "phase1", "phase2", "phase3", "tensors", "referee")
    text = "".join((room / f"{name}.py").read_text() for name in names)
    convicting = set(re.findall(r'\(\s*"(\d\.\d[\d.]*)",\s*(?:f?"|why|sentence)', text))
    convicting |= set(re.findall(r'clause = [^"]*"(\d\.\d+)"', text))
    tested = {s.clause for s in [*SCENARIOS.values(), *ENDINGS.values()]} | {"2.9", "2.10"}
    assert convicting <= tested and len(convicting) > 15
