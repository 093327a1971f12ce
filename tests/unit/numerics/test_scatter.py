"""Embedding, its gradient and index_add against plain numpy, bit for bit (NUMERICS 4, 9)."""

from __future__ import annotations

import composite_reference as ref
import numpy as np
import pytest
from composite_reference import KINDS, check, check_inplace, evaluate, values
from dot_reference import quiet

from tallystick.errors import UsageError
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType


def _backward_attrs(num_weights: int, padding_idx: int = -1) -> dict:
    return {
        "num_weights": num_weights,
        "padding_idx": padding_idx,
        "scale_grad_by_freq": False,
    }


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("row", [0, 1, 7, 16, 100])
def test_embedding_moves_bits(shape: tuple[int, ...], row: int) -> None:
    w = values(1, (9, row), "special")
    if w.size:
        w.view(np.uint32)[3, 0] = 0x7F812345  # a NaN with a payload moves unchanged
    index = np.random.default_rng(2).integers(0, 9, shape)
    for isa in ref._core.supported_isas():
        with ref.settings(isa, 2):
            (got,) = evaluate("aten.embedding", w, index, padding_idx=-1)
        ref.assert_bits(got, w[index], "embedding")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sources, row, weights", [(0, 3, 2), (1, 1, 1), (50, 33, 7), (700, 130, 40)]
)
def test_embedding_backward(sources: int, row: int, weights: int, kind: str) -> None:
    g = values(3, (sources, row), kind)
    index = np.random.default_rng(4).integers(0, weights, sources)
    for padding in (-1, 0, weights - 1):
        start = np.zeros((weights, row), np.float32)
        with quiet():
            want = ref.scatter(start, index, g, padding)
        check(
            "aten.embedding_dense_backward", [want], g, index, **_backward_attrs(weights, padding)
        )


def test_embedding_backward_begins_with_plus_zero() -> None:
    g = np.full((1, 5), -0.0, np.float32)
    (out,) = evaluate("aten.embedding_dense_backward", g, np.array([1]), **_backward_attrs(2))
    assert not out.view(np.uint32).any()


def test_order_of_sources_matters_and_is_ascending() -> None:
    g = np.array([[1e8], [1.0], [-1e8], [1.0]], np.float32)
    index = np.array([[2, 2], [2, 2]])
    want = np.array([[0.0], [0.0], [1.0]], np.float32)
    attrs = _backward_attrs(3)
    check("aten.embedding_dense_backward", [want], g.reshape(2, 2, 1), index, **attrs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape, dim", [((7,), 0), ((5, 33), 0), ((5, 33), 1), ((3, 4, 70), -2)])
def test_index_add(shape: tuple[int, ...], dim: int, kind: str) -> None:
    for count in (0, 1, 40):
        source_shape = list(shape)
        source_shape[dim] = count
        x, source = values(5, shape, kind), values(6, tuple(source_shape), kind)
        index = np.random.default_rng(7).integers(0, shape[dim], count)
        with quiet():
            moved = ref.scatter(np.moveaxis(x, dim, 0), index, np.moveaxis(source, dim, 0))
        want = np.ascontiguousarray(np.moveaxis(moved, 0, dim))
        check("aten.index_add", [want], x, index, source, dim=dim)
        check_inplace("aten.index_add", x, index, source, dim=dim)


def test_index_add_keeps_minus_zero_where_nothing_is_added() -> None:
    x = np.array([-0.0, -0.0], np.float32)
    (out,) = evaluate("aten.index_add", x, np.array([1]), np.zeros(1, np.float32), dim=0)
    assert np.signbit(out).tolist() == [True, False]


def test_index_add_large_enough_for_threads() -> None:
    x, source = values(8, (300, 400)), values(9, (600, 400))
    index = np.random.default_rng(10).integers(0, 300, 600)
    check("aten.index_add", [ref.scatter(x, index, source)], x, index, source, dim=0)
    columns = np.random.default_rng(11).integers(0, 400, 500)
    wide = values(12, (300, 500))
    want = np.ascontiguousarray(ref.scatter(x.T, columns, wide.T).T)
    check("aten.index_add", [want], x, columns, wide, dim=1)


@pytest.mark.parametrize("bad", [5, -1, 2**40, -(2**63)])
def test_index_out_of_range_is_refused(bad: int) -> None:
    index = np.array([0, 1, bad])
    x, source = values(11, (5, 4)), values(12, (3, 4))
    for op, inputs, attrs in (
        ("aten.embedding", (x, index), {"padding_idx": -1}),
        ("aten.embedding_dense_backward", (source, index), _backward_attrs(5)),
        ("aten.index_add", (x, index, source), {"dim": 0}),
    ):
        with pytest.raises(UsageError, match=f"{op}: index {bad} at position 2"):
            evaluate(op, *inputs, **attrs)


def test_misuse_is_refused_by_name() -> None:
    x, i = TensorType("f32", (5, 4)), TensorType("i64", (3,))
    s = TensorType("f32", (3, 4))
    for op, attrs, types in (
        ("aten.embedding", {"padding_idx": -1}, (TensorType("f32", (5,)), i)),
        ("aten.embedding", {"padding_idx": -1}, (x, TensorType("i32", (3,)))),
        ("aten.embedding_dense_backward", _backward_attrs(5), (TensorType("f32", (4, 4)), i)),
        ("aten.embedding_dense_backward", _backward_attrs(-1), (s, i)),
        (
            "aten.embedding_dense_backward",
            {**_backward_attrs(5), "scale_grad_by_freq": True},
            (s, i),
        ),
        ("aten.index_add", {"dim": 2}, (x, i, s)),
        ("aten.index_add", {"dim": 1}, (x, i, s)),
        ("aten.index_add", {"dim": 0}, (x, TensorType("i64", (3, 1)), s)),
    ):
        with pytest.raises(UsageError, match=op):
            lookup(op).infer(attrs, types)
