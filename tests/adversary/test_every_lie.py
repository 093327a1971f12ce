"""Every single lie about a small run, told from both seats: convicted, and judged (P1, P2, P3).

The program has 12 nodes and all kinds of operands: slots of the state, other nodes' outputs, batch
tensors, a scalar. The lies are those of `lies.py`. The same about jobs of format 2: one whose run
validates, decides and stops by a slot, and one of two micro-batches.
"""

from __future__ import annotations

from copy import copy
from functools import cache, partial
from typing import Any

import pytest
from adversary.games import Answers
from adversary.lies import (
    KINDS,
    OPERAND,
    RULED,
    Ground,
    Told,
    Ways,
    sources,
    wrong_output,
)
from adversary.two_judges import package, text
from format_two import make_micro_job
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party
from unit.protocol.validated import DECISION, PASS, make_validated_job

from tallystick.commit.job import JobCommitment2
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.ir import COMMIT
from tallystick.protocol.judge import judge
from tallystick.prover.local import play

STEPS, INTERVAL = 4, 2


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.01"}
    pairs["momentum"] = "0.9"
    path = tmp_path_factory.mktemp("small") / "job"
    return new_job(
        "logreg", path, pairs, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=0
    )


@pytest.fixture(scope="module")
def honest(job: Job) -> Answers:
    return Answers(Party(job))


def teller(job: Job, lie: Told, executed: dict[int, Party]) -> Answers:
    """Who tells `lie`. Lies about records share one execution for each set of hooks."""
    if lie.hooks and lie.tamper and id(lie.hooks) in executed:
        party = copy(executed[id(lie.hooks)])
        party.tamper = lie.tamper
    else:
        party = Party(job, Lie(**lie.hooks), lie.tamper, lie.statement)
        executed[id(lie.hooks)] = party
    party._tree = cache(partial(Party._tree, party))  # type: ignore[method-assign]
    return Answers(party)


def outcome(job: Job, players: list[Answers], seat: int, ways: Ways) -> str:
    """What is wrong with the end of a game in which `seat` lies; "" if nothing."""
    played = play(job.terms, players)
    verdict = played.verdict
    if [c.party for c in verdict.convicted] != [seat] or verdict.accepted != 1 - seat:
        return f"P1 or P2: {verdict}"
    if (verdict.convicted[0].clause, verdict.case) not in ways:
        return f"not {ways}: {verdict.convicted[0]}, case {verdict.case!r}"
    evidence = played.evidence.to_bytes()
    if judge(job.terms, evidence).verdict != verdict:
        return "the judge does not agree"
    # Of format 1 the second reader sees what `two_judges.py` plays.
    second = isinstance(job.commitment, JobCommitment2)
    if second and text(job, evidence) != package(job, evidence):
        return f"the judge from the text says {text(job, evidence)}"
    return ""


def told(ground: Ground, honest: Answers, lies: list[Told]) -> tuple[list[str], list[str]]:
    """What went wrong, and the lies from which no state that is committed to depends: of equal
    runs there is nothing to judge."""
    wrong: list[str] = []
    without_effect: list[str] = []
    executed: dict[int, Party] = {}
    for lie in lies:
        cheat = teller(ground.job, lie, executed)
        if not lie.statement and cheat.party.run.run_root == honest.party.run.run_root:
            without_effect.append(lie.name)
            continue
        for seat, players in enumerate(([cheat, honest], [honest, cheat])):
            ways = lie.second if seat and lie.second is not None else lie.ways
            why = outcome(ground.job, players, seat, ways)
            if why:
                wrong.append(f"{lie.name}, seat {seat}: {why}")
    return wrong, without_effect


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"parts"}))
def test_every_lie_is_convicted_and_judged(
    job: Job, honest: Answers, kind: str, is_exhaustive: bool
) -> None:
    ground = Ground(job, STEPS, range(STEPS))
    lies = list(KINDS[kind](ground))  # kept: executions are found by the identity of hooks
    assert told(ground, honest, some(lies, is_exhaustive)) == ([], [])


def some(lies: list[Any], is_exhaustive: bool) -> list[Any]:
    """All lies, or of many a seventh, spread evenly. The stride is prime to the number of lies of
    nearly each kind of node, so that each kind of lie is taken."""
    return lies if is_exhaustive or len(lies) < 20 else lies[::7]


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ground, Answers]:
    """A run that stops by its slot, and an execution of it. Lies are about one batch of
    the first pass and its decision."""
    job = make_validated_job(tmp_path_factory.mktemp("validated") / "job")
    honest = Answers(Party(job))
    return Ground(job, honest.party.run.final_step, (PASS, DECISION)), honest


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ground, Answers]:
    """A run of two micro-batches, and an execution of it."""
    job = make_micro_job(tmp_path_factory.mktemp("micro") / "job")
    return Ground(job, job.steps, (1,)), Answers(Party(job))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_lie_about_validation(
    validated: tuple[Ground, Answers], kind: str, is_exhaustive: bool
) -> None:
    """COMMITMENTS 7.6: the pass, the decision, the slot that ends the run."""
    ground, honest = validated
    wrong, without_effect = told(ground, honest, some(list(KINDS[kind](ground)), is_exhaustive))
    assert wrong == []
    # A number that a node does not choose or nothing reads, a slot that the decision makes anew.
    assert all(" of node " in n or "before" in n or "after" in n for n in without_effect)
    assert len(without_effect) <= (17 if kind == "lived" else 0), without_effect


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_lie_about_micro_batches(
    micro: tuple[Ground, Answers], kind: str, is_exhaustive: bool
) -> None:
    """PROGRAM 6: every node of both micro-batches, the folds, the carried values."""
    ground, honest = micro
    wrong, without_effect = told(ground, honest, some(list(KINDS[kind](ground)), is_exhaustive))
    assert wrong == []
    assert without_effect == []


@pytest.fixture(scope="module", params=["rounded/1;b=28", "exact/1;b=8", "exact/1;b=22"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("other") / "job"
    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.01"}
    return new_job(
        "logreg", path, pairs, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=0,
        contract=str(request.param),
    )  # fmt: skip


def test_lies_about_what_was_executed_under_other_contracts(
    other: Job, is_exhaustive: bool
) -> None:
    """Under `rounded/1` and `exact/1` the game is the same, but for the sums: some of the lies."""
    ground = Ground(other, STEPS, range(STEPS))
    lies = list(KINDS["lived"](ground))[:: 3 if is_exhaustive else 7]
    assert told(ground, Answers(Party(other)), lies) == ([], [])


def test_the_program_offers_every_kind_of_lie(job: Job) -> None:
    nodes = job.program.nodes
    assert len(nodes) == 12
    assert {s for n in nodes for s in sources(job.program, n)} == set(OPERAND) - {"rng"}
    # Fields of records: all of every node, in every step.
    fields = sum(3 if n.op == COMMIT else len(n.out_types) for n in nodes)
    operands = sum(len(sources(job.program, n)) for n in nodes)
    ground = Ground(job, STEPS, range(STEPS))
    assert len(list(KINDS["records"](ground))) == STEPS * (6 * len(nodes) + 2 * operands + fields)


def test_the_micro_batches_offer_every_kind_of_lie(micro: tuple[Ground, Answers]) -> None:
    ground, _ = micro
    program = ground.program(1)
    assert {s for n in program.nodes for s in sources(program, n)} == set(OPERAND)
    assert [n.op for n in program.nodes].count(FOLD) == 2


def test_a_false_output_of_every_node_of_a_larger_program(
    mlp_job: Job, is_exhaustive: bool
) -> None:
    """Dropout, AdamW, clipping: each output of each node that any committed state depends on; of
    every third node by default."""
    honest = Answers(Party(mlp_job))
    wrong, without_effect = [], []
    nodes = list(enumerate(mlp_job.program.nodes[:-1]))
    for index, node in nodes if is_exhaustive else nodes[::3]:
        for k in range(len(node.out_types)):
            party = Party(mlp_job, Lie(node=wrong_output(6, index, k, 0)))
            if party.run.run_root == honest.party.run.run_root:  # then nobody disputes
                without_effect.append(f"{node.op}.{k}")
                continue
            cheat = Answers(party)
            for seat, players in enumerate(([cheat, honest], [honest, cheat])):
                why = outcome(mlp_job, players, seat, RULED)
                if why:
                    wrong.append(f"{node.op}.{k}, seat {seat}: {why}")
    assert wrong == []
    # The norm, which nothing reads, and elements of one unit that dropout leaves out.
    dropped = {"aten.addmm.0", "aten.mm.0", "aten.relu.0", "tallystick.mask_scale.0"}
    assert set(without_effect) <= {*dropped, "tallystick.clip_coef.1", "tallystick.dropout_mask.0"}
    assert len(without_effect) <= 6
