"""Operators that move bits (NUMERICS 9), on every path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plain
import pytest
from plain import SPECIAL, check, evaluate, same
from reference.floats import NAN32

from tallystick import _core
from tallystick.errors import UsageError

F = np.float32
X = np.arange(60, dtype=F).reshape(3, 4, 5)
# Movement keeps bits, so even a NaN that no operator would make passes through.
ODD = np.array([0xFFC00001, 0x7F800001, 0x80000000, 0x00000001], np.uint32).view(F)


def test_views() -> None:
    check("aten.view", {"size": (12, 5)}, [X], X.reshape(12, 5))
    check(
        "aten.view", {"size": (20, 3)}, [X.transpose(1, 2, 0)], X.transpose(1, 2, 0).reshape(20, 3)
    )
    check("aten.view", {"size": ()}, [X[:1, 0, 0]], X[0, 0, 0].reshape(()))
    check("aten.permute", {"dims": (2, 0, 1)}, [X], X.transpose(2, 0, 1))
    check(
        "aten.expand", {"size": (2, 3, 4)}, [X[:, :1, 0]], np.broadcast_to(X[:, :1, 0], (2, 3, 4))
    )
    attrs = {"dim": 1, "start": 1, "end": 4, "step": 2}
    check("aten.slice", attrs, [X], X[:, 1:4:2])
    check("aten.slice", {"dim": -1, "start": 2, "end": 2, "step": 1}, [X], X[..., 2:2])


def test_views_share_memory() -> None:
    for name, attrs in (
        ("aten.view", {"size": (60,)}),
        ("aten.permute", {"dims": (1, 0, 2)}),
        ("aten.slice", {"dim": 0, "start": 0, "end": 2, "step": 1}),
    ):
        (got,) = evaluate(name, attrs, X)
        assert np.shares_memory(got, X)


def test_cat_and_slice_scatter() -> None:
    parts = [X, X[:, :2], X[:, :0]]
    check("aten.cat", {"dim": 1}, parts, np.concatenate(parts, 1))
    check("aten.cat", {"dim": -1}, [X.T, X.T], np.concatenate([X.T, X.T], -1))
    check("aten.cat", {"dim": 0}, [ODD, ODD], np.concatenate([ODD, ODD]))
    want = X.copy()
    want[:, 0:4:2] = -1
    attrs = {"dim": 1, "start": 0, "end": 4, "step": 2}
    check("aten.slice_scatter", attrs, [X, np.full((3, 2, 5), -1, F)], want)


def test_indexing() -> None:
    index = np.array([[2, 0, 1], [1, 1, 0]])
    x = X[:, :, 0].copy()
    want = np.array([[x[i, j] for j in row] for i, row in enumerate(index)], F)
    check("aten.gather", {"dim": 1}, [x, index], want)
    want = np.array([[x[i, j] for j, i in enumerate(row)] for row in index], F)
    check("aten.gather", {"dim": 0}, [x, index], want)
    chosen = np.array([3, 3, 0])
    check("aten.index_select", {"dim": 1}, [X, chosen], X[:, chosen])
    check("aten.index_select", {"dim": 0}, [ODD, chosen], ODD[chosen])
    check("aten.index_select", {"dim": 2}, [X.transpose(2, 1, 0), np.array([2])],
          X.transpose(2, 1, 0)[:, :, [2]])  # fmt: skip
    for name, bad in (("aten.gather", np.array([[3]])), ("aten.gather", np.array([[-1]]))):
        with pytest.raises(UsageError, match="outside"):
            evaluate(name, {"dim": 0}, x, bad)
    for bad in (np.array([4]), np.array([-1])):
        with pytest.raises(UsageError, match="outside"):
            evaluate("aten.index_select", {"dim": 1}, X, bad)


@pytest.mark.parametrize("size", [1, 4, 19, 20, 1000])
def test_choosing(size: int) -> None:
    rng = np.random.default_rng(size)
    a = np.concatenate([ODD, SPECIAL, rng.standard_normal(1000).astype(F)])[:size]
    b, c = a[::-1].copy(), rng.random(size) < 0.5
    check("aten.where", {}, [c, a, b], np.where(c, a, b))
    check("aten.where", {}, [c, a, np.array(1.5, F)], np.where(c, a, F(1.5)))
    check("aten.masked_fill", {"value": float("-inf")}, [a, c], np.where(c, F(-np.inf), a))
    ints = rng.integers(0, 9, size)
    check("aten.where", {}, [c, ints, -ints], np.where(c, ints, -ints))
    check("aten.masked_fill", {"value": -7.0}, [ints, c], np.where(c, -7, ints))
    check("aten.masked_fill", {"value": 0.0}, [c, ~c], np.where(~c, False, c))


def test_attention_mask_broadcasts() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((2, 3, 33, 33)).astype(F)
    mask = np.triu(np.ones((33, 33), bool), 1)
    want = np.where(mask, F(-np.inf), scores)
    check("aten.masked_fill", {"value": float("-inf")}, [scores, mask], want)


def test_making() -> None:
    check("aten.full", {"size": (2, 3), "value": 0.1, "dtype": "f32"}, [], np.full((2, 3), F(0.1)))
    check("aten.full", {"size": (), "value": -3.0, "dtype": "i64"}, [], np.array(-3))
    check("aten.full", {"size": (2,), "value": 1.0, "dtype": "bool"}, [], np.ones(2, bool))
    nan = np.full(1, NAN32).view(F)
    check("aten.full", {"size": (1,), "value": -float("nan"), "dtype": "f32"}, [], nan)
    big = {"size": (1,), "value": 1e300, "dtype": "f32"}
    check("aten.full", big, [], np.array([np.inf], F))


@pytest.mark.parametrize(
    ("start", "end", "step", "count"),
    [(0, 10, 1, 10), (5, 0, -2, 3), (0, 1, 0.1, 10), (1, 0, 1, 0), (0, 1, 0.3, 4), (2, 2, 1, 0)],
)
def test_arange(start: float, end: float, step: float, count: int) -> None:
    """NUMERICS 9.1: 0.1 is above a tenth, so ten steps pass 1."""
    attrs = {"start": float(start), "end": float(end), "step": float(step)}
    want = np.array([float(start) + i * float(step) for i in range(count)], np.float64).astype(F)
    check("aten.arange", {**attrs, "dtype": "f32"}, [], want)
    if step == int(step):
        ints = np.arange(start, end, step, dtype=np.int64)
        check("aten.arange", {**attrs, "dtype": "i64"}, [], ints)


@pytest.mark.parametrize("diagonal", [-4, -1, 0, 2, 9])
def test_triangles(diagonal: int) -> None:
    for x in (X, X > 7, np.arange(12).reshape(3, 4)):
        check("aten.tril", {"diagonal": diagonal}, [x], np.tril(x, diagonal))
        check("aten.triu", {"diagonal": diagonal}, [x], np.triu(x, diagonal))


def strided() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 70, 90)).astype(F)
    yield x.transpose(0, 2, 1)
    yield x.transpose(2, 1, 0)
    yield x.transpose(1, 2, 0)
    yield x[::2, ::-1, ::3]
    yield x[:, 3:60, 7:80].transpose(0, 2, 1)
    yield np.broadcast_to(x[0, :, :1], (70, 90))
    yield x[:, :, 0].T
    yield x
    yield x[:0]
    yield rng.integers(0, 9, (300, 200)).T
    yield (rng.random((130, 70)) < 0.5).view(np.uint8).T
    yield rng.standard_normal((2, 12, 64, 100)).astype(F).transpose(0, 2, 1, 3)
    yield np.array(3.0, F)
    yield x[::2, ::-1, 5:69]
    yield rng.standard_normal((3, 5000)).astype(F)[::2]


@pytest.mark.parametrize("case", range(15))
def test_copy_strided(case: int) -> None:
    x = list(strided())[case]
    for isa in plain.ISAS:
        for threads in (1, 3):
            _core.set_isa(isa)
            _core.set_threads(threads)
            out = np.empty(x.shape, x.dtype)
            _core.copy_strided(x, out)
            same(out, np.ascontiguousarray(x).reshape(x.shape))


def test_copy_strided_refuses() -> None:
    for x, out in (
        (X, np.zeros((3, 5, 4), F)),
        (X, np.zeros((3, 4, 5), np.int32)),
        (X, np.zeros((3, 4, 10), F)[:, :, ::2]),
        (X, np.zeros(60, F)),
    ):
        with pytest.raises(ValueError):
            _core.copy_strided(x, out)


@pytest.mark.parametrize(
    ("name", "attrs", "inputs"),
    [
        ("aten.view", {"size": (7,)}, [X]),
        ("aten.view", {"size": (-1, -60)}, [X]),
        ("aten.permute", {"dims": (0, 0, 1)}, [X]),
        ("aten.expand", {"size": (3, 4, 6)}, [X]),
        ("aten.slice", {"dim": 0, "start": 0, "end": 9, "step": 1}, [X]),
        ("aten.slice", {"dim": 0, "start": 2, "end": 1, "step": 1}, [X]),
        ("aten.slice", {"dim": 0, "start": 0, "end": 1, "step": 0}, [X]),
        ("aten.slice_scatter", {"dim": 0, "start": 0, "end": 1, "step": 1}, [X, X]),
        ("aten.cat", {"dim": 0}, []),
        ("aten.cat", {"dim": 0}, [X, X[0]]),
        ("aten.cat", {"dim": 0}, [X, X[:, :1]]),
        ("aten.gather", {"dim": 0}, [X, np.zeros(3, np.int64)]),
        ("aten.index_select", {"dim": 0}, [X, np.zeros(3, F)]),
        ("aten.where", {}, [X, X, X]),
        ("aten.masked_fill", {"value": 0.0}, [X[0], np.zeros((3, 4, 5), bool)]),
        ("aten.full", {"size": (2,), "value": 0.5, "dtype": "i64"}, []),
        ("aten.full", {"size": (2,), "value": 0.5, "dtype": "f16"}, []),
        ("aten.arange", {"start": 0.0, "end": 1.0, "step": 0.0, "dtype": "f32"}, []),
        ("aten.arange", {"start": 0.5, "end": 1.0, "step": 1.0, "dtype": "i64"}, []),
        ("aten.tril", {"diagonal": 0}, [ODD]),
    ],
)
def test_refusals(name: str, attrs: dict, inputs: list[np.ndarray]) -> None:
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        evaluate(name, attrs, *inputs)
