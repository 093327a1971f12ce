"""Every single lie about a small run, told from both seats: convicted, and judged (P1, P2, P3).

The program has 12 nodes and all kinds of operands: slots of the state, other nodes' outputs, batch
tensors, a scalar. The lies are those of `lies.py`.
"""

from __future__ import annotations

from copy import copy
from functools import cache, partial

import pytest
from adversary.games import Answers
from adversary.lies import (
    INTERVAL,
    KINDS,
    OPERAND,
    RULED,
    STEPS,
    Told,
    Ways,
    sources,
    wrong_output,
)
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.ir import COMMIT
from tallystick.protocol.judge import judge
from tallystick.prover.local import play


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
    same = judge(job.terms, played.evidence.to_bytes()).verdict == verdict
    return "" if same else "the judge does not agree"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_lie_is_convicted_and_judged(job: Job, honest: Answers, kind: str) -> None:
    wrong: list[str] = []
    executed: dict[int, Party] = {}
    lies = list(KINDS[kind](job))  # kept: executions are found by the identity of hooks
    for lie in lies:
        cheat = teller(job, lie, executed)
        for seat, players in enumerate(([cheat, honest], [honest, cheat])):
            ways = lie.second if seat and lie.second is not None else lie.ways
            why = outcome(job, players, seat, ways)
            if why:
                wrong.append(f"{lie.name}, seat {seat}: {why}")
    assert wrong == []


@pytest.fixture(scope="module", params=["rounded/1;b=28", "exact/1;b=8", "exact/1;b=22"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("other") / "job"
    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.01"}
    return new_job(
        "logreg", path, pairs, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=0,
        contract=str(request.param),
    )  # fmt: skip


def test_lies_about_what_was_executed_under_other_contracts(other: Job) -> None:
    """Under `rounded/1` and `exact/1` the game is the same, but for the sums: every third lie."""
    wrong, executed, honest = [], dict[int, Party](), Answers(Party(other))
    for lie in list(KINDS["lived"](other))[::3]:
        cheat = teller(other, lie, executed)
        for seat, players in enumerate(([cheat, honest], [honest, cheat])):
            ways = lie.second if seat and lie.second is not None else lie.ways
            why = outcome(other, players, seat, ways)
            if why:
                wrong.append(f"{lie.name}, seat {seat}: {why}")
    assert wrong == []


def test_the_program_offers_every_kind_of_lie(job: Job) -> None:
    nodes = job.program.nodes
    assert len(nodes) == 12
    assert {s for n in nodes for s in sources(job, n)} == set(OPERAND)
    # Fields of records: all of every node, in every step.
    fields = sum(3 if n.op == COMMIT else len(n.out_types) for n in nodes)
    operands = sum(len(sources(job, n)) for n in nodes)
    assert len(list(KINDS["records"](job))) == STEPS * (6 * len(nodes) + 2 * operands + fields)


def test_a_false_output_of_every_node_of_a_larger_program(mlp_job: Job) -> None:
    """Dropout, AdamW, clipping: each output of each node that any committed state depends on."""
    honest = Answers(Party(mlp_job))
    wrong, without_effect = [], []
    for index, node in enumerate(mlp_job.program.nodes[:-1]):
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
