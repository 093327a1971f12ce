"""Reductions against one addition at a time (NUMERICS 3), on every path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import SPECIAL, check, evaluate, plain_sum, plain_var_mean, sum_axes
from reference.floats import canonical, maximum, minimum

from tallystick import _core
from tallystick.errors import UsageError

F = np.float32


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Overflow and NaN are ordinary values here."""
    with np.errstate(all="ignore"):
        yield


SIZES = [0, 1, 2, 5, 15, 16, 17, 31, 32, 33, 48, 63, 100, 1023, 1024, 1025, 2049, 5000, 70001]


@pytest.mark.parametrize("size", SIZES)
def test_sum_of_all(size: int) -> None:
    x = plain.normal(np.random.default_rng(size), size)
    total = plain_sum(x)
    check("aten.sum", {}, [x], np.array(total))
    check("aten.mean", {}, [x], canonical(total / F(size)))
    check("tallystick.sum_squares", {}, [x], np.array(plain_sum(x * x)))


def test_sum_recurses_over_blocks() -> None:
    """More than 256 blocks: block values are themselves cut into blocks (NUMERICS 3.1)."""
    x = plain.normal(np.random.default_rng(0), 1024 * 1024 + 5000)
    blocks = x[: 1024 * 1028].reshape(-1, 8, 32)
    lanes = np.full((blocks.shape[0], 32), -0.0, F)
    for i in range(8):
        lanes = lanes + blocks[:, i]
    for s in (16, 8, 4, 2, 1):
        lanes = lanes[:, :s] + lanes[:, s : 2 * s]
    rest = x[1024 * 1028 :]
    values = [*lanes[:, 0], *(plain_sum(rest[i : i + 256]) for i in range(0, rest.size, 256))]
    check("aten.sum", {}, [x], np.array(plain_sum(np.array(values, F))))
    check("aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [x[:, None]],
          np.array([plain_sum(np.array(values, F))]))  # fmt: skip


def test_order_is_not_numpys() -> None:
    """The test would see another order: numpy's own sum has other bits on this input."""
    x = np.random.default_rng(1).random((50, 500), F)
    ours = sum_axes(x, (1,))
    assert (ours != x.sum(1)).any() and (ours != x[:, ::-1].sum(1)).any()


def test_signed_zeros_and_specials() -> None:
    """NUMERICS 3.2: a sum of −0 is −0; nothing is +0."""
    check("aten.sum", {}, [np.full(40, -0.0, F)], np.array(F(-0.0)))
    check("aten.sum", {}, [np.full((3, 5), -0.0, F)], np.array(F(-0.0)))
    dims = {"dim": (0,), "keepdim": False}
    check("aten.sum.dim_IntList", dims, [np.full((3, 5), -0.0, F)], np.full(5, -0.0, F))
    check("aten.sum.dim_IntList", dims, [np.zeros((0, 5), F)], np.zeros(5, F))
    check("aten.mean.dim", dims, [np.zeros((0, 5), F)], canonical(np.full(5, np.nan, F)))
    for row in (SPECIAL, SPECIAL[:14], np.array([np.inf, -np.inf], F), np.full(9, 3e38, F)):
        check("aten.sum", {}, [row], np.array(plain_sum(row)))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((7, 130), (1,)), ((7, 130), (0,)), ((1100, 70), (0,)), ((3, 40, 9), (1,)),
        ((3, 40, 9), (0, 1)), ((3, 40, 9), (1, 2)), ((3, 40, 9), (0, 2)), ((4, 5, 6, 7), (0, 2, 3)),
        ((4, 5, 6, 7), (1, 3)), ((5, 1, 6), (1,)), ((5, 1, 6), (0, 2)), ((2, 3), (0, 1)),
        ((2100, 1), (0,)), ((6, 2050), (-1,)), ((0, 4), (1,)), ((4, 0), (1,)), ((300, 200), (0,)),
    ],
)  # fmt: skip
def test_axes(shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> None:
    """NUMERICS 3.3."""
    x = plain.normal(np.random.default_rng(2), *shape)
    real = tuple(sorted(a % len(shape) for a in axes))
    want = sum_axes(x, real)
    n = int(np.prod([shape[a] for a in real]))
    if keepdim:
        want = want.reshape([1 if i in real else s for i, s in enumerate(shape)])
    attrs = {"dim": axes, "keepdim": keepdim}
    check("aten.sum.dim_IntList", attrs, [x], want)
    check("aten.mean.dim", attrs, [x], canonical(want / F(n)))


def test_integer_sums() -> None:
    """NUMERICS 3.4: wrapping 64-bit."""
    x = np.array([[2**62, 2**62], [1, -5], [3, 4]])
    check("aten.sum", {}, [np.array([2**63 - 1, 1])], np.array(-(2**63)))
    check("aten.sum.dim_IntList", {"dim": (1,), "keepdim": True}, [x],
          np.array([[-(2**63)], [-4], [7]]))  # fmt: skip
    check("aten.sum", {}, [x > 2], np.array(4))


def plain_extreme(x: np.ndarray, axes: tuple[int, ...], largest: bool) -> np.ndarray:
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose((*kept, *axes)).reshape((*(x.shape[i] for i in kept), -1))
    combine = maximum if largest else minimum
    best = rows[..., 0]
    for i in range(1, rows.shape[-1]):
        best = combine(best, rows[..., i])
    return canonical(best)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5, 77), (1,)), ((5, 77), (0,)), ((3, 20, 9), (1,)), ((3, 20, 9), (0, 2)), ((1, 1), (0,)),
     ((70, 130), (0,)), ((4, 1), (0,))],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["normal", "special", "zeros"])
def test_extremes(shape: tuple[int, ...], axes: tuple[int, ...], kind: str) -> None:
    """NUMERICS 1.11, 3.5."""
    rng = np.random.default_rng(3)
    x = plain.normal(rng, *shape)
    if kind != "normal":
        x = rng.choice(SPECIAL if kind == "special" else SPECIAL[:2], shape).astype(F)
    attrs = {"dim": axes, "keepdim": False}
    check("aten.amax", attrs, [x], plain_extreme(x, axes, True))
    check("aten.amin", attrs, [x], plain_extreme(x, axes, False))
    every = tuple(range(x.ndim))
    check("aten.max", {}, [x], np.array(plain_extreme(x, every, True)))
    check("aten.min", {}, [x], np.array(plain_extreme(x, every, False)))


def test_extreme_of_a_long_row() -> None:
    x = plain.normal(np.random.default_rng(4), 90001)
    check("aten.max", {}, [x], np.array(x.max()))
    x[70000] = np.nan
    check("aten.min", {}, [x], canonical(np.array(np.nan, F)))


def plain_argmax(row: np.ndarray) -> int:
    """Lowest index among the maxima; NaN is the largest, and −0 equals +0 (NUMERICS 3.5)."""
    best = 0
    for i in range(1, row.size):
        if np.isnan(row[best]):
            break
        if np.isnan(row[i]) or row[i] > row[best]:
            best = i
    return best


@pytest.mark.parametrize("size", [1, 2, 7, 8, 16, 17, 33, 130])
def test_argmax(size: int) -> None:
    rng = np.random.default_rng(5)
    some = np.concatenate([
        rng.choice(SPECIAL, (20, size)), rng.choice(SPECIAL[:2], (3, size)),
        rng.integers(0, 4, (20, size)), np.full((1, size), -np.inf), plain.normal(rng, 9, size),
    ]).astype(F)  # fmt: skip
    want = np.array([plain_argmax(row) for row in some])
    check("aten.argmax", {"dim": 1, "keepdim": False}, [some], want)
    check("aten.argmax", {"dim": 0, "keepdim": True}, [np.ascontiguousarray(some.T)], want[None])


def test_argmax_of_integers_and_scalars() -> None:
    x = np.array([[3, 9, 9], [-1, -1, -2]])
    check("aten.argmax", {"dim": 1, "keepdim": False}, [x], np.array([1, 0]))
    check("aten.amax", {"dim": (1,), "keepdim": True}, [x], np.array([[9], [-1]]))
    check("aten.argmax", {"dim": 0, "keepdim": False}, [np.array(4.0, F)], np.array(0))
    check("aten.sum", {}, [np.array(-0.0, F)], np.array(-0.0, F))


@pytest.mark.parametrize("correction", [0.0, 1.0, 0.5, 100.0])
@pytest.mark.parametrize(
    ("shape", "axes"), [((6, 33), (1,)), ((33, 6), (0,)), ((3, 5, 700), (0, 2))]
)
def test_var_mean(shape: tuple[int, ...], axes: tuple[int, ...], correction: float) -> None:
    """NUMERICS 3.6."""
    x = plain.normal(np.random.default_rng(6), *shape)
    n = int(np.prod([shape[a] for a in axes]))
    attrs = {"dim": axes, "keepdim": True, "correction": correction}
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose((*kept, *axes)).reshape(-1, n)
    shaped = tuple(1 if i in axes else size for i, size in enumerate(shape))
    var, mean = zip(*(plain_var_mean(row, correction) for row in rows), strict=True)
    want = [canonical(np.array(a, F)).reshape(shaped) for a in (var, mean)]
    check("aten.var_mean.correction", attrs, [x], *want)


def test_var_mean_of_a_long_row() -> None:
    x = np.random.default_rng(7).standard_normal((1, 80000)).astype(F)
    var, mean = plain_var_mean(x[0], 1.0)
    attrs = {"dim": (1,), "keepdim": False, "correction": 1.0}
    check("aten.var_mean.correction", attrs, [x], np.array([var]), np.array([mean]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32), max_size=200), st.integers(1, 6))
def test_any_floats(values: list[float], columns: int) -> None:
    x = np.array(values + [0.0] * (-len(values) % columns), F).reshape(-1, columns)
    check("aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [x], sum_axes(x, (0,)))
    check("aten.sum", {}, [x], np.array(plain_sum(x)))


@pytest.mark.parametrize(
    ("name", "attrs", "x"),
    [
        ("aten.sum.dim_IntList", {"dim": (2,), "keepdim": False}, np.zeros((2, 2), F)),
        ("aten.sum.dim_IntList", {"dim": (0, -2), "keepdim": False}, np.zeros((2, 2), F)),
        ("aten.mean", {}, np.zeros(3, np.int64)),
        ("aten.amax", {"dim": (1,), "keepdim": False}, np.zeros((2, 0), F)),
        ("aten.max", {}, np.zeros(0, F)),
        ("aten.argmax", {"dim": 0, "keepdim": False}, np.zeros((0, 2), F)),
        ("aten.argmax", {"dim": 0, "keepdim": False}, np.zeros((2, 2), bool)),
    ],
)
def test_refusals(name: str, attrs: dict, x: np.ndarray) -> None:
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        evaluate(name, attrs, x)


def test_the_core_refuses_wrong_extents() -> None:
    x, out = np.zeros((4, 5), F), np.zeros(4, F)
    for outer, n, inner in ((4, 6, 1), (5, 5, 1), (2**63, 2, 2**62), (1, 20, 1)):
        with pytest.raises(ValueError):
            _core.reduce_sum(x, outer, n, inner, out)
