"""Elementary functions (NUMERICS 5): special values, rounding against mpmath, array handling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick import _core

ISAS = _core.supported_isas()
NAMES = _core.elementary_names()
NAN = 0x7FC00000
INF = math.inf

# f(+0), f(-0), f(+inf), f(-inf): NUMERICS 5.3
AT_ENDS = {
    "exp": (1.0, 1.0, INF, 0.0),
    "exp2": (1.0, 1.0, INF, 0.0),
    "expm1": (0.0, -0.0, INF, -1.0),
    "tanh": (0.0, -0.0, 1.0, -1.0),
    "erf": (0.0, -0.0, 1.0, -1.0),
    "sigmoid": (0.5, 0.5, 1.0, 0.0),
    "sin": (0.0, -0.0, math.nan, math.nan),
    "cos": (1.0, 1.0, math.nan, math.nan),
    "rsqrt": (INF, -INF, 0.0, math.nan),
    "log": (-INF, -INF, INF, math.nan),
    "log2": (-INF, -INF, INF, math.nan),
    "log1p": (0.0, -0.0, INF, math.nan),
}

EXACT: dict[str, Callable[[mp.mpf], mp.mpf]] = {
    "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x,
    "expm1": mp.expm1,
    "tanh": mp.tanh,
    "erf": mp.erf,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "sin": mp.sin,
    "cos": mp.cos,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log1p": mp.log1p,
}


def bits(x: np.ndarray | float) -> np.ndarray:
    return np.atleast_1d(np.asarray(x, np.float32)).view(np.uint32)


def evaluate(name: str, x: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(x, np.float32)
    out = np.full_like(x, 7.0)
    _core.elementary(name, x, out)
    return out


def power(x: float, y: float) -> int:
    out = np.empty(1, np.float32)
    _core.pow(np.array([x], np.float32), np.array([y], np.float32), out)
    return int(bits(out)[0])


def round_binary32(v: mp.mpf) -> int:
    """RN32 of a nonzero finite mpf in integers, ties to even; the pattern (NUMERICS 1.2)."""
    sign, man, exp, size = v._mpf_
    quantum = max(exp + size - 24, -149)  # exponent of the last kept bit
    drop = quantum - exp
    if drop <= 0:
        kept = man << -drop
    else:
        kept, rest, half = man >> drop, man & ((1 << drop) - 1), 1 << (drop - 1)
        kept += rest > half or (rest == half and kept & 1)
    # A carry out of the mantissa runs into the exponent field, as it should.
    field = 0 if kept < 1 << 23 else quantum + 149
    pattern = kept + (field << 23)
    return (sign << 31) | min(pattern, 0x7F800000)


def clamp_huge(name: str, x: float) -> float:
    """mpmath cannot hold exp(1e38); beyond +-200 these results are the same as at +-200."""
    return (
        max(-200.0, min(200.0, x))
        if name in ("exp", "exp2", "expm1", "tanh", "erf", "sigmoid")
        else x
    )


def in_domain(name: str, x: float) -> bool:
    if name in ("log", "log2", "rsqrt"):
        return x > 0
    return x > -1 if name == "log1p" else True


def test_reference_rounding() -> None:
    for pattern in (1, 2, 0x7FFFFF, 0x800000, 0x3F800001, 0x7F7FFFFF, 0x80000001, 0xC0490FDB):
        v = mp.mpf(float(np.array([pattern], np.uint32).view(np.float32)[0]))
        assert round_binary32(v) == pattern
    assert round_binary32(mp.mpf(2) ** -150) == 0
    assert round_binary32(mp.mpf(3) * mp.mpf(2) ** -151) == 1
    assert round_binary32(mp.mpf(2) ** 128) == 0x7F800000
    assert round_binary32(1 + mp.mpf(2) ** -24) == 0x3F800000
    assert round_binary32(1 + mp.mpf(3) * mp.mpf(2) ** -24) == 0x3F800002


def test_names() -> None:
    assert set(NAMES) == set(AT_ENDS) == set(EXACT)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str, isa: str) -> None:
    _core.set_isa(isa)
    got = bits(evaluate(name, np.array([0.0, -0.0, np.inf, -np.inf])))
    want = [NAN if math.isnan(v) else int(bits(v)[0]) for v in AT_ENDS[name]]
    assert [hex(v) for v in got] == [hex(v) for v in want]
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert (bits(evaluate(name, nans)) == NAN).all()


@pytest.mark.parametrize("name", ["log", "log2", "rsqrt", "log1p"])
def test_outside_the_domain(name: str) -> None:
    pole = -1.0 if name == "log1p" else 0.0
    below = np.nextafter(np.float32(pole), np.float32(-2))
    assert (bits(evaluate(name, np.array([below, -2.0, -3e38]))) == NAN).all()


def test_exact_values() -> None:
    assert bits(evaluate("log", np.array([1.0])))[0] == 0
    assert bits(evaluate("log2", np.array([1.0])))[0] == 0
    assert bits(evaluate("log1p", np.array([-1.0])))[0] == 0xFF800000
    k = np.arange(-149, 128, dtype=np.float32)
    powers = np.ldexp(np.float32(1), k.astype(int)).astype(np.float32)
    assert (evaluate("exp2", k) == powers).all()
    assert (evaluate("log2", powers) == k).all()
    assert (bits(evaluate("exp2", np.array([-150.0, 128.0]))) == [0, 0x7F800000]).all()
    even = np.arange(-148, 128, 2)
    got = evaluate("rsqrt", np.ldexp(np.float32(1), even).astype(np.float32))
    assert (got == np.ldexp(np.float32(1), -even // 2)).all()


FLOATS = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda u: np.array([u], np.uint32).view(np.float32)[0]),
    st.floats(-100, 100, width=32).map(np.float32),
    st.floats(-1, 1, width=32).map(np.float32),
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(x=FLOATS)
def test_rounding_against_mpmath(name: str, x: np.float32) -> None:
    value = float(x)
    if not math.isfinite(value) or value == 0 or not in_domain(name, value):
        return
    with mp.workprec(500):
        exact = EXACT[name](mp.mpf(clamp_huge(name, value)))
        want = round_binary32(exact) if exact else 0
    for isa in ISAS:
        _core.set_isa(isa)
        assert hex(bits(evaluate(name, np.array([x])))[0]) == hex(want), (isa, value.hex())


@settings(max_examples=200, deadline=None)
@given(x=FLOATS, y=FLOATS)
def test_pow_against_mpmath(x: np.float32, y: np.float32) -> None:
    a, b = abs(float(x)), float(y)
    if not (math.isfinite(a) and math.isfinite(b)) or a in (0, 1) or b == 0:
        return
    with mp.workprec(500):
        t = mp.mpf(b) * mp.log(mp.mpf(a)) / mp.log(2)
        want = 0 if t < -200 else 0x7F800000 if t > 200 else round_binary32(mp.mpf(a) ** mp.mpf(b))
    assert hex(power(a, b)) == hex(want), (a.hex(), b.hex())


def test_pow_special_values() -> None:
    """NUMERICS 5.8, the cases of C23 F.10.4.4."""
    one, inf, minus = 0x3F800000, 0x7F800000, 0x80000000
    for x in (math.nan, INF, -INF, 0.0, -0.0, 1.5, -1.5):
        assert power(x, 0.0) == power(x, -0.0) == one
        assert power(1.0, x) == one
    for x in (2.0, -INF, math.nan):
        assert power(math.nan, x) == power(x, math.nan) == NAN
    assert power(-1.0, INF) == power(-1.0, -INF) == one
    assert power(-1.0, 3.0) == one | minus
    assert power(-1.0, 1e30) == one
    assert [power(v, INF) for v in (0.5, -0.5, 0.0, 2.0, -2.0)] == [0, 0, 0, inf, inf]
    assert [power(v, -INF) for v in (0.5, -0.5, 0.0, 2.0, -2.0)] == [inf, inf, inf, 0, 0]
    assert [power(0.0, y) for y in (3.0, 2.0, 0.5, -3.0, -2.0, -0.5)] == [0, 0, 0, inf, inf, inf]
    assert [power(-0.0, y) for y in (3.0, 2.0, 0.5)] == [minus, 0, 0]
    assert [power(-0.0, y) for y in (-3.0, -2.0, -0.5)] == [inf | minus, inf, inf]
    assert [power(INF, y) for y in (3.0, 0.5, -3.0)] == [inf, inf, 0]
    assert [power(-INF, y) for y in (3.0, 2.0, 0.5)] == [inf | minus, inf, inf]
    assert [power(-INF, y) for y in (-3.0, -2.0, -0.5)] == [minus, 0, 0]
    assert power(-2.0, 0.5) == power(-2.0, -1.5) == NAN
    assert power(-2.0, 3.0) == int(bits(-8.0)[0])


def test_pow_boundaries() -> None:
    """Results that lie exactly between two binary32 numbers round to even."""
    x = float(2**12 + 1)  # its square has 25 bits: 2^24 + 2^13 + 1
    assert power(x, 2.0) == int(bits(float(2**24 + 2**13))[0])
    assert power(2.0, -150.0) == 0
    assert power(3.0, -1.0) == int(bits(np.float32(1) / np.float32(3))[0])
    assert power(2.0**-50, 3.0) == 0
    assert power(float(np.float32(2) ** -149), 0.5) == int(bits(math.sqrt(2.0**-149))[0])


@pytest.mark.parametrize("isa", ISAS)
def test_array_lengths_threads_and_aliasing(isa: str) -> None:
    _core.set_isa(isa)
    x = np.random.default_rng(5).normal(size=20_011).astype(np.float32) * 3
    for name, threads in itertools.product(("exp", "erf", "sin"), (1, 3)):
        _core.set_threads(threads)
        want = evaluate(name, x)
        for n in (*range(0, 36), 8191, 20_000):
            assert (bits(evaluate(name, x[:n])) == bits(want[:n])).all() if n else True
        same = x.copy()
        _core.elementary(name, same, same)
        assert (bits(same) == bits(want)).all()
    y = np.array([2.5], np.float32)
    a, b = np.empty_like(x), np.empty_like(x)
    _core.pow(np.abs(x), y, a)
    _core.pow(np.abs(x), np.full_like(x, 2.5), b)
    assert (bits(a) == bits(b)).all()


def test_nothing_is_written_past_the_end() -> None:
    buffer = np.full(64, 3.0, np.float32)
    _core.elementary("exp", np.zeros(17, np.float32), buffer[:17])
    assert (buffer[:17] == 1).all() and (buffer[17:] == 3).all()


def test_misuse_is_refused() -> None:
    x, out = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="no elementary function"):
        _core.elementary("gamma", x, out)
    with pytest.raises(ValueError, match="same number"):
        _core.elementary("exp", x, out[:3].copy())
    with pytest.raises(ValueError, match="same number"):
        _core.pow(x, np.zeros(3, np.float32), out)
    with pytest.raises(TypeError):
        _core.elementary("exp", x.astype(np.float64), out)
    with pytest.raises(TypeError):
        _core.elementary("exp", np.zeros(8, np.float32)[::2], out)
