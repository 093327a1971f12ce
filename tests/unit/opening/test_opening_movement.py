"""Opening rules of operators that move, choose or make data (NUMERICS 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from disputes import SparseSource, sites
from harness import check_games, check_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.data import Gen

from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import (
    MissingElements,
    RefusedOperandsError,
    Site,
    opening_rule,
)
from tallystick.opening.values import value_of
from tallystick.protocol.element import same_bits

F32 = np.float32
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MAKERS = ("mixed", "any_ints", "bools")
makers = st.sampled_from(MAKERS)
shapes = st.lists(st.sampled_from((1, 2, 3, 5)), max_size=4).map(tuple)
seeds = st.integers(0, 1 << 20)


def _made(maker: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return getattr(Gen(f"opening moves {maker} {shape} {seed}"), maker)(*shape)


@few
@given(shapes, makers, seeds, st.data())
def test_views(shape: tuple[int, ...], maker: str, seed: int, data: st.DataObject) -> None:
    x = _made(maker, shape, seed)
    check_values("aten.view", {"size": (x.size,)}, (x,))
    check_values("aten.view", {"size": (1, *shape[::-1])}, (x,))
    dims = tuple(data.draw(st.permutations(range(len(shape)))))
    check_values("aten.permute", {"dims": dims}, (x,))
    wider = tuple(4 if n == 1 else n for n in shape)
    check_values("aten.expand", {"size": (2, *wider)}, (x,))


@few
@given(shapes.filter(len), makers, seeds, st.data())
def test_slices(shape: tuple[int, ...], maker: str, seed: int, data: st.DataObject) -> None:
    x, dim = _made(maker, shape, seed), data.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[dim]
    start = data.draw(st.integers(0, size - 1))
    end, step = data.draw(st.integers(start + 1, size)), data.draw(st.integers(1, 3))
    attrs = {"dim": dim, "start": start, "end": end, "step": step}
    check_values("aten.slice", attrs, (x,))
    axis = dim % len(shape)
    count = len(range(start, end, step))
    part = _made(maker, (*shape[:axis], count, *shape[axis + 1 :]), seed + 1)
    check_values("aten.slice_scatter", attrs, (x, part))
    check_values("aten.cat", {"dim": dim}, (x, part, x))


def test_cat_with_empty_operands() -> None:
    x, empty = _made("mixed", (2, 3), 1), np.zeros((2, 0), F32)
    check_values("aten.cat", {"dim": 1}, (empty, x, empty, x[:, :1].copy(), empty))
    check_values("aten.cat", {"dim": -1}, (x,))


@few
@given(shapes.filter(len), makers, seeds, st.data())
def test_reading_by_index(
    shape: tuple[int, ...], maker: str, seed: int, data: st.DataObject
) -> None:
    x, dim = _made(maker, shape, seed), data.draw(st.integers(-len(shape), len(shape) - 1))
    gen, axis = Gen(f"opening index {seed}"), dim % len(shape)
    index = gen.ints(0, shape[axis], 4)
    check_values("aten.index_select", {"dim": dim}, (x, index))
    fewer = tuple(data.draw(st.integers(1, n)) for n in shape)
    at = gen.ints(0, shape[axis], *fewer[:axis], 6, *fewer[axis + 1 :])
    check_values("aten.gather", {"dim": dim}, (x, at))
    table = _made("mixed", (5, 3), seed)
    check_values("aten.embedding", {"padding_idx": 2}, (table, gen.ints(0, 5, *shape)))


def test_scalars_are_gathered() -> None:
    zero = np.zeros((), np.int64)
    check_values("aten.gather", {"dim": 0}, (np.array(F32(3)), zero))
    check_values("aten.embedding", {"padding_idx": -1}, (_made("mixed", (2, 3), 0), zero))


@few
@given(shapes, st.lists(st.booleans(), min_size=4, max_size=4), makers, seeds)
def test_choosing(shape: tuple[int, ...], narrow: list[bool], maker: str, seed: int) -> None:
    thin = tuple(1 if n else size for n, size in zip(narrow, shape, strict=False))
    mask = Gen(f"opening mask {seed}").bools(*thin)
    a, b = _made(maker, shape, seed), _made(maker, thin[1:], seed + 1)
    check_values("aten.where", {}, (mask, a, b))
    check_values("aten.where", {}, (mask, b, a))
    for value in (1.0, 0.0):
        check_values("aten.masked_fill", {"value": value}, (a, mask))
    if maker == "mixed":
        for value in (-0.0, 0.1, float("-inf"), float("nan")):
            check_values("aten.masked_fill", {"value": value}, (a, mask))


def test_bits_are_moved_unchanged() -> None:
    """NUMERICS 1.5: what only moves data keeps even the bits of another NaN."""
    x = np.array([0x7F800001, 0xFFC12345, 0x80000000, 1], np.uint32).view(F32)
    other, mask = x[::-1].copy(), np.array([True, False, True, False])
    check_values("aten.view", {"size": (2, 2)}, (x,))
    check_values("aten.where", {}, (mask, x, other))
    check_values("aten.masked_fill", {"value": 1.0}, (x, mask))
    check_values("aten.cat", {"dim": 0}, (x, other))
    check_values("aten.index_select", {"dim": 0}, (x, np.array([3, 0, 1])))
    check_values("aten.tril", {"diagonal": 0}, (x.reshape(2, 2),))


@few
@given(st.integers(1, 6), st.integers(1, 6), st.integers(-7, 7), makers, seeds)
def test_triangles(m: int, n: int, diagonal: int, maker: str, seed: int) -> None:
    for op in ("aten.tril", "aten.triu"):
        check_values(op, {"diagonal": diagonal}, (_made(maker, (2, m, n), seed),))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f32", 0.1), ("f32", -0.0), ("f32", float("nan")), ("f64", 0.1), ("f64", float("nan")),
     ("i64", -(2.0**63)), ("i32", 7.0), ("u8", 255.0), ("bool", 1.0)],
)  # fmt: skip
def test_full(dtype: str, value: float) -> None:
    check_values("aten.full", {"size": (2, 3), "value": value, "dtype": dtype}, ())
    check_values("aten.full", {"size": (), "value": value, "dtype": dtype}, ())


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0.0, 10.0, 1.0), (3.0, -20.0, -2.0), (-5.0, 9.0, 7.0), (2.0**62, 2.0**62 + 8192, 4096.0)],
)
def test_arange(start: float, end: float, step: float) -> None:
    attrs = {"start": start, "end": end, "step": step}
    for dtype in ("i64", "f32"):
        check_values("aten.arange", {**attrs, "dtype": dtype}, ())


@pytest.mark.parametrize(
    ("start", "end", "step"), [(0.0, 1.0, 0.1), (-0.3, 2.0, 1 / 3), (3e38, 2e39, 3e38)]
)
def test_arange_of_fractions(start: float, end: float, step: float) -> None:
    check_values("aten.arange", {"start": start, "end": end, "step": step, "dtype": "f32"}, ())


# --- games ----------------------------------------------------------------------------------------
def _games() -> list[tuple[str, dict[str, Any], tuple[np.ndarray, ...]]]:
    x, y, mask = _made("mixed", (3, 4), 1), _made("floats", (3, 2), 2), _made("bools", (4,), 3)
    half = {"dim": 1, "start": 0, "end": 4, "step": 2}
    return [
        ("aten.view", {"size": (2, 6)}, (x,)),
        ("aten.permute", {"dims": (1, 0)}, (x,)),
        ("aten.expand", {"size": (2, 3, 4)}, (x,)),
        ("aten.slice", half, (x,)),
        ("aten.slice_scatter", half, (x, y)),
        ("aten.cat", {"dim": 1}, (x, y)),
        ("aten.gather", {"dim": 0}, (x, np.array([[2, 1], [0, 0]]))),
        ("aten.index_select", {"dim": 1}, (x, np.array([3, 3, 0]))),
        ("aten.embedding", {"padding_idx": -1}, (x, np.array([[2], [0]]))),
        ("aten.where", {}, (mask, x, x + F32(1))),
        ("aten.masked_fill", {"value": 0.5}, (x, mask)),
        ("aten.full", {"size": (3,), "value": 2.0, "dtype": "i64"}, ()),
        ("aten.arange", {"start": 0.0, "end": 5.0, "step": 1.0, "dtype": "i64"}, ()),
        ("aten.tril", {"diagonal": 0}, (x,)),
        ("aten.triu", {"diagonal": 1}, (x,)),
    ]


@pytest.mark.parametrize("game", _games(), ids=lambda game: game[0])
def test_games(game: tuple[str, dict[str, Any], tuple[np.ndarray, ...]]) -> None:
    for verdict in check_games(*game, most=5):
        assert (verdict.clause, verdict.terms) == ("6.5", 1)


@pytest.mark.parametrize("bad", [-1, 3, 1 << 40])
@pytest.mark.parametrize("op", ["aten.embedding", "aten.gather", "aten.index_select"])
def test_an_index_outside_is_refused(op: str, bad: int) -> None:
    """NUMERICS 9.2. What a sparse source has not it asks for, so the index is read first."""
    x, index = _made("floats", (3, 4), 0), np.array([1, 2])
    if op == "aten.gather":
        index = index.reshape(1, 2)
    attrs: dict[str, Any] = {"padding_idx": -1} if op == "aten.embedding" else {"dim": 0}
    site, _ = sites(op, attrs, [x, index])[0]
    false = index.copy()
    false.reshape(-1)[0] = bad
    sparse = SparseSource([x, false])
    with pytest.raises(MissingElements) as missing:
        value_of(opening_rule(site), sparse)
    assert missing.value.operand == 1
    sparse.open(1, missing.value.flat)
    with pytest.raises(RefusedOperandsError, match=r"outside \[0, 3\)"):
        value_of(opening_rule(site), sparse)


class Far:
    """Operands too large for any machine: element i is i mod 1021, an index 7."""

    def read(self, operand: int, flat: np.ndarray) -> np.ndarray:
        return np.full(flat.shape, 7) if operand else (flat % 1021).astype(F32)


def test_elements_far_away() -> None:
    n = 1 << 33
    x, row = TensorType("f32", (n, 1024)), 2 * n // 3
    element, source = row * 1024 + 9, Far()

    def value(op: str, attrs: dict[str, Any], inputs: Any, out: TensorType, at: int) -> Any:
        return value_of(opening_rule(Site(op, attrs, inputs, (out,), 0, at)), source)

    transposed = value(
        "aten.permute", {"dims": (1, 0)}, (x,), TensorType("f32", (1024, n)), 9 * n + row
    )
    assert transposed == element % 1021
    taken = {"dim": 0, "start": 5, "end": n, "step": 3}
    part = TensorType("f32", ((n - 3) // 3, 1024))
    assert value("aten.slice", taken, (x,), part, element // 3 // 1024 * 1024) == (
        (5 + 3 * (element // 3 // 1024)) * 1024 % 1021
    )
    table, out = TensorType("i64", (n,)), TensorType("f32", (n, 1024))
    looked_up = value("aten.embedding", {"padding_idx": -1}, (x, table), out, element)
    assert looked_up == (7 * 1024 + 9) % 1021
    counted = {"start": 0.0, "end": float(n), "step": 1.0, "dtype": "i64"}
    assert value("aten.arange", counted, (), TensorType("i64", (n,)), row) == row


def test_only_the_chosen_operand_is_opened() -> None:
    a, b = _made("floats", (3,), 0), _made("floats", (3,), 1)
    mask = np.array([True, False, True])
    site, out = sites("aten.where", {}, (mask, a, b))[0]
    sparse = SparseSource((mask, a, b))
    sparse.open(0, np.array([1]))
    sparse.open(2, np.array([1]))
    assert same_bits(value_of(opening_rule(replace(site, element=1)), sparse), out[1])
