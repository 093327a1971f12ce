"""Elementwise arithmetic, elementary functions and movement against the reference (5, 9, 10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tools import (
    check,
    drawn,
    few,
    fewer,
    kinds,
    laid_out,
    layouts,
    lengths,
    paths,
    pooled,
    seeds,
    small,
)
from reference.data import Gen
from reference.exact import ELEMENTARY

BINARY = ("maximum", "minimum", "mul.Tensor", "div.Tensor", "eq.Tensor", "ne.Tensor", "lt.Tensor",
          "le.Tensor", "gt.Tensor", "ge.Tensor")  # fmt: skip
UNARY = ("neg", "abs", "reciprocal", "sqrt", "square", "relu")
scalars = st.one_of(
    st.floats(width=64, allow_nan=True), st.sampled_from((0.0, -0.0, 1.0, 0.1, 1e-45, 1e300))
)


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast together."""
    shape = draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, 17)), max_size=3))
    sides = []
    for _ in range(2):
        keep = draw(st.integers(0, len(shape)))
        own = shape[len(shape) - keep :]
        sides.append(tuple(1 if draw(st.booleans()) else n for n in own))
    return sides[0], sides[1]


@few
@given(seeds, broadcasts(), kinds, layouts, layouts, st.sampled_from((1.0, 0.1, -2.0)), paths)
def test_two_operands(
    seed: int, shapes: Any, kind: str, la: str, lb: str, alpha: float, path: tuple[str, int]
) -> None:
    a, b = drawn(seed, kind, shapes[0], la), drawn(seed + 1, kind, shapes[1], lb)
    for name in BINARY:
        check(f"aten.{name}", {}, [a, b], path)
    for name in ("add", "sub"):
        check(f"aten.{name}.Tensor", {"alpha": alpha}, [a, b], path)
    condition = laid_out(Gen(f"c{seed}").bools(*shapes[1]), lb)
    check("aten.where", {}, [condition, a, b], path)


@few
@given(seeds, lengths, kinds, layouts, scalars, paths)
def test_a_scalar(
    seed: int, n: int, kind: str, layout: str, value: float, path: tuple[str, int]
) -> None:
    x = drawn(seed, kind, (2, n), layout)
    for name in ("mul", "div", "eq", "ne", "lt", "le", "gt", "ge"):
        check(f"aten.{name}.Scalar", {"other": value}, [x], path)
    for name in ("add", "sub"):
        check(f"aten.{name}.Scalar", {"other": value, "alpha": 1.0}, [x], path)
        check(f"aten.{name}.Scalar", {"other": 0.3, "alpha": value}, [x], path)
    check("aten.clamp", {"min": value}, [x], path)
    check("aten.clamp", {"max": value}, [x], path)
    check("aten.clamp", {"min": -0.5, "max": value}, [x], path)
    check("aten.leaky_relu", {"negative_slope": value}, [x], path)
    mask = laid_out(Gen(f"m{seed}").bools(2, n), layout)
    check("aten.masked_fill", {"value": value}, [x, mask], path)
    check("tallystick.mask_scale", {"scale": value}, [x, mask], path)


@few
@given(seeds, small, lengths, kinds, layouts, paths)
def test_one_operand(
    seed: int, m: int, n: int, kind: str, layout: str, path: tuple[str, int]
) -> None:
    x = drawn(seed, kind, (m, n), layout)
    for name in UNARY:
        check(f"aten.{name}", {}, [x], path)
    check("aten._to_copy", {"dtype": "bool"}, [x], path)
    g = drawn(seed + 1, kind, (m, n), layout)
    check("aten.threshold_backward", {"threshold": 0.25}, [g, x], path)
    check("aten.tanh_backward", {}, [g, x], path)
    check("aten.sigmoid_backward", {}, [g, x], path)


@fewer
@given(seeds, st.integers(0, 40), kinds, layouts, paths)
def test_elementary(seed: int, n: int, kind: str, layout: str, path: tuple[str, int]) -> None:
    x = drawn(seed, kind, (2, n), layout)
    for name in ELEMENTARY:
        check(f"aten.{name}", {}, [x], path)
    check("aten.silu", {}, [x], path)
    check("aten.silu_backward", {}, [drawn(seed + 1, kind, (2, n), layout), x], path)


@fewer
@given(seeds, st.integers(0, 30), kinds, st.one_of(scalars, st.integers(-5, 5).map(float)), paths)
def test_pow(seed: int, n: int, kind: str, exponent: float, path: tuple[str, int]) -> None:
    check("aten.pow.Tensor_Scalar", {"exponent": exponent}, [drawn(seed, kind, (n,))], path)


@few
@given(seeds, broadcasts(), layouts, paths)
def test_integers(seed: int, shapes: Any, layout: str, path: tuple[str, int]) -> None:
    g = Gen(f"i{seed}")
    a, b = laid_out(g.any_ints(*shapes[0]), layout), laid_out(g.any_ints(*shapes[1]), layout)
    for name in ("mul.Tensor", "maximum", "minimum", "eq.Tensor", "lt.Tensor", "ge.Tensor"):
        check(f"aten.{name}", {}, [a, b], path)
    for name in ("add.Tensor", "sub.Tensor"):
        check(f"aten.{name}", {"alpha": 3.0}, [a, b], path)
    check("aten.sum", {}, [a], path)
    check("aten._to_copy", {"dtype": "f32"}, [a], path)


@few
@given(seeds, st.integers(1, 4), st.integers(1, 5), kinds, layouts, st.integers(-3, 3), paths)
def test_movement(
    seed: int, m: int, n: int, kind: str, layout: str, diagonal: int, path: tuple[str, int]
) -> None:
    x = drawn(seed, kind, (2, m, n), layout)
    g = Gen(f"at{seed}")
    check("aten.view", {"size": (m, 2 * n)}, [x], path)
    check("aten.permute", {"dims": (2, 0, 1)}, [x], path)
    check("aten.expand", {"size": (3, 2, m, n)}, [x], path)
    cut = {"dim": 2, "start": 0, "end": n, "step": 2}
    check("aten.slice", cut, [x], path)
    check("aten.slice_scatter", cut, [x, drawn(seed + 1, kind, (2, m, (n + 1) // 2), layout)], path)
    check("aten.cat", {"dim": 1}, [x, x[:, :1]], path)
    check("aten.tril", {"diagonal": diagonal}, [x], path)
    check("aten.triu", {"diagonal": diagonal}, [x], path)
    check("aten.index_select", {"dim": 1}, [x, g.ints(0, m, 7)], path)
    check("aten.gather", {"dim": 2}, [x, laid_out(g.ints(0, n, 2, m, 3), layout)], path)
    check("aten.embedding", {"padding_idx": -1}, [x[0], g.ints(0, m, 2, 3)], path)


@pytest.mark.parametrize("shape", [(70_003,), (211, 333)])
def test_work_that_threads_share(shape: tuple[int, ...]) -> None:
    x, y = drawn(1, "mixed", shape), drawn(2, "mixed", shape)
    check("aten.add.Tensor", {"alpha": 0.5}, [x, y])
    check("aten.div.Tensor", {}, [x, y.T.copy().T])
    check("aten.lt.Tensor", {}, [x, y])
    z = pooled(3, shape)
    check("aten.exp", {}, [z])
    check("aten.silu", {}, [z])
    assert np.isfinite(z).any()
