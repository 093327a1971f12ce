"""Every rounded operator against exact sums in plain Python, on every engine (NUMERICS 13)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from reference import rounded_operators as reference
from reference.orders import Shuffled

from tallystick import _core
from tallystick.contracts.rounded.cpu import convolution as conv_module
from tallystick.contracts.rounded.cpu import pieces, products
from tallystick.errors import EnvironmentRefusedError, UnsupportedVersionError
from tallystick.kernels.evaluate import evaluate
from tallystick.products import engines, tiles
from tallystick.products.engines import NumpyEngine, using
from tallystick.products.probe import probe

pytestmark = pytest.mark.usefixtures("probed_once")

BITS = (32, 28, 20)
ENGINES = (NumpyEngine(), Shuffled(1), Shuffled(2, 5))


@pytest.fixture(params=["whole", "tiled"])
def tiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whether operands fit a tile, or every size is cut."""
    if request.param == "tiled":
        for module in (tiles, products, conv_module):
            monkeypatch.setattr(module, "BUDGET", 700)
        monkeypatch.setattr(pieces, "GATHER", 100)
    yield request.param


def nasty(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Operands whose sums cancel, tie, underflow, overflow, or are not finite."""
    x = rng.standard_normal(shape).astype(np.float32)
    if kind == "scales":
        x *= np.ldexp(np.float32(1), rng.integers(-60, 60, shape)).astype(np.float32)
    elif kind == "cancel":
        x = np.round(x * 4).astype(np.float32) * np.float32(2.0**40)
        x += rng.integers(-1, 2, shape).astype(np.float32)
        flat = x.reshape(-1)
        flat[1::2] = -flat[: len(flat) - len(flat) % 2 : 2][: len(flat[1::2])]
    elif kind == "ties":
        x = (rng.integers(-3, 4, shape) * 2.0 ** rng.integers(-13, 13, shape)).astype(np.float32)
    elif kind == "tiny":
        x = np.ldexp(x, rng.integers(-149, -60, shape)).astype(np.float32)
    elif kind == "huge":
        x = np.ldexp(x, rng.integers(55, 66, shape)).astype(np.float32)
    elif kind == "special":
        special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38], np.float32)
        pick = rng.random(shape) < 0.08
        x = np.where(pick, rng.choice(special, shape), x).astype(np.float32)
    return x


KINDS = ("plain", "scales", "cancel", "ties", "tiny", "huge", "special")


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype == np.float32 and got.shape == want.shape
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def check(op: str, want: list[np.ndarray], *arrays: Any, bits: int, **attributes: Any) -> None:
    for number, engine in enumerate(ENGINES):
        _core.set_threads(1 + number % 2)
        with using(engine):
            found = evaluate(op, *arrays, contract=f"rounded/1;b={bits}", **attributes)
        for got, expected in zip(
            found if isinstance(found, tuple) else (found,), want, strict=True
        ):
            same(np.asarray(got), expected)


def seeded(*parts: object) -> np.random.Generator:
    return np.random.default_rng(sum(ord(c) * (i + 1) for i, c in enumerate(repr(parts))))


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_matrix_products(kind: str, tiled: str) -> None:
    rng = seeded("mm", kind)
    for bits, (m, k, n) in zip(itertools.cycle(BITS), ((5, 33, 7), (1, 1, 3), (9, 300, 6))):
        a, b = nasty(rng, (m, k), kind), nasty(rng, (k, n), kind)
        check("aten.mm", [reference.mm(a, b, bits)], a, b, bits=bits)
        turned = np.asfortranarray(a), np.ascontiguousarray(b.T).T
        check("aten.mm", [reference.mm(a, b, bits)], *turned, bits=bits)
    a, b = nasty(rng, (3, 4, 20), kind), nasty(rng, (3, 20, 5), kind)
    check("aten.bmm", [reference.bmm(a, b, 32)], a, b, bits=32)
    check("aten.bmm", [reference.bmm(a, b, 24)], a.copy("F"), b[:, :, ::1], bits=24)
    wide = nasty(rng, (2, 30, 20), kind), nasty(rng, (2, 20, 16), kind)
    check("aten.bmm", [reference.bmm(*wide, 30)], *wide, bits=30)


@pytest.mark.parametrize("kind", KINDS)
def test_addmm_in_every_case(kind: str, tiled: str) -> None:
    rng = seeded("addmm", kind)
    a, b = nasty(rng, (5, 40), kind), nasty(rng, (40, 6), kind)
    for shape in ((), (6,), (1, 6), (5, 1), (5, 6)):
        c = nasty(rng, shape, kind)
        want = reference.addmm(c, a, b, 28, 1.0, 1.0)
        check("aten.addmm", [want], c, a, b, bits=28)
    c = nasty(rng, (6,), kind)
    for beta, alpha in ((0.0, 1.0), (1.0, 0.5), (0.1, 1.0), (0.0, 3.0), (-1.5, 0.7)):
        want = reference.addmm(c, a, b, 32, beta, alpha)
        check("aten.addmm", [want], c, a, b, bits=32, beta=beta, alpha=alpha)


GEOMETRIES = (
    # x, w, stride, padding, dilation, groups
    ((2, 3, 5, 4), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 4, 6, 5), (6, 2, 2, 3), (2, 1), (0, 2), (1, 2), 2),
    ((1, 3, 7, 7), (3, 1, 3, 3), (2, 2), (1, 1), (2, 2), 3),
    ((3, 4, 4, 4), (2, 4, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 2, 5, 5), (3, 2, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 2, 3, 9), (2, 2, 3, 4), (3, 2), (2, 3), (1, 1), 1),
)


def _geometry(case: Any) -> tuple[dict[str, Any], tuple[int, int]]:
    x, w, stride, padding, dilation, groups = case
    sides = [
        (x[2 + a] + 2 * padding[a] - dilation[a] * (w[2 + a] - 1) - 1) // stride[a] + 1
        for a in range(2)
    ]
    named = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return named, (sides[0], sides[1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_convolution_and_its_gradients(kind: str, tiled: str) -> None:
    rng = seeded("conv", kind)
    for bits, case in zip(itertools.cycle(BITS), GEOMETRIES):
        form, sides = _geometry(case)
        x, w = nasty(rng, case[0], kind), nasty(rng, case[1], kind)
        shape = (case[0][0], case[1][0], *sides)
        want = reference.convolution(x, w, None, shape, bits, **form)
        check("aten.convolution", [want], x, w, bits=bits, **form)
        bias = nasty(rng, (case[1][0],), kind)
        want = reference.convolution(x, w, bias, shape, bits, **form)
        check("aten.convolution", [want], x, w, bias, bits=bits, **form)
        grad = nasty(rng, shape, kind)
        three = [
            reference.input_gradient(grad, x.shape, w, bits, **form),
            reference.weight_gradient(grad, x, w.shape, bits, **form),
            reference.bias_gradient(grad, bits),
        ]
        check("aten.convolution_backward", three, grad, x, w, bits=bits, **form)
        check(
            "aten.convolution_backward", [three[1]], grad, x, w, bits=bits,
            output_mask=(False, True, False), **form,
        )  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_means(kind: str, tiled: str) -> None:
    rng = seeded("sum", kind)
    x = nasty(rng, (3, 20, 4, 5), kind)
    everything = tuple(range(4))
    for bits, mean in itertools.product((32, 27), (False, True)):
        op = "aten.mean" if mean else "aten.sum"
        check(op, [reference.sums(x, everything, bits, mean)], x, bits=bits)
        for axes in ((1,), (0, 1), (1, 3), (2, 3), (0,), (3,), (0, 2)):
            want = reference.sums(x, axes, bits, mean)
            check(op + (".dim" if mean else ".dim_IntList"), [want], x, bits=bits, dim=axes)
    long = nasty(rng, (2, 3000), kind)
    check("aten.sum.dim_IntList", [reference.sums(long, (1,), 32, False)], long, bits=32, dim=(1,))


def test_nothing_to_add_and_nothing_to_make() -> None:
    empty = np.zeros((3, 0), np.float32)
    same(evaluate("aten.mm", empty, empty.T, contract="rounded/1"), np.zeros((3, 3), np.float32))
    assert evaluate(
        "aten.mm", empty.T, np.zeros((3, 2), np.float32), contract="rounded/1"
    ).shape == (0, 2)
    c = np.array([-0.0, 1.5], np.float32)
    got = evaluate("aten.addmm", c, empty, np.zeros((0, 2), np.float32), contract="rounded/1")
    same(got, np.array([[0.0, 1.5]] * 3, np.float32))
    same(evaluate("aten.sum", empty, contract="rounded/1"), np.array(0, np.float32))
    nan = np.array(0x7FC00000, np.uint32).view(np.float32)
    same(evaluate("aten.mean", empty, contract="rounded/1"), nan)
    batch = np.zeros((0, 2, 3), np.float32)
    assert evaluate("aten.bmm", batch, batch.swapaxes(1, 2), contract="rounded/1").shape == (
        0,
        2,
        2,
    )
    none = np.zeros((0, 2, 4, 4), np.float32)
    w = np.ones((3, 2, 3, 3), np.float32)
    grads = evaluate(
        "aten.convolution_backward", np.zeros((0, 3, 2, 2), np.float32), none, w,
        contract="rounded/1",
    )  # fmt: skip
    assert grads[0].shape == none.shape and not grads[1].any() and not grads[2].any()


def test_taps_of_an_image_without_elements() -> None:
    """All taps are +0, and an infinity makes a NaN of them. NUMERICS 13.4."""
    image, one = np.zeros((1, 1, 0, 0), np.float32), np.ones((1, 1, 1, 1), np.float32)
    weight = np.array([[[[np.inf, 1], [1, 1]]]], np.float32)
    nan = np.full((1, 1, 1, 1), np.uint32(0x7FC00000).view(np.float32))
    form: dict[str, Any] = {"padding": (1, 1), "contract": "rounded/1"}
    same(evaluate("aten.convolution", image, weight, None, **form), nan)
    mask = {**form, "output_mask": (False, True, False)}
    found = evaluate("aten.convolution_backward", one * np.float32(np.inf), image, weight, **mask)
    same(found, np.broadcast_to(nan, weight.shape))


def test_integers_and_other_operators_stay_as_they_are() -> None:
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    assert int(evaluate("aten.sum", x, contract="rounded/1")) == 66
    assert int(evaluate("aten.sum", x > 5, contract="rounded/1;b=20")) == 6
    y = np.linspace(-3, 3, 50, dtype=np.float32)
    same(evaluate("aten.exp", y, contract="rounded/1;b=20"), evaluate("aten.exp", y))


def test_sum_squares_is_not_a_rounded_operator() -> None:
    """13.1 names sums of elements only."""
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    same(
        np.asarray(evaluate("tallystick.sum_squares", x, contract="rounded/1;b=20")),
        np.asarray(evaluate("tallystick.sum_squares", x)),
    )


@pytest.mark.parametrize("name", ["replay/1", "replay/1;form=published", "replay/1-draft.1"])
def test_a_value_under_a_log_is_refused(name: str) -> None:
    x = np.ones((2, 2), np.float32)
    with pytest.raises(UnsupportedVersionError, match="rounding log"):
        evaluate("aten.mm", x, x, contract=name)


# --- the start-up probe ---------------------------------------------------------------------------
class _Narrow(NumpyEngine):
    name = "binary32 inside"

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32))


class _ThreeParts(NumpyEngine):
    """BF16x9-like: operands to 24 bits, sums in binary64."""

    name = "three narrow parts"

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        a = a.astype(np.float32).astype(np.float64) * (1 + 2.0**-40)
        np.matmul(a, b, out=out)


class _FixedPoint(NumpyEngine):
    """Emulated binary64: digits cut at a distance from each row's largest element."""

    name = "digits"

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        unit = np.max(np.abs(a), axis=-1, keepdims=True) * 2.0**-52
        np.matmul(np.round(a / unit) * unit, b, out=out)


class _Strassen(NumpyEngine):
    name = "Strassen"

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        if a.ndim == 3 or any(s % 2 or s < 100 for s in (*a.shape, *b.shape)):
            np.matmul(a, b, out=out)
            return
        (p, q), (r, s) = (np.split(h, 2, axis=1) for h in np.split(a, 2))
        (t, u), (v, w) = (np.split(h, 2, axis=1) for h in np.split(b, 2))
        m1, m2, m3 = (p + s) @ (t + w), (r + s) @ t, p @ (u - w)
        m4, m5, m6, m7 = s @ (v - t), (p + q) @ w, (r - p) @ (t + u), (q - s) @ (v + w)
        out[...] = np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])


class _NarrowSums(NumpyEngine):
    name = "binary32 sums"

    def sums(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32).sum(axis=1).astype(np.float64)


@pytest.mark.parametrize("kind", [_Narrow, _ThreeParts, _FixedPoint, _Strassen, _NarrowSums])
def test_the_probe_finds_an_inadmissible_kernel(kind: type[NumpyEngine]) -> None:
    with pytest.raises(EnvironmentRefusedError, match=kind.name):
        probe(kind())
    x = np.ones((2, 2), np.float32)
    with using(kind()), pytest.raises(EnvironmentRefusedError):
        evaluate("aten.mm", x, x, contract="rounded/1")


def test_the_probe_accepts_admissible_kernels_and_runs_once() -> None:
    for engine in ENGINES:
        probe(engine)

    class Counting(NumpyEngine):
        name = "counting"
        calls = 0

        def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            Counting.calls += 1
            super().mm(a, b, out)

    with using(Counting()):
        engines.current_engine()
        first = Counting.calls
        engines.current_engine()
    assert first > 0 and Counting.calls == first
    assert engines.current_engine() is engines.DEFAULT
