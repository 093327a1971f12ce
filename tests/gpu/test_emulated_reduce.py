"""Reductions on the emulated GPU: the SUM rule and what takes any order (NUMERICS 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from device_calls import agree, call, check_vectors, nasty
from emulated_gpu import emulated_gpu, planted

from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.products.cuda import folds
from tallystick.products.cuda.folds import BLOCK, CHUNK, FoldLayout, layout

OPERATORS = {
    *("aten.sum", "aten.sum.dim_IntList", "aten.mean", "aten.mean.dim"),
    *("aten.amax", "aten.amin", "aten.max", "aten.min", "aten.argmax"),
    *("aten.var_mean.correction", "tallystick.sum_squares", "tallystick.clip_coef"),
}


@pytest.fixture(scope="module")
def gpu() -> Cuda:
    return emulated_gpu(seed=11)


@pytest.mark.parametrize("seed", [1, 2])
def test_golden_vectors(seed: int) -> None:  # NUMERICS 3.4 to 3.7, 11.6
    found = check_vectors(emulated_gpu(seed), ops=OPERATORS)
    assert found.operators == OPERATORS and found.calls > 200
    assert found.wrong == []


# Every kind of layout: none or all axes reduced, rows, columns, both ends, the middle, and one that
# is copied first.
LAYOUTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((7,), (0,)),
    ((5, 33), (1,)),
    ((3, 2500), (1,)),
    ((300, 2), (0,)),
    ((33, 40), (0,)),
    ((3, 700, 5), (1,)),
    ((1, 31, 1, 9), (1, 2)),
    ((6, 5, 70), (0, 2)),
    ((2, 3, 4, 5, 6), (1, 3)),
    ((4, 0, 3), (1,)),
    ((0, 3), (1,)),
]


@pytest.mark.parametrize(("shape", "axes"), LAYOUTS)
def test_every_layout(gpu: Cuda, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """3.3, and 3.4 to 3.6 over numbers of all kinds."""
    rng = np.random.default_rng(len(shape) + 17 * len(axes))
    x, whole = nasty(rng, shape), rng.integers(-(2**62), 2**62, shape)
    dims: dict[str, Any] = {"dim": axes, "keepdim": True}
    for op in ("aten.sum.dim_IntList", "aten.mean.dim"):
        agree(gpu, op, [x], **dims)
    agree(gpu, "aten.sum.dim_IntList", [whole], **dims)
    agree(gpu, "aten.sum.dim_IntList", [x > 0], **dims)
    agree(gpu, "aten.var_mean.correction", [x], correction=1.5, **dims)
    if x.size:
        for op in ("aten.amax", "aten.amin"):
            agree(gpu, op, [x], **dims)
            agree(gpu, op, [whole], **dims)
        for axis in axes[:1]:
            few = np.round(np.clip(x, -2, 2))  # many equal ones
            agree(gpu, "aten.argmax", [few.astype(np.float32)], dim=axis)
            agree(gpu, "aten.argmax", [whole % 3], dim=axis)


LENGTHS = (1, 31, 32, 33, 255, 256, 257, 1024, 1025, 9000, CHUNK + 1)


@pytest.mark.parametrize("n", LENGTHS)
def test_row_lengths(gpu: Cuda, n: int) -> None:
    """3.1: blocks, blocks of blocks, tails."""
    rng = np.random.default_rng(n)
    x = (rng.standard_normal((2, n)) * np.exp2(rng.integers(-9, 9, (2, n)))).astype(np.float32)
    agree(gpu, "aten.sum.dim_IntList", [x], dim=(1,))
    if n < CHUNK:
        agree(gpu, "aten.sum.dim_IntList", [x.T.copy()], dim=(0,))
    agree(gpu, "tallystick.sum_squares", [x])
    x[0, -1] = np.nan
    agree(gpu, "aten.argmax", [x], dim=1)


def _forced(shape: str, piece: int) -> Any:
    def choose(at: FoldLayout) -> tuple[str, int]:
        if at.is_side_by_side or (shape == "columns" and at.run >= at.n):
            return "columns", piece or at.n
        return ("warp" if shape == "columns" else shape), piece or at.n

    return choose


@pytest.mark.parametrize(
    ("shape", "n"),
    [
        *[("warp", 300), ("block", 300), ("columns", 300)],
        *[("warp", CHUNK + 300), ("block", CHUNK + 300), ("columns", 9000)],
    ],
)
@pytest.mark.parametrize("piece", [0, BLOCK, CHUNK])
def test_no_choice_changes_a_bit(
    gpu: Cuda, monkeypatch: pytest.MonkeyPatch, n: int, shape: str, piece: int
) -> None:
    """1.8: pieces, and the shape of the work."""
    rng = np.random.default_rng(n + piece)
    x = (rng.standard_normal((2, n)) * np.exp2(rng.integers(-9, 9, (2, n)))).astype(np.float32)
    monkeypatch.setattr(folds, "shape_of", _forced(shape, piece))
    agree(gpu, "aten.mean.dim", [x], dim=(1,))
    agree(gpu, "aten.argmax", [x], dim=1)
    if n < CHUNK:
        agree(gpu, "aten.var_mean.correction", [x], dim=(1,))
        agree(gpu, "aten.var_mean.correction", [x.T.copy()], dim=(0,))
        agree(gpu, "aten.amax", [x.reshape(2, 3, n // 3)], dim=(0, 2))


def test_layouts_hold_every_element() -> None:
    """3.3: `layout` against numpy's axes."""
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(300):
        shape = tuple(rng.integers(1, 5, rng.integers(0, 6)))
        axes = tuple(a for a in range(len(shape)) if rng.random() < 0.5)
        at = layout(shape, axes)
        seen.add(at is None)
        if at is None:
            continue
        numbers = np.arange(math.prod(shape)).reshape(shape)
        kept = [a for a in range(len(shape)) if a not in axes]
        expected = numbers.transpose((*kept, *axes)).reshape(at.outputs, at.n)
        o, i = np.ogrid[: at.outputs, : at.n]
        base = o // at.inner * at.outer_step + o % at.inner
        assert (base + i // at.run * at.run_step + i % at.run * at.step == expected).all()
    assert seen == {True, False}


def test_many_gradients_are_clipped(gpu: Cuda) -> None:
    """11.6, over more operands than one launch gathers."""
    rng = np.random.default_rng(3)
    squares = [np.float32(v) for v in rng.random(600)]
    agree(gpu, "tallystick.clip_coef", [np.asarray(s) for s in squares], max_norm=0.7)


@pytest.mark.parametrize("fault", ["missing barrier", "one bit"])
@pytest.mark.parametrize("shape", [(2, 3000), (300, 5)])
def test_a_planted_fault_is_seen(fault: str, shape: tuple[int, int]) -> None:
    """In the sums of a block and of columns."""
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    attrs = {"dim": (int(shape[1] > 1024),)}
    with planted(fault):
        for seed in range(3):
            (got,) = call(emulated_gpu(seed), "aten.sum.dim_IntList", attrs, [x])
            (expected,) = call(CPU, "aten.sum.dim_IntList", attrs, [x])
            assert got.tobytes() != expected.tobytes()
