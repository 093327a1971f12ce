"""Running statistics, carried over micro-batches that several workers execute (PROGRAM 6.4)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.devices.context import ExecutionContext
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder, value_name
from tallystick.program.canonical import canonicalize
from tallystick.program.carry import BATCH_NORM
from tallystick.program.executor import Executor
from tallystick.program.folded_tail import share
from tallystick.program.ir import Program
from tallystick.program.repeat import SectionShare
from tallystick.program.runner import StepInputs
from tallystick.program.sectioned import SectionedExecutor

CONTRACTS = ("ordered/1-draft.1", "rounded/1-draft.1", "exact/1-draft.1;b=22")
SPECIAL = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1e-45, 3e38, 1.0], np.float32)


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


def normalised(contract: str, rows: int, momentum: float, twice: bool) -> Program:
    """Batch normalisation of [rows, 3], with a count; `twice` through the same statistics."""
    b = Builder(contract)
    mean, variance = b.state("buffer.mean", f32(3)), b.state("buffer.var", f32(3))
    count, x = b.state("buffer.n", TensorType("i64", ())), b.batch("x", f32(rows, 3))
    attrs = {"momentum": momentum, "eps": 1e-5}
    y, _, _, moved, spread = b.emit(BATCH_NORM, [x, None, None, mean, variance], **attrs)
    counted = b.one("aten.add.Scalar", [count], other=1.0, alpha=1.0)
    if twice:
        y = b.one("aten.mul.Scalar", [y], other=3.0)
        y, _, _, moved, spread = b.emit(BATCH_NORM, [y, None, None, moved, spread], **attrs)
        counted = b.one("aten.add.Scalar", [counted], other=1.0, alpha=1.0)
    loss = b.one("aten.mean", [y])
    b.end_section()
    after = {"buffer.mean": moved, "buffer.var": spread, "buffer.n": counted}
    ended = b.one(FOLD, [loss], mean=True)
    b.commit(after)
    return canonicalize(b.finish(after | {"loss": ended}, dict(after)))


def by_workers(program: Program, parts: int, workers: int, state: dict, x: np.ndarray) -> dict:  # type: ignore[type-arg]
    """The slots after a step, carried from what the workers send."""
    context, kept = ExecutionContext(1), {name: a.copy() for name, a in state.items()}
    rows = len(x) // parts
    for rank in range(workers):
        own = share(rank, workers, parts)
        section = SectionShare(program, parts, own, context)
        with context.entered():
            section.execute(state, StepInputs({"x": x[own.start * rows : own.stop * rows]}))
        link = Executor(section.carrying.link, context)
        for sent in section.statistics:
            link.run_step(kept, {value_name(v): a for v, a in sent.items()})
    return kept


@pytest.mark.parametrize("contract", CONTRACTS)
@given(
    rows=st.integers(1, 4), parts=st.integers(1, 5), workers=st.integers(1, 3),
    momentum=st.sampled_from([0.1, 1.0, 0.0, 0.37]), twice=st.booleans(),
    special=st.booleans(), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_the_statistics_are_those_of_one_worker(
    contract: str, rows: int, parts: int, workers: int, momentum: float, twice: bool,
    special: bool, seed: int,
) -> None:  # fmt: skip
    """NUMERICS 6.12, bit for bit: NaN, -0, infinities, a single value of a channel (n = 1)."""
    rng = np.random.default_rng(seed)
    program = normalised(contract, rows, momentum, twice)
    x = rng.standard_normal((rows * parts, 3)).astype(np.float32)
    state = {
        "buffer.mean": rng.standard_normal(3).astype(np.float32),
        "buffer.var": rng.random(3).astype(np.float32),
        "buffer.n": np.array(5, np.int64),
    }
    if special:
        x[rng.integers(len(x))] = rng.choice(SPECIAL, 3)
        x[:, rng.integers(3)] = rng.choice(SPECIAL)
        state["buffer.mean"][:] = rng.choice(SPECIAL[1:], 3)
        state["buffer.var"][:] = rng.choice(SPECIAL[1:], 3)
    ours = by_workers(program, parts, min(workers, parts), state, x)
    SectionedExecutor(program, parts, ExecutionContext(1)).run_step(state, {"x": x})
    for name, array in state.items():
        assert array.tobytes() == ours[name].tobytes(), name
