"""A prover of a job with micro-batches: the same answers as from the whole step in memory, by
executing the micro-batch in question, in the memory of one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_two import f32, make_micro_job, write_job

from tallystick.commit.data import DataSchema, Field
from tallystick.job.job import Job
from tallystick.job.parts import Parts, ProgramPart, Records
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import resolve_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.opening.views import View
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.expand import Expanded
from tallystick.program.folded_tail import first_fold
from tallystick.program.ir import COMMIT
from tallystick.program.repeat import RepeatedSection
from tallystick.protocol import queries as q
from tallystick.protocol.judge import judge
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.prover.steps import Steps
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

PARTS, STEP = 4, 1


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_micro_job(tmp_path_factory.mktemp("micro") / "job", PARTS)


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("micro-run") / "run"
    train_job(job, out, Options())
    return out


def whole(patch: pytest.MonkeyPatch) -> None:
    """Every look is of the whole step, all folded values in memory."""
    patch.setattr(Engine, "changes_nodes", lambda _: True)
    patch.setattr(Engine, "look_at", lambda engine, _, tap: engine.look(tap))


def queries(job: Job) -> Iterator[q.Query[Any]]:
    """About every node: its record, each operand, each way to ask for elements."""
    yield q.Nodes(STEP)
    for number, node in enumerate(job.program.nodes):
        yield q.NodeRecord(STEP, number)
        if node.op == COMMIT:
            continue
        for at, value in enumerate(node.inputs):
            if value is not None and job.program.type_of(value).numel:
                yield q.TensorHashes(STEP, number, q.INPUT, at, 0, 1)
                yield q.Opening(STEP, number, at, (0,))
        yield q.Leaf(STEP, number, q.OUTPUT, 0, 0)
        yield q.Values(STEP, number, 0, 0, (), View("needs"))
        if node.op == FOLD:
            yield q.Values(STEP, number, 0, 0, (len(node.inputs) - 1,), View("needs"))


def test_the_answers_are_those_of_the_whole_step(
    job: Job, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [q.encode_query(query) for query in queries(job)]
    with Prover(run) as prover:
        ours = [_answer(prover, one) for one in asked]
    with monkeypatch.context() as patch, Prover(run) as prover:
        whole(patch)
        assert [_answer(prover, one) for one in asked] == ours
    assert sum(isinstance(answer, bytes) for answer in ours) > 150


def _answer(prover: Prover, query: bytes) -> object:
    try:
        return prover.answer(query)
    except Exception as error:
        return repr(error)


def test_one_micro_batch_is_executed_where_the_node_says_which(
    job: Job, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[tuple[int, bool]] = []
    honest = RepeatedSection.turn

    def turn(self: RepeatedSection, part: int, *rest: Any) -> Any:
        turns.append((part, rest[-1] is not None))
        return honest(self, part, *rest)

    program = job.program
    assert isinstance(program, Expanded)
    section = program.source.section
    alone = next(n for n in range(section) if program.nodes[n].op == "aten.mm")
    with Prover(run) as prover:
        prover.answer(q.encode_query(q.Nodes(STEP)))
        monkeypatch.setattr(RepeatedSection, "turn", turn)
        for part in (0, 2, 3):
            turns.clear()
            query = q.Leaf(STEP, part * section + alone, q.OUTPUT, 0, 0)
            prover.answer(q.encode_query(query))
            assert turns == [(part, True)]
        # An operand of a fold is a value of one micro-batch.
        fold = next(n for n in range(len(program.nodes)) if first_fold(program, n))
        turns.clear()
        prover.answer(q.encode_query(q.Opening(STEP, fold, 2, (0,))))
        assert turns[-1] == (2, True) and [part for part, shown in turns if shown] == [2]


def _wide(path: Path, parts: int) -> Job:
    """A gradient of 1 MiB from each micro-batch of two records."""
    width = 512
    b = Builder(resolve_contract("ordered/1"))
    w = b.state("param.w", f32(width, width))
    x = b.batch("x", f32(2, width))
    y = b.one("aten.mm", [x, w])
    loss = b.one("aten.mean", [b.one("aten.square", [y])])
    slope = b.one("aten.mm", [b.one("aten.permute", [x], dims=(1, 0)), y])
    b.end_section()
    folded, gradient = b.one(FOLD, [loss], mean=True), b.one(FOLD, [slope], mean=True)
    (updated,) = b.emit("tallystick.sgd_step", [w, gradient, None, b.scalar("lr"), None],
                        momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False)  # fmt: skip
    b.commit({"param.w": updated})
    program = canonicalize(b.finish({"param.w": updated, "loss": folded}))
    records = np.random.default_rng(0).standard_normal((16, width), dtype=np.float32)
    schema = DataSchema((Field("x", "f32", (width,)),), LIMITS.long_record_bytes)
    part = ProgramPart.alone("step", program, 0, 2 * parts, parts)
    parts_of_job = Parts((part,), (Records("train", schema, {"x": records}, 9),))
    state = {"param.w": np.eye(width, dtype=np.float32)}
    return write_job(path, parts_of_job, state, {"lr": 0.01}, steps=1, interval=1)


def _peak(job: Job, run: Path) -> float:
    """The peak memory of looks into step 0, in gradients of all parameters together."""
    largest = max(
        (n for n in range(len(job.program.nodes)) if first_fold(job.program, n)),
        key=lambda n: job.program.nodes[n].out_types[0].nbytes,
    )
    state = sum(job.program.state_types[n].nbytes for n in job.program.state_types if "param" in n)
    asked = [
        q.Nodes(0),
        q.Values(0, largest, 0, 5, (), View("needs")),
        q.Opening(0, largest, 1, (0,)),
    ]
    with Prover(run) as prover:
        prover.answer(q.encode_query(q.Loss(0)))  # the engine and the state are there
        tracemalloc.start()
        try:
            for query in asked:
                prover.answer(q.encode_query(query))
            return tracemalloc.get_traced_memory()[1] / state
        finally:
            tracemalloc.stop()


def test_the_memory_is_that_of_one_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not grow with V but for partial sums, one for each power of two. With the whole step
    in memory each further micro-batch takes one gradient."""
    worlds = [(_wide(tmp_path / f"job-{v}", v), tmp_path / f"run-{v}") for v in (2, 8)]
    for job, run in worlds:
        train_job(job, run, Options())
    few, many = (_peak(*world) for world in worlds)
    assert many - few < 3
    with monkeypatch.context() as patch:
        whole(patch)
        few, many = (_peak(*world) for world in worlds)
    assert many - few > 5.5


# What a cheat says, and where it is convicted; nodes of the second micro-batch, a fold, an update.
@pytest.mark.parametrize("where", ["section", "fold", "update"])
def test_a_lie_is_convicted_by_a_prover_that_holds_little(
    where: str, job: Job, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = job.program
    assert isinstance(program, Expanded)
    section = program.source.section
    folds = [n for n in range(len(program.nodes)) if first_fold(program, n)]
    node = {
        "section": 2 * section + next(
            n for n in range(section) if program.nodes[n].op == "aten.mm"
        ),
        "fold": folds[-1],
        "update": next(
            n for n in range(folds[-1], len(program.nodes)) if "step" in program.nodes[n].op
        ),
    }[where]  # fmt: skip
    lie = Declaration("lie-output", {"step": STEP, "node": node, "element": 1, "bit": 22})
    train_job(job, tmp_path / "cheat", Options(maker=declared_cheat(job, lie)))
    captured: list[int] = []
    honest = Steps.capture_fold

    def capture(self: Steps, *rest: Any) -> None:
        honest(self, *rest)
        captured.append(sum(place[0] == q.INPUT for place in rest[0].tensors))

    monkeypatch.setattr(Steps, "capture_fold", capture)
    for seat in (0, 1):
        with Prover(run) as good, party_of(tmp_path / "cheat", as_attack=True) as bad:
            players = [bad, good] if seat == 0 else [good, bad]
            played = play(job.terms, players)
        assert [c.party for c in played.verdict.convicted] == [seat], played.verdict
        assert played.verdict.place.node == node
        assert judge(job.terms, played.evidence.to_bytes()).verdict == played.verdict
    assert all(held <= 1 for held in captured)
    assert bool(captured) == (where == "fold")
