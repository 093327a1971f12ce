"""Messages, and the table of states (PROTOCOL 2.6 to 2.10, 3.1)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import pytest
from unit.protocol.log_scenarios import BOUNDED, PUBLISHED, lie
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import (
    ENDINGS,
    SCENARIOS,
    WRONG,
    WRONG_NODE,
    WRONG_PART,
    Lie,
    Scenario,
    answering,
    liar,
)
from unit.protocol.simulator import Party, judged, play
from unit.protocol.validated import lies, make_validated_job

from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.protocol import queries as q
from tallystick.protocol import referee as module
from tallystick.protocol.game import Game, Next
from tallystick.protocol.messages import Answer, make_answer, sign_answer
from tallystick.protocol.referee import Referee
from tallystick.protocol.states import TABLE, page
from tallystick.protocol.verdict import AGREEMENT, UNDECIDED

ROOT = Path(__file__).resolve().parents[3]

# -- messages (PROTOCOL 2.6 to 2.10) -------------------------------------------------------------


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
            Referee(game_job.terms, (honest.commitment, other))
    for arity in (1, 257):
        with pytest.raises(UsageError):
            Referee(game_job.terms, (honest.commitment, honest.commitment), arity)


# -- the table -----------------------------------------------------------------------------------


def test_table_and_states_are_the_same() -> None:
    for name, state in TABLE.items():
        assert state.run.__name__ == name
        assert set(state.follows) <= set(TABLE) | {AGREEMENT, UNDECIDED}


def taken(name: str) -> type:
    """The kind of result that a state says it is given."""
    hints = get_type_hints(TABLE[name].run)
    (given,) = (hint for key, hint in hints.items() if key not in ("game", "return"))
    return given


def test_what_was_found_does_not_change() -> None:
    """A game and every result that is handed on are frozen; roots and the story are added to."""
    kinds = {taken(name) for name in TABLE} - {type(None)}
    assert len(kinds) > 8
    for kind in (Game, *kinds):
        assert kind.__dataclass_params__.frozen, kind


def test_every_state_is_reached(
    game_job: Job, diverging_job: Job, mlp_job: Job, tmp_path: Path
) -> None:
    reached = set()

    class Watching(Referee):
        def _enter(self, following: Next) -> None:
            reached.add(following.state)
            assert isinstance(following.given, taken(following.state))
            super()._enter(following)

    def watch(job: Job, scenarios: dict[str, Scenario]) -> None:
        honest = Party(job)
        for scenario in scenarios.values():
            cheat = liar(job, scenario)
            play(Watching(job.terms, (cheat.commitment, honest.commitment)), (cheat, honest))

    watch(game_job, SCENARIOS)
    watch(diverging_job, ENDINGS)
    watch(make_validated_job(tmp_path / "validated"), lies())
    logs = make_log_job(tmp_path / "logs", wide=4)
    for name in ("a forged entry, followed", "a forged entry, not followed"):
        forger = LogParty(logs, lie(BOUNDED[name]))
        truth = LogParty(logs, follows=forger)
        play(Watching(logs.terms, (forger.commitment, truth.commitment)), (forger, truth))
    trainer = LogParty(logs, choose=lambda *_: 0)
    unread = LogParty(logs, follows=trainer, withheld={0})
    play(Watching(logs.terms, (trainer.commitment, unread.commitment)), (trainer, unread))
    assert reached == set(TABLE)


def test_a_transition_outside_the_table_is_refused(game: Referee) -> None:
    with pytest.raises(RuntimeError):
        game._follow(Next("element"))


def test_the_page_is_the_table() -> None:
    assert (ROOT / "docs" / "PROTOCOL-STATES.md").read_text() == page()


def test_every_clause_that_convicts_is_tested() -> None:
    room = Path(module.__file__).parent
    names = ("phase1", "phase2", "phase3", "phase_log", "tensors", "referee")
    text = "".join((room / f"{name}.py").read_text() for name in names)
    convicting = set(re.findall(r'\(\s*"(\d\.\d[\d.]*)",\s*(?:f?"|why|sentence)', text))
    convicting |= set(re.findall(r'clause = [^"]*"(\d\.\d+)"', text))
    scenarios = [*SCENARIOS.values(), *ENDINGS.values(), *BOUNDED.values(), *PUBLISHED.values()]
    scenarios += lies().values()
    tested = {s.clause for s in scenarios} | {"2.9", "2.10", "6.14"}
    assert convicting <= tested and len(convicting) > 15
