"""Dot class and reductions against the plain reference (NUMERICS 2, 3)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tools import check, drawn, few, fewer, kinds, layouts, lengths, paths, seeds, small
from reference.exact import round_to_pattern
from reference.floats import F32, fma


@few
@given(seeds, small, lengths, small, kinds, kinds, layouts, layouts, paths)
def test_mm(
    seed: int, m: int, k: int, n: int, ka: str, kb: str, la: str, lb: str, path: tuple[str, int]
) -> None:
    check("aten.mm", {}, [drawn(seed, ka, (m, k), la), drawn(seed + 1, kb, (k, n), lb)], path)


@fewer
@given(seeds, st.integers(0, 3), small, lengths, small, kinds, layouts, layouts, paths)
def test_bmm(
    seed: int, b: int, m: int, k: int, n: int, kind: str, la: str, lb: str, path: tuple[str, int]
) -> None:
    operands = [drawn(seed, kind, (b, m, k), la), drawn(seed + 1, kind, (b, k, n), lb)]
    check("aten.bmm", {}, operands, path)


@few
@given(seeds, small, lengths, small, kinds, layouts, st.sampled_from((1.0, 0.0, -0.5, 1e-3)),
       st.sampled_from((1.0, 0.0, 3.0)), st.integers(0, 3), paths)  # fmt: skip
def test_addmm(
    seed: int, m: int, k: int, n: int, kind: str, layout: str, alpha: float, beta: float,
    form: int, path: tuple[str, int],
) -> None:  # fmt: skip
    shape = ((), (n,), (m, 1), (m, n))[form]
    operands = [
        drawn(seed + 2, kind, shape, layout),
        drawn(seed, kind, (m, k), layout),
        drawn(seed + 1, kind, (k, n), layout),
    ]
    check("aten.addmm", {"alpha": alpha, "beta": beta}, operands, path)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    pick = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    groups, per_group, og = pick(1, 2), pick(1, 3), pick(1, 3)
    kh, kw = pick(1, 3), pick(1, 3)
    stride, padding, dilation = (
        (pick(1, 3), pick(1, 2)),
        (pick(0, 2), pick(0, 2)),
        (pick(1, 2), pick(1, 2)),
    )
    h = pick(max(1, dilation[0] * (kh - 1) + 1 - 2 * padding[0]), 7)
    w = pick(max(1, dilation[1] * (kw - 1) + 1 - 2 * padding[1]), 6)
    attrs = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "transposed": False,
        "output_padding": (0, 0),
        "groups": groups,
    }
    return attrs, (pick(0, 2), groups * per_group, h, w), (groups * og, per_group, kh, kw)


@few
@given(seeds, convolutions(), kinds, layouts, st.booleans(), paths)
def test_convolution(
    seed: int, conv: Any, kind: str, layout: str, bias: bool, path: tuple[str, int]
) -> None:
    attrs, x_shape, w_shape = conv
    x, w = drawn(seed, kind, x_shape, layout), drawn(seed + 1, kind, w_shape, layout)
    b = drawn(seed + 2, kind, w_shape[:1]) if bias else None
    check("aten.convolution", attrs, [x, w, b], path)
    sides = [
        (x_shape[2 + d] + 2 * attrs["padding"][d] - attrs["dilation"][d] * (w_shape[2 + d] - 1) - 1)
        // attrs["stride"][d] + 1
        for d in range(2)
    ]  # fmt: skip
    grad = drawn(seed + 3, kind, (x_shape[0], w_shape[0], *sides), layout)
    mask = (True, bool(seed & 1), bool(seed & 2))
    check("aten.convolution_backward", {**attrs, "output_mask": mask}, [grad, x, w], path)


@few
@given(seeds, st.lists(st.sampled_from((0, 1, 2, 3, 5, 33)), max_size=4), kinds, layouts,
       st.booleans(), st.data(), paths)  # fmt: skip
def test_reductions(
    seed: int, shape: list[int], kind: str, layout: str, keepdim: bool, data: st.DataObject,
    path: tuple[str, int],
) -> None:  # fmt: skip
    x = drawn(seed, kind, tuple(shape), layout)
    for op in ("aten.sum", "aten.mean", "tallystick.sum_squares"):
        check(op, {}, [x], path)
    if not shape:
        return
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    attrs = {"dim": tuple(axes), "keepdim": keepdim}
    check("aten.sum.dim_IntList", attrs, [x], path)
    check("aten.mean.dim", attrs, [x], path)
    check("aten.var_mean.correction", {**attrs, "correction": float(seed % 3)}, [x], path)
    if 0 in shape:
        return
    for op in ("aten.amax", "aten.amin"):
        check(op, attrs, [x], path)
    check("aten.argmax", {"dim": min(axes), "keepdim": keepdim}, [x], path)


@few
@given(
    seeds,
    st.sampled_from((255, 256, 257, 511, 513, 1025)),
    st.sampled_from((1, 3, 17, 65)),
    kinds,
    paths,
)
def test_long_sums(seed: int, n: int, cols: int, kind: str, path: tuple[str, int]) -> None:
    x = drawn(seed, kind, (n, cols))
    check("aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [x], path)
    check("aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [x.T.copy().T], path)
    check("aten.mean.dim", {"dim": (1,), "keepdim": False}, [x.T], path)


def test_work_that_threads_share() -> None:
    x = drawn(1, "floats", (200_003,))
    check("aten.sum", {}, [x])
    check("tallystick.sum_squares", {}, [x])
    check("aten.max", {}, [x])
    columns = drawn(2, "floats", (300, 701))
    check("aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [columns])
    check("aten.amax", {"dim": (0,), "keepdim": False}, [columns])
    check("aten.mm", {}, [drawn(3, "floats", (65, 260)), drawn(4, "floats", (260, 97))])


# --- the reference's own fma, against exact rational arithmetic (NUMERICS 1.4) ---
def exact_fma(a: np.float32, b: np.float32, c: np.float32) -> int | None:
    """Bit pattern of RN32(a·b + c) by fractions; None for a zero, whose sign IEEE-754 settles."""
    value = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if value == 0:
        return None
    with mp.workprec(1200):  # every sum of such a product and a binary32 number fits exactly
        return round_to_pattern(mp.mpf(value.numerator) / mp.mpf(value.denominator))


@pytest.mark.parametrize("kind", ["bits", "wide", "tiny", "near"])
def test_reference_fma(kind: str) -> None:
    if kind == "near":  # products that c nearly cancels, or that lie beside a rounding boundary
        a, b = drawn(5, "wide", (400,)), drawn(6, "wide", (400,))
        with np.errstate(all="ignore"):
            step = np.tile(np.array([1, 1 + 2**-23, 0.5, 2.0**-24, -1, 2.0**25], F32), 67)[:400]
            c = (-(a * b) * step).astype(F32)
    else:
        a, b, c = (drawn(i, kind, (400,)) for i in (5, 6, 7))
    got = fma(a, b, c)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    assert finite.any()
    for i in np.flatnonzero(finite):
        want = exact_fma(a[i], b[i], c[i])
        assert (got[i] == 0) if want is None else int(got[i].view(np.uint32)) == want
