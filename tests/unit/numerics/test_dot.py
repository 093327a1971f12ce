"""The dot class: every instruction set and thread count against plain numpy, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import dot_reference as ref
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.floats import fma
from reference.sums import total

from tallystick import _core
from tallystick.contracts.ordered.cpu import run_of
from tallystick.errors import UsageError
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import TensorType, type_of

ISAS = _core.supported_isas()
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-30],
    np.float32,
)


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def on_every_path(compute: Callable[[], np.ndarray], want: np.ndarray) -> None:
    for isa, threads in itertools.product(ISAS, (1, 2, 3)):
        _core.set_isa(isa)
        _core.set_threads(threads)
        same(compute(), want)


def run(name: str, attrs: dict, *inputs: np.ndarray | None) -> list[np.ndarray]:
    """Through the operator's own spec; outputs begin as garbage."""
    spec = all_ops()[name]
    types = spec.infer(attrs, tuple(None if x is None else type_of(x) for x in inputs))
    outputs = [np.full(t.shape, np.nan, np.float32) for t in types]
    run_of(name)(attrs, inputs, outputs)
    return outputs


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def test_reference_fma_is_the_rounded_exact_value() -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, (3, 4000), dtype=np.uint32)
    a, b, c = bits.view(np.float32)
    # Half of the cases nearly cancel, where a second rounding would show.
    with np.errstate(all="ignore"):
        c = np.where(rng.random(4000) < 0.5, -(a * b), c).astype(np.float32)
    got = fma(a, b, c)
    for x, y, z, r in zip(a, b, c, got, strict=True):
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z) and np.isfinite(r)):
            continue
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(r)) - exact)
        for neighbour in (
            np.nextafter(r, np.float32(np.inf)),
            np.nextafter(r, -np.float32(np.inf)),
        ):
            if np.isfinite(neighbour):
                other = abs(Fraction(float(neighbour)) - exact)
                even = not int(np.array(r).view(np.uint32)) & 1
                assert error < other or (error == other and even)


SIZES = [
    (1, 1, 1), (1, 17, 33), (5, 1, 7), (3, 300, 1), (1, 300, 1), (2, 2, 2), (7, 255, 5),
    (13, 128, 31), (14, 129, 32), (6, 256, 5), (15, 513, 33), (29, 40, 65), (6, 8, 16), (67, 70, 3),
    (100, 31, 47), (3, 47, 100), (70, 20, 300), (300, 20, 70),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_mm_in_every_layout(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m * 1000003 + k * 1009 + n)
    a, b = normal(rng, m, k), normal(rng, k, n)
    want = ref.mm(a, b)
    a2, b2 = np.zeros((2 * m, 3 * k), np.float32), np.zeros((3 * k, 2 * n), np.float32)
    a2[::2, ::3], b2[::3, ::2] = a, b
    for x in (a, np.asfortranarray(a), a2[::2, ::3], a[::-1].copy()[::-1]):
        for y in (b, np.asfortranarray(b), b2[::3, ::2], b[:, ::-1].copy()[:, ::-1]):
            on_every_path(lambda x=x, y=y: run("aten.mm", {}, x, y)[0], want)


def test_stride_zero_and_read_only_operands() -> None:
    rng = np.random.default_rng(2)
    a = np.broadcast_to(normal(rng, 1, 9), (20, 9))
    b = np.broadcast_to(normal(rng, 9, 1), (9, 40))
    assert not a.flags.writeable
    on_every_path(lambda: run("aten.mm", {}, a, b)[0], ref.mm(a, b))


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 0, 1)])
def test_empty_sizes(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    want = np.zeros((m, n), np.float32)
    on_every_path(lambda: run("aten.mm", {}, a, b)[0], want)
    c = np.full((m, n), 2.5, np.float32)
    attrs = {"beta": 2.0, "alpha": -1.0}
    on_every_path(lambda: run("aten.addmm", attrs, c, a, b)[0], ref.addmm(c, a, b, 2.0, -1.0))
    batch = np.ones((2, m, k), np.float32), np.ones((2, k, n), np.float32)
    on_every_path(lambda: run("aten.bmm", {}, *batch)[0], np.zeros((2, m, n), np.float32))


@pytest.mark.parametrize(("m", "k", "n"), [(5, 7, 19), (15, 300, 33), (31, 257, 18)])
def test_special_values(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(k)
    a, b = normal(rng, m, k), normal(rng, k, n)
    a[rng.random((m, k)) < 0.1] = 0.0
    for array in (a, b):
        flat = array.reshape(-1)
        where = rng.choice(flat.size, max(3, flat.size // 60), replace=False)
        flat[where] = rng.choice(SPECIAL, where.size)
    want = ref.mm(a, b)
    assert np.isnan(want).any()
    assert set(want.view(np.uint32)[np.isnan(want)]) == {0x7FC00000}
    on_every_path(lambda: run("aten.mm", {}, a, b)[0], want)


@pytest.mark.parametrize("exponents", [(-149, -100), (-80, -60), (-76, -70), (50, 70)])
def test_subnormal_and_overflowing_ranges(exponents: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    scale = [np.exp2(rng.integers(*exponents, s)).astype(np.float32) for s in ((9, 520), (520, 21))]
    a, b = normal(rng, 9, 520) * scale[0], normal(rng, 520, 21) * scale[1]
    on_every_path(lambda: run("aten.mm", {}, a, b)[0], ref.mm(a, b))


def test_first_chunk_initialises_and_keeps_minus_zero() -> None:
    # fma(-tiny, tiny, +0) underflows to -0; adding the partial to +0 would lose the sign.
    for k in (1, 128):
        a = np.zeros((4, k), np.float32)
        a[:, -1] = -1e-30
        b = np.full((k, 33), 1e-30, np.float32)
        want = np.full((4, 33), 0x80000000, np.uint32).view(np.float32)
        same(ref.mm(a, b), want)
        on_every_path(lambda a=a, b=b: run("aten.mm", {}, a, b)[0], want)


def test_no_padding_term_touches_an_infinity() -> None:
    a, b = np.full((2, 3), np.inf, np.float32), np.ones((3, 5), np.float32)
    on_every_path(lambda: run("aten.mm", {}, a, b)[0], np.full((2, 5), np.inf, np.float32))


def test_chunks_are_added_left_to_right() -> None:
    # Chunk partials 2^24, 1, 1: left to right both ones are lost, any other order keeps them.
    a, b = np.zeros((1, 768), np.float32), np.ones((768, 1), np.float32)
    a[0, [0, 128, 256]] = 2.0**24, 1.0, 1.0
    on_every_path(lambda: run("aten.mm", {}, a, b)[0], np.full((1, 1), 2.0**24, np.float32))


@pytest.mark.parametrize("layout", ["row", "matrix", "one", "column", "scalar", "strided"])
@pytest.mark.parametrize(
    ("beta", "alpha"), [(1.0, 1.0), (0.0, 1.0), (1.0, 0.5), (-1.7, 0.3), (0.0, 0.1), (1e-60, 1.0)]
)
def test_addmm(layout: str, beta: float, alpha: float) -> None:
    rng = np.random.default_rng(4)
    m, k, n = 17, 260, 37
    a, b = normal(rng, m, k), normal(rng, k, n)
    full = normal(rng, m, n)
    full[0, 0], full[1, 1] = np.inf, np.nan
    c = {
        "row": full[0],
        "matrix": full,
        "one": full[:1],
        "column": full[:, :1],
        "scalar": np.array(1.25, np.float32),
        "strided": np.asfortranarray(full),
    }[layout]
    attrs = {"beta": beta, "alpha": alpha}
    on_every_path(lambda: run("aten.addmm", attrs, c, a, b)[0], ref.addmm(c, a, b, beta, alpha))


def test_addmm_of_a_column() -> None:
    rng = np.random.default_rng(5)
    a, b, c = normal(rng, 50, 30), normal(rng, 30, 1), normal(rng, 50, 1)
    attrs = {"beta": 1.0, "alpha": 1.0}
    on_every_path(lambda: run("aten.addmm", attrs, c, a, b)[0], ref.addmm(c, a, b, 1.0, 1.0))


@pytest.mark.parametrize("shape", [(1, 5, 300, 9), (3, 64, 64, 64), (13, 20, 8, 33), (40, 3, 5, 2)])
def test_bmm(shape: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(6)
    count, m, k, n = shape
    a, b = normal(rng, count, m, k), normal(rng, count, k, n)
    want = ref.bmm(a, b)
    at = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
    bt = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    heads = np.ascontiguousarray(a.transpose(1, 0, 2)).transpose(1, 0, 2)
    for x, y in ((a, b), (at, b), (a, bt), (heads, bt)):
        on_every_path(lambda x=x, y=y: run("aten.bmm", {}, x, y)[0], want)
    shared = np.broadcast_to(b[:1], b.shape)
    on_every_path(lambda: run("aten.bmm", {}, a, shared)[0], ref.bmm(a, shared))


def test_threads_split_more_work_than_one_block() -> None:
    """Shapes past every blocking limit: each path against the scalar one on one thread."""
    rng = np.random.default_rng(7)
    for m, k, n in ((2100, 9, 2200), (2200, 9, 2100), (40, 5000, 900), (900, 5000, 40)):
        a, b = normal(rng, m, k), normal(rng, k, n)
        _core.set_isa("scalar")
        _core.set_threads(1)
        want = run("aten.mm", {}, a, b)[0]
        rows, cols = rng.integers(0, m, 4), rng.integers(0, n, 4)
        same(want[rows, cols], ref.dot(a[rows], b[:, cols].T))
        on_every_path(lambda a=a, b=b: run("aten.mm", {}, a, b)[0], want)


# --- convolution ----------------------------------------------------------------------------------
CONVS = [
    # n, C, H, W, O, kh, kw, stride, padding, dilation, groups
    (1, 1, 1, 1, 1, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (2, 3, 9, 8, 5, 3, 3, (1, 1), (1, 1), (1, 1), 1),
    (2, 4, 11, 7, 6, 3, 2, (2, 3), (2, 0), (1, 2), 2),
    (1, 4, 6, 6, 4, 3, 3, (1, 1), (1, 1), (1, 1), 4),
    (3, 40, 5, 5, 17, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (1, 3, 8, 9, 2, 1, 1, (2, 2), (0, 0), (1, 1), 1),
    (2, 2, 5, 5, 3, 4, 4, (3, 1), (3, 3), (1, 1), 1),
    (1, 30, 6, 7, 3, 3, 3, (1, 1), (1, 1), (1, 1), 1),
    (0, 2, 5, 5, 3, 3, 3, (1, 1), (0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", CONVS)
def test_convolution_and_gradients(case: tuple) -> None:
    n, c, h, w, o, kh, kw, stride, padding, dilation, groups = case
    rng = np.random.default_rng(h * 100 + w)
    x, weight, bias = normal(rng, n, c, h, w), normal(rng, o, c // groups, kh, kw), normal(rng, o)
    if n > 1:
        weight.reshape(-1)[0] = np.inf  # a padding tap is multiplied: inf times +0 is NaN
    attrs = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "transposed": False,
        "output_padding": (0, 0),
        "groups": groups,
    }
    geometry = (stride, padding, dilation, groups)
    out = all_ops()["aten.convolution"].infer(attrs, (type_of(x), type_of(weight), None))[0].shape
    for b in (None, bias):
        want = ref.convolution(x, weight, b, (out[2], out[3]), *geometry)
        on_every_path(lambda b=b: run("aten.convolution", attrs, x, weight, b)[0], want)
    grad = normal(rng, *out)
    wants = (
        ref.input_grad(grad, weight, x.shape, *geometry),
        ref.weight_grad(grad, x, weight.shape, *geometry),
        np.array([total(grad[:, i].reshape(-1)) for i in range(o)], np.float32),
    )
    for mask in (
        (True, True, True),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ):
        kept = [want for want, on in zip(wants, mask, strict=True) if on]
        full = {**attrs, "output_mask": mask}
        for i, want in enumerate(kept):
            on_every_path(
                lambda full=full, i=i: run("aten.convolution_backward", full, grad, x, weight)[i],
                want,
            )


def test_bias_gradient_over_several_blocks() -> None:
    grad = normal(np.random.default_rng(8), 3, 2, 25, 31)
    want = np.array([total(grad[:, i].reshape(-1)) for i in range(2)], np.float32)

    def compute() -> np.ndarray:
        out = np.empty(2, np.float32)
        _core.convolution_bias_grad(grad, out)
        return out

    on_every_path(compute, want)


# --- properties -----------------------------------------------------------------------------------
# Exponents stay near each other often enough that rounding, cancellation and underflow all occur.
ELEMENT = st.one_of(
    st.floats(width=32),
    st.floats(-4, 4, width=32),
    st.sampled_from([float(x) for x in SPECIAL]),
)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_small_product(data: st.DataObject) -> None:
    m, n = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 36))
    k = data.draw(st.sampled_from([1, 2, 3, 7, 8, 16, 17, 127, 128, 129, 257]))
    pool = np.array(data.draw(st.lists(ELEMENT, min_size=4, max_size=24)), np.float32)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # A non-canonical NaN may not enter a program (NUMERICS 1.5), but kernels stand it.
    a, b = rng.choice(pool, (m, k)), rng.choice(pool, (k, n))
    if data.draw(st.booleans()):
        a = np.asfortranarray(a)
    if data.draw(st.booleans()):
        b = np.asfortranarray(b)
    want = ref.mm(a, b)
    for isa in ISAS:
        _core.set_isa(isa)
        _core.set_threads(data.draw(st.integers(1, 3)))
        same(run("aten.mm", {}, a, b)[0], want)


# --- refusals -------------------------------------------------------------------------------------
def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


@pytest.mark.parametrize(
    ("name", "attrs", "types"),
    [
        ("aten.mm", {}, (f32(2, 3), f32(4, 5))),
        ("aten.mm", {}, (f32(2, 3),)),
        ("aten.mm", {}, (f32(2, 3), None)),
        ("aten.mm", {}, (TensorType("f64", (2, 3)), f32(3, 5))),
        ("aten.mm", {}, (f32(2, 3, 1), f32(3, 5))),
        ("aten.bmm", {}, (f32(2, 3, 4), f32(3, 4, 5))),
        ("aten.addmm", {"beta": 1.0, "alpha": 1.0}, (f32(4), f32(2, 3), f32(3, 5))),
        ("aten.addmm", {"beta": 1.0, "alpha": 1.0}, (f32(2, 1, 1), f32(2, 3), f32(3, 5))),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(name: str, attrs: dict, types: tuple) -> None:
    with pytest.raises(UsageError, match=name):
        all_ops()[name].infer(attrs, types)


@pytest.mark.parametrize(
    "change",
    [
        {"transposed": True},
        {"output_padding": (1, 0)},
        {"stride": (0, 1)},
        {"padding": (-1, 0)},
        {"dilation": (1, 0)},
        {"dilation": (9, 9)},
        {"groups": 2},
        {"groups": 0},
        {"stride": (1, 1, 1)},
    ],
)
def test_convolution_refuses(change: dict) -> None:
    attrs = {
        "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False,
        "output_padding": (0, 0), "groups": 1, **change,
    }  # fmt: skip
    with pytest.raises(UsageError, match="convolution"):
        all_ops()["aten.convolution"].infer(attrs, (f32(1, 3, 5, 5), f32(2, 3, 3, 3), None))


def test_kernels_check_what_they_are_given() -> None:
    a, b, out = (
        np.ones((2, 3), np.float32),
        np.ones((3, 4), np.float32),
        np.ones((2, 4), np.float32),
    )
    with pytest.raises(ValueError, match="shapes"):
        _core.mm(a, b, np.ones((2, 5), np.float32))
    with pytest.raises(ValueError, match="overlaps"):
        square = np.ones((3, 3), np.float32)
        _core.mm(square, square, square)
    with pytest.raises(TypeError):
        _core.mm(a.astype(np.float64), b, out)
    with pytest.raises(TypeError):
        _core.mm(a, b, np.asfortranarray(np.ones((2, 4), np.float32)))
    with pytest.raises(ValueError, match="fit"):
        _core.convolution(
            np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32), None,
            np.ones((1, 1, 3, 3), np.float32), (1, 1), (0, 0), (1, 1), 1,
        )  # fmt: skip
