"""The prover against the simulator, which keeps everything in memory: the same answers, to the
byte, for honest runs and for every lie told by hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.protocol.scenarios import COMMIT, ENDINGS, MM, SCENARIOS, STEP, Lie, Scenario, liar
from unit.protocol.simulator import Party

from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    UsageError,
)
from tallystick.job.job import Job
from tallystick.opening.views import View
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import NodeBody
from tallystick.protocol.messages import open_answer
from tallystick.protocol.referee import Referee
from tallystick.prover.cheating import CheatingProver, party_of
from tallystick.prover.prover import Prover
from tallystick.run.cheats import attacks
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat, declared_cheat
from tallystick.run.execute.nodes import NodeDigests
from tallystick.run.execute.trainer import Options, train_job

BY_HOOKS = {n: s for n, s in SCENARIOS.items() if not s.statement}


def hooks_of(scenario: Scenario) -> Lie:
    """The scenario's hooks; a trainer calls `node` only in steps that are watched."""
    hooks = {"watches": lambda step: "node" in scenario.hooks, **scenario.hooks}
    if scenario.tamper is not None:
        hooks["record"] = tampered(scenario)
    return Lie(**hooks)


def tampered(scenario: Scenario) -> Callable[[int, int, NodeDigests], NodeDigests]:
    """The scenario's `tamper` as a hook."""

    def record(step: int, index: int, record: NodeDigests) -> NodeDigests:
        body = NodeBody(record.operator, record.attributes, record.inputs, record.outputs, proof=())
        made = scenario.tamper(step, index, body)
        return NodeDigests(made.operator, made.attributes, made.inputs, made.outputs)

    return record


def asked(prover: Prover, query: q.Query) -> bytes:
    return prover.answer(q.encode_query(query))


def game(job: Job, provers: tuple[Prover, Prover], parties: tuple[Party, Party]) -> Referee:
    """Played to a verdict; each prover's answer is the simulator's."""
    referee = Referee(job.terms, (provers[0].commitment, provers[1].commitment))
    while referee.verdict is None:
        for party, query in sorted(referee.pending.items()):
            answer = provers[party].answer(query)
            assert answer == parties[party].answer(query), q.decode_query(query)
            if referee.verdict is None:
                referee.receive(party, answer)
    return referee


def against(
    job: Job, honest: Party, honest_run: Path, scenario: Scenario, out: Path, zero: bool
) -> None:
    """A game of the honest run against the lie, which loses by its clause."""
    party = liar(job, scenario)
    train_job(job, out, Options(key=party.key, maker=Cheat(hooks_of(scenario))))
    with (
        Prover(honest_run, honest.key) as good,
        CheatingProver(out, party.key, override=hooks_of(scenario)) as bad,
    ):
        assert good.commitment == honest.commitment
        assert bad.commitment == party.commitment
        pair, sides = ((bad, good), (party, honest)) if zero else ((good, bad), (honest, party))
        verdict = game(job, pair, sides).verdict
    assert verdict is not None
    assert [c.party for c in verdict.convicted] == [0 if zero else 1]
    assert verdict.convicted[0].clause == scenario.clause
    assert verdict.case == scenario.case
    assert not list(out.glob("scratch-*")) and not list(honest_run.glob("scratch-*"))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", BY_HOOKS)
def test_every_lie_by_hooks(
    name: str, game_job: Job, honest: Party, honest_run: Path, tmp_path: Path
) -> None:
    """PROTOCOL 1.3: a repeated cheat says what the cheat has said."""
    scenario = BY_HOOKS[name]
    for zero in (True, False)[: 1 + (not scenario.zero_only)]:
        against(game_job, honest, honest_run, scenario, tmp_path / f"{zero}", zero)


@pytest.mark.parametrize("name", ENDINGS)
def test_runs_that_end_elsewhere(name: str, diverging_job: Job, tmp_path: Path) -> None:
    """PROTOCOL 4.7: kinds 2 and 3 at the end of the shorter run."""
    honest = Party(diverging_job)
    train_job(diverging_job, tmp_path / "honest", Options(key=honest.key))
    against(diverging_job, honest, tmp_path / "honest", ENDINGS[name], tmp_path / "lie", True)


def every_query(job: Job) -> list[q.Query]:
    """Queries of every kind about one step; the operands of an ordinary node and of COMMIT."""
    found: list[q.Query] = [
        q.Checkpoints((0, 2, 4)),
        q.States((1, 4, 7, 13)),
        q.Loss(STEP),
        q.Loss(12),
        q.Nodes(STEP),
        q.NodeHashes(STEP, 0, 12),
        q.NodeHashes(STEP, 8, 4),
        q.NodeRecord(STEP, COMMIT),
        q.Slot(STEP, "param.0.weight"),
        q.Slot(13, "chain.loss"),
        q.TensorHashes(STEP, MM, q.OUTPUT, 0, 0, 3),
        q.TensorHashes(STEP, MM, q.INPUT, 1, 2, 1),
        q.Leaf(STEP, MM, q.OUTPUT, 0, 2),
        q.Values(STEP, MM, 0, 650, (), View("needs")),
        q.Opening(STEP, MM, 1, (0, 2)),
        q.Record(13),
    ]
    inputs = len(job.program.nodes[COMMIT].inputs)
    for operand in range(inputs + 3):
        found.append(q.Opening(STEP, COMMIT, operand, (0,)))
    return found


def test_each_kind_has_the_simulators_bytes(
    game_job: Job, honest: Party, prover: Prover, honest_run: Path
) -> None:
    """PROTOCOL 2.1: and in any order, on a fresh prover, the same ones (1.3)."""
    queries = [q.encode_query(query) for query in every_query(game_job)]
    # This contract has no logs, and this job has format 1.
    others = {kind.KIND for kind in (q.Log, q.LogHashes, q.LogBlock, q.RecordPart)}
    assert {q.decode_query(query).KIND for query in queries} == set(q.KINDS) - others
    answers = [prover.answer(query) for query in queries]
    assert answers == [honest.answer(query) for query in queries]
    with Prover(honest_run, honest.key) as other:
        assert [other.answer(query) for query in reversed(queries)] == answers[::-1]


@pytest.mark.parametrize(
    "query",
    [
        q.Checkpoints((5,)),
        q.Checkpoints(()),
        q.Checkpoints((2, 1)),
        q.States((14,)),
        q.States(()),
        q.Loss(13),
        q.Nodes(13),
        q.NodeHashes(STEP, 0, 3),
        q.NodeHashes(STEP, 12, 1),
        q.NodeHashes(STEP, 0, 0),
        q.NodeRecord(STEP, 12),
        q.Slot(14, "param.0.weight"),
        q.Slot(STEP, "param.1.weight"),
        q.TensorHashes(STEP, MM, q.OUTPUT, 1, 0, 3),
        q.TensorHashes(STEP, MM, 2, 0, 0, 1),
        q.TensorHashes(STEP, MM, q.INPUT, 1, 0, 2**60),
        q.Leaf(STEP, MM, q.OUTPUT, 0, 3),
        q.Leaf(STEP, COMMIT, q.OUTPUT, 0, 0),
        q.Values(STEP, MM, 0, 1400, (), View("needs")),
        q.Values(STEP, MM, 1, 0, (), View("needs")),
        q.Values(STEP, MM, 0, 0, (7,), View("needs")),
        q.Values(STEP, MM, 0, 0, (), View("witness")),
        q.Opening(STEP, COMMIT, 9, (0,)),
        q.Opening(STEP, MM, 0, (1,)),
        q.Opening(STEP, MM, 0, ()),
        q.Record(14),
    ],
    ids=str,
)
def test_a_query_without_sense_is_not_answered(prover: Prover, query: q.Query) -> None:
    with pytest.raises(UsageError):
        asked(prover, query)
    assert prover.executed_steps == 0


def test_bytes_that_are_no_query_are_not_answered(prover: Prover) -> None:
    for data in (b"", b"nothing", q.encode_query(q.Nodes(1)) + b"\0"):
        with pytest.raises(CorruptFileError):
            prover.answer(data)


def test_the_same_node_is_captured_once(prover: Prover) -> None:
    asked(prover, q.Nodes(8))
    begin = prover.executed_steps
    for leaf in range(3):
        asked(prover, q.Leaf(8, MM, q.OUTPUT, 0, leaf))
        asked(prover, q.Opening(8, MM, 1, (leaf,)))
    asked(prover, q.TensorHashes(8, MM, q.INPUT, 1, 0, 3))
    asked(prover, q.Values(8, MM, 0, 3, (), View("needs")))
    assert prover.executed_steps == begin + 1


def test_a_skipped_step_cannot_be_opened(
    game_job: Job, honest: Party, honest_run: Path, tmp_path: Path
) -> None:
    lie = Lie(skips=lambda step: step == STEP)
    train_job(game_job, tmp_path / "run", Options(maker=Cheat(lie)))
    with (
        Prover(honest_run, honest.key) as good,
        CheatingProver(tmp_path / "run", override=lie) as bad,
    ):
        referee = Referee(game_job.terms, (good.commitment, bad.commitment))
        while referee.verdict is None:
            for party, query in sorted(referee.pending.items()):
                referee.receive(party, (good, bad)[party].answer(query))
    verdict = referee.verdict
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "5.3")]
    assert verdict.place.step == STEP


def test_who_may_answer(honest: Party, honest_run: Path, game_job: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not stored in it"):
        Prover(honest_run)
    with pytest.raises(UsageError, match="not the one"):
        Prover(honest_run, Party(game_job, Override()).key)
    train_job(game_job, tmp_path / "begun", Options(stop_before=3))
    with pytest.raises(CannotCheckError, match="not finished"):
        Prover(tmp_path / "begun")


def test_an_answer_hook_may_say_that_it_is_unable(game_job: Job, tmp_path: Path) -> None:
    scenario = replace(SCENARIOS["unable"], hooks={"answer": lambda query, body: None})
    lie = hooks_of(scenario)
    train_job(game_job, tmp_path / "run", Options(maker=Cheat(lie)))
    with CheatingProver(tmp_path / "run", override=lie) as prover:
        assert open_answer(asked(prover, q.Checkpoints((0,))), prover.run.signer).status == 1


DRIFTS = """
from tallystick.run.cheats.override import Override

class Drifts(Override):
    def before(self, step, state):
        state.slots["param.0.weight"][0, 0] += step == self.at

class Attack:
    def make(self, job, params):
        made = Drifts()
        made.at = params["step"]
        return made

ATTACK = Attack()
"""


def test_a_declared_cheat_answers_for_itself(
    game_job: Job,
    honest_run: Path,
    honest: Party,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DESIGN 7: from its directory alone, by the name in override.json."""
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "drifts.py").write_text(DRIFTS)
    monkeypatch.setattr(attacks, "attacks_directory", lambda: tmp_path / "attacks")
    declared = attacks.Declaration("drifts", {"step": 10})
    train_job(game_job, tmp_path / "run", Options(maker=declared_cheat(game_job, declared)))
    with (
        Prover(honest_run, honest.key) as good,
        party_of(tmp_path / "run", as_attack=True) as bad,
    ):
        referee = Referee(game_job.terms, (bad.commitment, good.commitment))
        while referee.verdict is None:
            for party, query in sorted(referee.pending.items()):
                referee.receive(party, (bad, good)[party].answer(query))
    verdict = referee.verdict
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "5.6.1")]
    assert verdict.place.step == 10
