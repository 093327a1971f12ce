"""Nodes, state, checkpoints and jobs (COMMITMENTS 4 to 7)."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tallystick.commit import checkpoint, job, merkle, state
from tallystick.commit.encoding import sha256
from tallystick.errors import UnsupportedVersionError, UsageError


def d(*parts: object) -> bytes:
    return sha256(repr(parts).encode())


# ---- nodes --------------------------------------------------------------------------------------

NODE: dict[str, Any] = {
    "program_digest": d("p"), "step": 3, "index": 5, "operator": "aten.add",
    "attributes": b"alpha", "inputs": [d(1), d(2)], "outputs": [d(3), d(4)],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"program_digest": d("q")}, {"step": 4}, {"index": 6}, {"operator": "aten.ad"},
        {"operator": "aten.adda", "attributes": b"lpha"}, {"attributes": b""},
        {"inputs": [d(2), d(1)]}, {"inputs": [d(1)]}, {"outputs": [d(3)]},
        {"inputs": [d(1), d(2), d(3)], "outputs": [d(4)]}, {"outputs": [d(4), d(3)]},
        {"inputs": [], "outputs": [d(1), d(2), d(3), d(4)]},
    ],
)  # fmt: skip
def test_every_field_of_a_node_counts(change: dict[str, Any]) -> None:  # 4.1
    assert state.node_digest(**{**NODE, **change}) != state.node_digest(**NODE)


def test_node_limits_and_root() -> None:  # 4.3
    with pytest.raises(UsageError, match="limits"):
        state.node_digest(**{**NODE, "attributes": bytes((1 << 20) + 1)})
    digests = [d(i) for i in range(6)]
    assert len({state.node_root(digests[:n]) for n in range(7)}) == 7
    assert state.node_root(digests) != state.node_root(digests[::-1])


# ---- state --------------------------------------------------------------------------------------


def test_state_root_is_of_a_set() -> None:  # 5.1, 5.3
    slots = {f"s{i}": d(i) for i in range(9)}
    root = state.state_root(slots)
    assert state.state_root(dict(reversed(slots.items()))) == root
    assert state.state_root({**slots, "s3": d("x")}) != root
    assert state.state_root({**slots, "t": d(0)}) != root
    assert state.state_root({k: v for k, v in slots.items() if k != "s8"}) != root
    renamed = {**slots, "s9": slots["s8"]}
    del renamed["s8"]
    assert state.state_root(renamed) != root


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_state_roots_that_differ_in_one_slot(size: int) -> None:  # 5.3
    slots, digests = {f"s{i}": d(i) for i in range(size)}, [d("a"), d("b"), d("a")]
    for name in slots:
        due = [state.state_root({**slots, name: digest}) for digest in digests]
        others = {other: digest for other, digest in slots.items() if other != name}
        roots = state.StateRoots(others, [name])
        assert [roots.root({name: digest}) for digest in digests] == due


@pytest.mark.parametrize("count", [0, 1, 2, 6, 31])
@pytest.mark.parametrize("own", [["m"], ["a", "z"], ["a", "é", "~"]])
def test_roots_over_fixed_slots(count: int, own: list[str]) -> None:  # 5.3
    fixed = {f"k{i}": d(i) for i in range(count)}
    roots = state.StateRoots(fixed, own)
    for turn in range(2):
        given = {name: d(name, turn) for name in own}
        assert roots.root(given) == state.state_root({**given, **fixed})
    for wrong in ({}, {**given, "k0": d(0)}, {"other": d(1)}):
        with pytest.raises(UsageError):
            roots.root(wrong)


def test_slot_order_is_of_bytes() -> None:  # 1.4
    assert state.slot_order(["é", "z", "Z", "a.b", "a", "a-b", "\U0001f600", "\ufb33"]) == [
        "Z", "a", "a-b", "a.b", "z", "é", "\ufb33", "\U0001f600",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="repeated"):
        state.slot_order(["a", "a"])
    with pytest.raises(UsageError, match="no slot"):
        state.prove_slot({"a": d(1)}, "b")
    with pytest.raises(UsageError, match="32-byte"):
        state.state_root({"a": b"short"})


def test_chains() -> None:  # 5.5, 5.6
    start = state.CHAIN_START
    assert state.extend_loss_chain(start, 0, 1.5) == state.extend_loss_chain(
        start, 0, np.float32(1.5)
    )
    others = {
        state.extend_loss_chain(start, 0, 0.0), state.extend_loss_chain(start, 0, -0.0),
        state.extend_loss_chain(start, 1, 0.0), state.extend_loss_chain(d(1), 0, 0.0),
        state.extend_loss_chain(start, 0, math.inf), state.extend_loss_chain(start, 0, math.nan),
        state.extend_loss_chain(start, 0, 2.0**-149), state.extend_log_chain(start, 0, d("")),
    }  # fmt: skip
    assert len(others) == 8
    odd_nan = np.uint32(0xFFC00001).view(np.float32)
    assert state.extend_loss_chain(start, 0, odd_nan) == state.extend_loss_chain(start, 0, math.nan)
    for not_binary32 in (1e300, 2.0**-150, 1 + 2.0**-24):
        with pytest.raises(UsageError, match="not a binary32"):
            state.extend_loss_chain(start, 0, not_binary32)
    assert state.extend_log_chain(start, 9, None) == start


def test_commit_node_covers_everything() -> None:  # 5.7
    base = state.CommitNode({"a": d(1), "b": d(2)}, 3, 0.5, d("loss"), bytes(32))
    variants = [
        base,
        dataclasses.replace(base, slots={"a": d(1), "b": d(3)}),
        dataclasses.replace(base, slots={"a": d(1), "c": d(2)}),
        dataclasses.replace(base, slots={"a": d(1)}),
        dataclasses.replace(base, step=4),
        dataclasses.replace(base, loss=0.25),
        dataclasses.replace(base, loss_chain=d("other")),
        dataclasses.replace(base, log_chain=d("other")),
        dataclasses.replace(base, log=d("entry")),
    ]
    digests = {v.digest(d("p"), 7) for v in variants}
    assert len(digests) == len(variants)
    assert base.digest(d("p"), 8) not in digests
    assert set(base.next_state()) == {"a", "b", "chain.loss", "chain.log"}
    with pytest.raises(UsageError, match="COMMIT node itself"):
        state.CommitNode({"chain.loss": d(1)}, 0, 0.0, bytes(32), bytes(32))


# ---- checkpoints --------------------------------------------------------------------------------


def test_run_root_binds_job_size_steps_and_roots() -> None:  # 6.4
    points = [(s, d("state", s)) for s in (0, 5, 10, 12)]
    root = checkpoint.run_root(d("job"), points)
    others = {
        checkpoint.run_root(d("job2"), points),
        checkpoint.run_root(d("job"), points[:3]),
        checkpoint.run_root(d("job"), [*points[:3], (13, points[3][1])]),
        checkpoint.run_root(d("job"), [*points[:3], (12, d("x"))]),
    }
    assert len(others | {root}) == 5


def test_checkpoints_must_ascend_from_genesis() -> None:  # 6.3
    for steps in ((1, 2), (0, 2, 2), (0, 3, 2)):
        with pytest.raises(UsageError):
            checkpoint.run_tree([(s, d(s)) for s in steps])


def test_journal_prefixes_are_consistent() -> None:  # 6.3
    points = [(s * 20, d(s)) for s in range(23)]
    tree = checkpoint.run_tree(points)
    for old in range(24):
        proof = tree.consistency(old)
        assert merkle.verify_consistency(old, 23, tree.root(old), tree.root(), proof)
        if 0 < old < 23:
            forged = [*points[: old - 1], (points[old - 1][0], d("forged"))]
            other = checkpoint.run_tree(forged).root()
            assert not merkle.verify_consistency(old, 23, other, tree.root(), proof)


def test_schedule() -> None:  # 6.2
    for last in range(50):
        for interval in range(1, 12):
            steps = checkpoint.checkpoint_steps(last, interval)
            assert steps[0] == 0 and steps[-1] == last
            assert all(b - a <= interval for a, b in pairwise(steps))
            assert all(s % interval == 0 for s in steps[:-1])
            assert checkpoint.checkpoint_count(last, interval) == len(steps)
    with pytest.raises(UsageError, match="longer interval"):
        checkpoint.checkpoint_steps(1 << 40, 1)
    with pytest.raises(UsageError):
        checkpoint.checkpoint_steps(5, 0)


# ---- jobs ---------------------------------------------------------------------------------------

JOB = job.JobCommitment(
    "ordered/1-draft.1", d("p"), d("g"), d("d"), 100, 8, 1, 2, 200, 20, job.scalars_digest({})
)


@pytest.mark.parametrize(
    "change",
    [
        {"contract": ""}, {"contract": "ordered/1"}, {"program_digest": d("x")},
        {"genesis_root": d("x")}, {"data_root": d("x")}, {"record_count": 0}, {"batch_size": 1},
        {"order_seed": 2**64 - 1}, {"rng_seed": 0}, {"steps": 0}, {"checkpoint_interval": 1},
        {"scalars_digest": d("x")}, {"stop_on_non_finite": False},
    ],
)  # fmt: skip
def test_every_field_of_a_job_counts(change: dict[str, Any]) -> None:  # 7.2
    assert dataclasses.replace(JOB, **change).digest() != JOB.digest()
    assert {f.name for f in dataclasses.fields(job.JobCommitment)} == {
        "contract", "program_digest", "genesis_root", "data_root", "record_count", "batch_size",
        "order_seed", "rng_seed", "steps", "checkpoint_interval", "scalars_digest",
        "stop_on_non_finite", "format_version",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0}, {"batch_size": 1.0}, {"steps": -1}, {"steps": True},
        {"order_seed": 2**64}, {"rng_seed": 2**63}, {"checkpoint_interval": 0},
        {"record_count": 2**41}, {"program_digest": "00" * 32}, {"data_root": b""},
        {"contract": "x" * 2000}, {"stop_on_non_finite": 1},
    ],
)  # fmt: skip
def test_job_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        dataclasses.replace(JOB, **change)
    with pytest.raises(UnsupportedVersionError):
        dataclasses.replace(JOB, format_version=2)


def test_scalars() -> None:  # 7.3
    tables: list[dict[str, job.ScalarTable]] = [
        {}, {"lr": 0.1}, {"lr": [0.1]}, {"lr": [0.1, 0.1]}, {"lr": []}, {"lr2": 0.1},
        {"lr": 0.1, "a": 0.0}, {"lr": 0.1, "a": -0.0}, {"lr": 0.1 + 2**-56},
    ]  # fmt: skip
    assert len({job.scalars_digest(t) for t in tables}) == len(tables)
    ab: dict[str, job.ScalarTable] = {"a": 1.0, "b": 2.0}
    ba: dict[str, job.ScalarTable] = {"b": 2.0, "a": 1.0}
    assert job.scalars_digest(ab) == job.scalars_digest(ba)
    for bad in (math.nan, math.inf, [1.0, -math.inf]):
        with pytest.raises(UsageError, match="not finite"):
            job.scalars_digest({"lr": bad})
