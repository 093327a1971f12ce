"""Who owns what where several workers execute a step, and the sums that they exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_samples import micro_step
from program_samples import linear_step

from tallystick.commit.streamed import subtrees
from tallystick.contracts.ordered.cpu import run_of
from tallystick.devices.cpu import CPU
from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.carry import Carrying
from tallystick.program.expand import numbering
from tallystick.program.folded_tail import PartialSums, merge, share
from tallystick.program.ir import Program
from tallystick.program.owners import Owners
from tallystick.program.tail import Tail

ADD = run_of(FOLD)


@given(st.integers(1, 70), st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_the_sums_of_any_workers_give_the_fold(parts: int, workers: int, seed: int) -> None:
    """COMMITMENTS 2.3, NUMERICS 10.12: bit for bit, with infinities and negative zeros."""
    workers = min(workers, parts)
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-8, 8, (parts, 1))
    values = list((rng.standard_normal((parts, 3)) * scales).astype(np.float32))
    values[rng.integers(parts)][:] = rng.choice([np.inf, -0.0, 1e38], 3)
    expected = np.empty(3, np.float32)
    ADD({"mean": False}, values, [expected])

    def add(left: np.ndarray, right: np.ndarray) -> None:
        ADD({"mean": False}, [left, right], [left])

    held = []
    for rank in range(workers):
        own = share(rank, workers, parts)
        sums = PartialSums(CPU, ADD, TensorType("f32", (3,)), [])
        for part in own:
            sums.add(part, values[part])
        trees = subtrees(own)
        assert [level for level, _ in trees] == [level for level, _ in sums.held]
        assert sum(1 << level for level, _ in trees) == len(own)
        held += [(tree, np.array(x)) for tree, (_, x) in zip(trees, sums.held, strict=True)]
    assert merge(held, add).tobytes() == expected.tobytes()


@given(st.integers(1, 300), st.integers(1, 300))
def test_shares_are_consecutive_and_balanced(parts: int, workers: int) -> None:
    workers = min(parts, workers)
    shares = [share(rank, workers, parts) for rank in range(workers)]
    assert [part for own in shares for part in own] == list(range(parts))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def clipped(second_reads_first: bool = False) -> Program:
    """Two parameters with a buffer each, clipped together; `second_reads_first` joins them."""
    f32 = lambda *shape: TensorType("f32", shape)  # noqa: E731
    b = Builder("ordered/1-draft.1")
    first, second = b.state("param.a", f32(4)), b.state("param.b", f32(4))
    moments = [b.state("opt.a", f32(4)), b.state("opt.b", f32(4))]
    x, lr = b.batch("x", f32(2, 4)), b.scalar("lr")
    total = b.one("aten.sum.dim_IntList", [x], dim=(0,), keepdim=False)
    slopes = [b.one("aten.mul.Tensor", [total, p]) for p in (first, second)]
    loss = b.one("aten.mean", [slopes[0]])
    b.end_section()
    folded = [b.one(FOLD, [s], mean=True) for s in slopes]
    ended = b.one(FOLD, [loss], mean=True)
    squares = [b.one("tallystick.sum_squares", [g]) for g in folded]
    coefficient, norm = b.emit("tallystick.clip_coef", squares, max_norm=0.5)
    if second_reads_first:
        folded[1] = b.one("aten.add.Tensor", [folded[1], moments[0]], alpha=1.0)
    after = {}
    for name, p, g, m in zip("ab", (first, second), folded, moments, strict=True):
        after[f"param.{name}"], after[f"opt.{name}"] = b.emit(
            "tallystick.sgd_step", [p, g, m, lr, coefficient],
            momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False,
        )  # fmt: skip
    b.commit(after)
    return canonicalize(b.finish(after | {"loss": ended, "metric.norm": norm}))


def test_groups_meet_in_values_of_rank_0_only() -> None:
    program = clipped()
    owners = Owners((program,), 2)
    assert owners.slots["param.a"] == owners.slots["opt.a"] != owners.slots["param.b"]
    assert owners.held == {"param.a", "param.b"}  # micro-batches read them; moments are shared out
    assert list(owners.held_by(owners.slots["opt.a"])) == ["opt.a", "param.a", "param.b"]
    for rank in (0, 1):
        phases = Tail(owners, 0, rank, numbering(program, 2)).phases
        assert [len(p.exchanged) for p in phases] == [2, 0]  # two sums of squares; then all else
        assert not phases[0].program.next_state
        assert len(phases[1].program.next_state) == 2
        assert {"loss", "metric.norm"} <= phases[1].program.output_values.keys()


def test_slots_that_share_a_tensor_have_one_owner() -> None:
    owners = Owners((clipped(second_reads_first=True),), 2)
    assert len({owners.slots[n] for n in ("param.a", "param.b", "opt.a", "opt.b")}) == 1


def test_more_workers_than_groups_and_slots_that_every_worker_needs() -> None:
    owners = Owners((clipped(),), 5, frozenset({"opt.a"}))
    assert sorted(set(owners.slots.values())) == [0, 1]
    assert all("opt.a" in owners.held_by(rank) for rank in range(5))


def test_every_node_of_the_tail_is_in_a_piece() -> None:
    program = clipped()
    owners, seen = Owners((program,), 2), set()
    for rank in (0, 1):
        for phase in Tail(owners, 0, rank, numbering(program, 4)).phases:
            seen |= set(phase.numbers)
    n = numbering(program, 4)
    wanted = {
        n.node(i, 0)
        for i in range(program.section, len(program.nodes))
        if program.nodes[i].op not in (FOLD, "tallystick.commit")
    }
    assert seen == wanted


def test_a_carried_slot_that_micro_batches_depend_on_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Only one worker.*buffer\.count, buffer\.mean"):
        Carrying(micro_step())
    assert Carrying(clipped()).sent == ()
    assert not Owners((linear_step(),), 2).held - linear_step().state_types.keys()
