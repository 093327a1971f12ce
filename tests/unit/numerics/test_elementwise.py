"""Elementwise operators against plain numpy on every path (NUMERICS 5, 6.11, 7.4, 10)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import plain
import pytest
from plain import SPECIAL, check, evaluate
from reference.floats import NAN32, canonical, fma, maximum, minimum

from tallystick import _core
from tallystick.errors import UsageError

F = np.float32
ONE = F(1.0)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Overflow and NaN are ordinary values here."""
    with np.errstate(all="ignore"):
        yield


def pairs() -> list[np.ndarray]:
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    return [np.ascontiguousarray(a), np.ascontiguousarray(b)]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return (1.0 / (1.0 + np.exp(-x.astype(np.float64)))).astype(F)


ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "aten.mul.Tensor": lambda a, b: a * b,
    "aten.div.Tensor": lambda a, b: a / b,
    "aten.maximum": maximum,
    "aten.minimum": minimum,
    "aten.tanh_backward": lambda g, y: g * fma(-y, y, ONE),
    "aten.sigmoid_backward": lambda g, y: g * (y * (ONE - y)),
}


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 40000])
def test_two_operands(name: str, size: int) -> None:
    rng = np.random.default_rng(1)
    a, b = plain.normal(rng, size), plain.normal(rng, size)
    check(name, {}, [a, b], canonical(ARITHMETIC[name](a, b)))


@pytest.mark.parametrize("name", ARITHMETIC)
def test_special_values(name: str) -> None:
    a, b = pairs()
    check(name, {}, [a, b], canonical(ARITHMETIC[name](a, b)))


@pytest.mark.parametrize("alpha", [1.0, -1.0, 0.1, 2.0**-149, 1e300])
@pytest.mark.parametrize(("name", "sign"), [("add", 1), ("sub", -1)])
def test_alpha_is_one_fma(name: str, sign: int, alpha: float) -> None:
    """NUMERICS 10.2."""
    a, b = pairs()
    factor = F(sign) * F(alpha)
    want = canonical(fma(np.full_like(b, factor), b, a))
    check(f"aten.{name}.Tensor", {"alpha": alpha}, [a, b], want)
    want = canonical(fma(np.full_like(a, factor), np.full_like(a, F(0.1)), a))
    check(f"aten.{name}.Scalar", {"other": 0.1, "alpha": alpha}, [a], want)


def test_scalar_divisor_divides() -> None:
    """NUMERICS 10.2: not a product with the reciprocal, which differs for 3 on this input."""
    x = np.arange(1, 2000, dtype=F)
    want = x / F(3.0)
    assert (want != x * (ONE / F(3.0))).any()
    check("aten.div.Scalar", {"other": 3.0}, [x], want)
    check("aten.mul.Scalar", {"other": 0.1}, [x], x * F(0.1))


def layouts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(2)
    x = plain.normal(rng, 6, 37, 65)
    yield x, plain.normal(rng, 65)
    yield x, plain.normal(rng, 37, 1)
    yield x, plain.normal(rng, 6, 1, 65)
    yield x, plain.normal(rng, 6, 1, 1)
    yield x, plain.normal(rng)
    yield plain.normal(rng), x
    yield x.transpose(2, 0, 1), plain.normal(rng, 65, 6, 37)
    yield x[::-1, ::2, 1:-1:3], plain.normal(rng, 6, 19, 21)
    yield x[:, :, 5:6], plain.normal(rng, 37, 9)
    yield np.broadcast_to(x[0, 0], (50, 65)), x[:2, :25].reshape(50, 65)
    yield plain.normal(rng, 300, 1), plain.normal(rng, 1, 400)
    yield plain.normal(rng, 0, 5), plain.normal(rng, 1)
    yield plain.normal(rng, 700, 3).T, plain.normal(rng, 3, 1)


@pytest.mark.parametrize("case", range(13))
def test_layouts_and_broadcasting(case: int) -> None:
    """NUMERICS 1.8, 10.1: strides are no part of the meaning."""
    a, b = next(itertools.islice(layouts(), case, None))
    check("aten.sub.Tensor", {"alpha": 1.0}, [a, b], canonical(a - b))
    check("aten.lt.Tensor", {}, [a, b], a < b)
    c = np.broadcast_to(b > a, np.broadcast_shapes(a.shape, b.shape))
    check("aten.where", {}, [c, a, b], np.where(c, a, b))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name: str) -> None:
    """NUMERICS 1.10."""
    function = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                "gt": np.greater, "ge": np.greater_equal}[name]  # fmt: skip
    a, b = pairs()
    check(f"aten.{name}.Tensor", {}, [a, b], function(a, b))
    check(f"aten.{name}.Scalar", {"other": -0.0}, [a], function(a, F(0)))
    check(f"aten.{name}.Scalar", {"other": float("nan")}, [a[0]], function(a[0], F(np.nan)))
    i = np.array([[1, -5], [2**62, 0]])
    check(f"aten.{name}.Tensor", {}, [i, np.array([1, 0])], function(i, np.array([1, 0])))
    check(f"aten.{name}.Scalar", {"other": 1.0}, [i], function(i, 1))


def test_logic() -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for prefix, suffix in (("logical", ""), ("bitwise", ".Tensor")):
        check(f"aten.{prefix}_and{suffix}", {}, [a, b], a & b)
        check(f"aten.{prefix}_or{suffix}", {}, [a, b], a | b)
        check(f"aten.{prefix}_not", {}, [a], ~a)


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "aten.neg": lambda x: -x,
    "aten.abs": np.abs,
    "aten.reciprocal": lambda x: ONE / x,
    "aten.sqrt": np.sqrt,
    "aten.square": lambda x: x * x,
    "aten.relu": lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, F(0))),
    "aten.silu": lambda x: x * sigmoid(x),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("size", [0, 1, 7, 33, 20001])
def test_one_operand(name: str, size: int) -> None:
    x = np.concatenate([SPECIAL, plain.normal(np.random.default_rng(3), 20001)])[:size]
    check(name, {}, [x], canonical(UNARY[name](x)))
    two = np.stack([x, x])[:, ::2]
    check(name, {}, [two], canonical(UNARY[name](two)))


def test_negation_of_nan_is_canonical() -> None:
    """NUMERICS 1.5, whatever NaN comes in."""
    odd = np.array([0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FC00001], np.uint32).view(F)
    for name in ("aten.neg", "aten.abs", "aten.relu", "aten.sqrt", "aten.square", "aten.exp"):
        check(name, {}, [odd], np.full(4, NAN32).view(F))
    other = np.array([1.0, np.nan, 0.0, -1.0], F)
    for name in ("aten.maximum", "aten.minimum", "aten.mul.Tensor"):
        check(name, {}, [odd, other], np.full(4, NAN32).view(F))


def test_leaky_relu_and_thresholds() -> None:
    x, g = pairs()
    want = np.where(x > 0, x, x * F(0.01))
    check("aten.leaky_relu", {"negative_slope": 0.01}, [x], canonical(want))
    for threshold in (0.0, 1.0):
        want = np.where(x <= F(threshold), F(0), g)
        check("aten.threshold_backward", {"threshold": threshold}, [g, x], canonical(want))


def test_silu_backward() -> None:
    rng = np.random.default_rng(4)
    g, x = plain.normal(rng, 3000), plain.normal(rng, 3000)
    s = sigmoid(x)
    want = canonical(g * (s * fma(x, ONE - s, np.ones_like(x))))
    check("aten.silu_backward", {}, [g, x], want)


@pytest.mark.parametrize(
    "bounds", [{"min": -1.0}, {"max": 0.5}, {"min": -1.0, "max": 0.5}, {"min": 2.0, "max": -2.0},
               {"min": 0.0}, {"max": -0.0}, {"min": float("nan"), "max": 1.0}]
)  # fmt: skip
def test_clamp(bounds: dict[str, float]) -> None:
    """NUMERICS 10.4."""
    want = SPECIAL
    if "min" in bounds:
        want = maximum(want, F(bounds["min"]))
    if "max" in bounds:
        want = minimum(want, F(bounds["max"]))
    check("aten.clamp", bounds, [SPECIAL], canonical(want))


def test_integers_wrap() -> None:
    """NUMERICS 10.8."""
    a, b = np.array([2**63 - 1, -(2**63), 3]), np.array([1, -1, 5])
    add = np.array([-(2**63), 2**63 - 1, 8])
    check("aten.add.Tensor", {"alpha": 1.0}, [a, b], add)
    check("aten.sub.Tensor", {"alpha": -1.0}, [a, b], add)
    check("aten.add.Scalar", {"other": 2.0, "alpha": 3.0}, [b], b + 6)
    check("aten.mul.Tensor", {}, [a, np.array(2)], np.array([-2, 0, 6]))
    check("aten.maximum", {}, [a, b], np.maximum(a, b))
    check("aten.clamp", {"min": -2.0, "max": 4.0}, [a], np.array([4, -2, 3]))


def test_powers() -> None:
    """NUMERICS 10.6."""
    x = np.concatenate([SPECIAL, plain.normal(np.random.default_rng(5), 100)])
    cases = {
        1.0: x, 2.0: x * x, 3.0: (x * x) * x, 0.5: np.sqrt(x), -1.0: ONE / x,
    }  # fmt: skip
    for exponent, want in cases.items():
        check("aten.pow.Tensor_Scalar", {"exponent": exponent}, [x], canonical(want))
        check("aten.pow.Tensor_Scalar", {"exponent": exponent}, [x[::3]], canonical(want[::3]))
    positive = np.abs(x[np.isfinite(x) & (x != 0)])
    exact = positive.astype(np.longdouble)
    want = (1 / np.sqrt(exact)).astype(F)
    check("aten.pow.Tensor_Scalar", {"exponent": -0.5}, [positive], want)
    # A general exponent: exact cases, which any algorithm but a sound one misses at times.
    want = np.array([8.0, 27.0, 0.125, 1.0], F)
    check("aten.pow.Tensor_Scalar", {"exponent": 1.5}, [np.array([4, 9, 0.25, 1], F)], want)


def test_conversions() -> None:
    """NUMERICS 10.7."""
    big = np.array([2**24 + 1, 2**63 - 1, -(2**53) - 1, 0, -7])
    check("aten._to_copy", {"dtype": "f32"}, [big], big.astype(F))
    check("aten._to_copy", {"dtype": "bool"}, [big], big != 0)
    flags = np.array([True, False])
    check("aten._to_copy", {"dtype": "f32"}, [flags], np.array([1, 0], F))
    check("aten._to_copy", {"dtype": "i64"}, [flags], np.array([1, 0]))
    x = np.array([1.9, -1.9, 0.0, -0.0, 9.2e18, -(2.0**63)], F)
    want = np.array([1, -1, 0, 0, int(F(9.2e18)), -(2**63)])
    check("aten._to_copy", {"dtype": "i64"}, [x], want)
    check("aten._to_copy", {"dtype": "bool"}, [SPECIAL], SPECIAL != 0)
    for bad in (np.nan, np.inf, 2.0**63, -1e19):
        with pytest.raises(UsageError, match="out-of-range"):
            evaluate("aten._to_copy", {"dtype": "i64"}, np.array([0.0, bad], F))


def test_mse() -> None:
    """NUMERICS 7.4."""
    rng = np.random.default_rng(6)
    x, y = plain.normal(rng, 41, 70), plain.normal(rng, 41, 70)
    d, n = x - y, F(x.size)
    total = plain.plain_sum(d * d)
    for reduction, want in (("none", d * d), ("sum", total), ("mean", total / n)):
        check("aten.mse_loss", {"reduction": reduction}, [x, y], canonical(want))
    g = np.array(0.7, F)
    twice = F(2) * d
    for reduction, grad, want in (
        ("mean", g, (twice * g) / n), ("sum", g, twice * g), ("none", y, twice * y),
    ):  # fmt: skip
        check("aten.mse_loss_backward", {"reduction": reduction}, [grad, x, y], canonical(want))


def test_output_may_replace_an_operand() -> None:
    rng = np.random.default_rng(7)
    a, b = plain.normal(rng, 300, 77), plain.normal(rng, 77)
    want = canonical(a * b)
    for isa in plain.ISAS:
        _core.set_isa(isa)
        work = a.copy()
        _core.ew2("mul", work, b, work)
        plain.same(work, want)


@pytest.mark.parametrize(
    ("name", "attrs", "inputs"),
    [
        ("aten.mul.Tensor", {}, [np.zeros(3, F), np.zeros(4, F)]),
        ("aten.mul.Tensor", {}, [np.zeros(3, F), np.zeros(3, np.int64)]),
        ("aten.mul.Tensor", {}, [np.zeros(3, F)]),
        ("aten.div.Tensor", {}, [np.zeros(3, np.int64), np.zeros(3, np.int64)]),
        ("aten.add.Scalar", {"other": 0.5, "alpha": 1.0}, [np.zeros(3, np.int64)]),
        ("aten.mul.Scalar", {"other": 1e30}, [np.zeros(3, np.int64)]),
        ("aten.add.Tensor", {}, [np.zeros(3, F), np.zeros(3, F)]),
        ("aten.logical_and", {}, [np.zeros(3, F), np.zeros(3, F)]),
        ("aten.clamp", {}, [np.zeros(3, F)]),
        ("aten._to_copy", {"dtype": "f64"}, [np.zeros(3, F)]),
        ("aten.mse_loss", {"reduction": "median"}, [np.zeros(3, F), np.zeros(3, F)]),
        ("aten.mse_loss", {"reduction": "sum"}, [np.zeros(3, F), np.zeros((1, 3), F)]),
        ("aten.exp", {}, [np.zeros(3, np.int64)]),
    ],
)
def test_refusals_name_the_operator(name: str, attrs: dict, inputs: list[np.ndarray]) -> None:
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        evaluate(name, attrs, *inputs)


def test_the_core_refuses_what_would_corrupt_memory() -> None:
    x = np.zeros((4, 5), F)
    for a, b, out in (
        (x, x, np.zeros((5, 4), F)),
        (x, x, np.zeros((4, 5), np.float64)),
        (x, x.astype(np.float64), np.zeros((4, 5), F)),
        (x, x, np.zeros((8, 5), F)[::2]),
        (np.zeros((2, 4, 5), F), x, np.zeros((4, 5), F)),
    ):
        with pytest.raises(ValueError):
            _core.ew2("add", a, b, out)
    with pytest.raises(ValueError):
        _core.ew2("no such kernel", x, x, x)
    with pytest.raises(ValueError):
        _core.ew1("add", x, x)
