"""Shares of a step: the job that states one, and what its run makes (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from share_samples import NORM, make_share_job

from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import tensor_digest
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.share import Shares
from tallystick.program.expand import micro_batch_of
from tallystick.program.ir import Node, Value
from tallystick.program.share import Share, Tree, parts_of
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import train_job

Arrays = dict[str, np.ndarray]
TREES = {6: [(0, 0), (0, 3), (0, 5), (1, 2), (1, 4), (2, 0)], 1: [(0, 0)], 8: [(3, 0), (2, 4)]}
TREES[5] = [(0, 4), (1, 2), (2, 0)]  # of a short batch, beside one of 8 micro-batches


def at_step(job: Job, step: int) -> Engine:
    engine = Engine(job, job.genesis())
    while engine.step < step:
        engine.run()
    return engine


def seen_values(engine: Engine, share: Share) -> dict[tuple[int, Value], np.ndarray]:
    """Folded values and means of the next step, by micro-batch and the text's value."""
    program, found = engine.job.terms.program_at(engine.step), {}

    def tap(number: int, node: Node, _: Sequence[object], outputs: Sequence[np.ndarray]) -> None:
        place = micro_batch_of(program, number)
        if place is not None:
            for out, array in enumerate(outputs):
                found[place[0], Value(place[1], out)] = np.array(array)

    engine.look(tap)
    return found


def split_sum(values: Sequence[np.ndarray]) -> np.ndarray:
    """NUMERICS 10.12, for finite values."""
    if len(values) == 1:
        return values[0]
    k = 1 << (len(values) - 1).bit_length() - 1
    return split_sum(values[:k]) + split_sum(values[k:])


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1"])
@pytest.mark.parametrize(
    "parts",
    [6, 5, pytest.param(1, marks=pytest.mark.long), pytest.param(8, marks=pytest.mark.long)],
)
def test_a_share_jobs_run_makes_the_values_of_the_step(
    tmp_path: Path, parts: int, contract: str
) -> None:
    """Sums by the split over the values of the run's own step; statistics of its own nodes."""
    short = parts == 5
    job = make_share_job(
        tmp_path / "job", 8 if short else parts, contract, epoch=39 if short else None
    )
    shares = Shares(job)
    for step in (1, 3) if short else (0, 3):
        engine = at_step(job, step)
        slots = {name: np.array(array) for name, array in engine.state.slots.items()}
        seen = seen_values(engine, shares.share(step, (0, 0)))
        digests = {name: tensor_digest(array) for name, array in slots.items()}
        for number, tree in enumerate(TREES[parts]):
            task = shares.task(step, tree, digests)
            own = task.write(tmp_path / f"share-{step}-{number}", slots)
            assert own.digest == task.digest
            out = tmp_path / f"run-{step}-{number}"
            root = train_job(own, out).run_root
            made = final(own)
            share = task.share
            assert len(share.values) == 4 and len(share.sent) == 2
            sums = {v: split_sum([seen[p, v] for p in share.parts]) for v in share.values}
            for value, array in sums.items():
                name = f"share.sum.{share.values.index(value):05d}"
                assert made[name].tobytes() == np.ascontiguousarray(array).tobytes()
            check_statistics(share, made, seen)
            after = {name: tensor_digest(made[name]) for name in share.made}
            assert task.statement(after, PrivateKey.generate().public).run_root == root


def final(job: Job) -> Arrays:
    engine = Engine(job, job.genesis())
    engine.run()
    return {name: np.array(array) for name, array in engine.state.slots.items()}


def check_statistics(share: Share, made: Arrays, seen: dict[tuple[int, Value], np.ndarray]) -> None:
    """The mean is the node's own. The other one moves the running variance as the node does."""
    mean, spread = share.sent
    node = share.source.nodes[mean.node]
    assert node.op == NORM and (mean.out, spread.out) == (1, 4)
    for part in share.parts:
        k = f"share.statistic.{part:05d}"
        assert made[f"{k}.00000"].tobytes() == seen[part, mean].tobytes()
        if part:
            before = seen[part - 1, spread]
            u = made[f"{k}.00001"]
            moved = np.float64(np.float32(0.1)) * (u - before).astype(np.float64) + before
            assert moved.astype(np.float32).tobytes() == seen[part, spread].tobytes()


def test_the_texts_of_shares(tmp_path: Path) -> None:
    job = make_share_job(tmp_path / "job", 6)
    shares = Shares(job)
    one, two = shares.share(0, (0, 3)), shares.share(4, (1, 2))
    assert one is shares.share(3, (0, 3))
    assert one.reads == ("param.gain", "param.w")
    assert "aten.slice" not in one.program.text() and "aten.slice" in two.program.text()
    draws = [n.attrs["draw"] for n in two.program.nodes if "draw" in n.attrs]
    assert draws == [4, 5, 6, 7]
    for (part, index), number in two.nodes.items():
        assert two.program.nodes[number].op == two.source.nodes[index].op, (part, index)


@pytest.mark.parametrize("tree", [(1, 1), (2, 4), (0, 6), (3, 0), (-1, 0)])
def test_what_is_no_share(tmp_path: Path, tree: Tree) -> None:
    with pytest.raises(UsageError, match="no share"):
        Shares(make_share_job(tmp_path / "job", 6)).share(0, tree)


def test_another_state_is_refused(tmp_path: Path) -> None:
    job = make_share_job(tmp_path / "job", 6)
    slots = dict(job.genesis().slots)
    digests = {name: tensor_digest(array) for name, array in slots.items()}
    task = Shares(job).task(0, (1, 2), digests)
    slots["param.w"] = slots["param.w"] + np.float32(1)
    with pytest.raises(UsageError, match="does not have the value that the share read"):
        task.write(tmp_path / "share", slots)
    assert parts_of((1, 2)) == range(2, 4)
