"""The native log and rev against the paper's text, on every instruction set (NUMERICS 14.9)."""

from __future__ import annotations

import numpy as np
import pytest
from reference import published as paper

from tallystick import _core

GRIDS = (32, 31, 29, 26, 20)
T = 1 << 15  # 0.25 * 2^-23


def packed_reference(entries: list[int]) -> np.ndarray:
    filled = entries + [1] * (-len(entries) % 5)
    groups = np.array(filled, np.int64).reshape(-1, 5) if filled else np.zeros((0, 5), np.int64)
    return (groups @ np.array([1, 3, 9, 27, 81])).astype(np.uint8)


def nasty(rng: np.random.Generator, bits: int) -> np.ndarray:
    """Values around boundaries, thresholds, zero, subnormals and the largest numbers."""
    grid = rng.integers(0, 0x7F800000 >> (32 - bits), 64, dtype=np.int64) << (32 - bits)
    at = grid.astype(np.uint32).view(np.float32).astype(np.float64)
    above = (grid + (1 << (32 - bits))).astype(np.uint32).view(np.float32).astype(np.float64)
    above[np.isinf(above)] = 2.0**128
    middle = (at + above) / 2
    near = middle * (1 + rng.choice([-1, 0, 1, 2, -3], 64) * 2.0**-52)
    tau = T * 2.0**-40
    edge = np.float64(rng.choice([1, -1], 64)) * (at + np.exp2(np.floor(np.log2(at + 1))) * tau)
    small = rng.standard_normal(30) * np.exp2(rng.uniform(-1070, -120, 30))
    specials = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022, 1.5 * 2.0**-1023]
    large = [3.4028234663852886e38, 3.4028235677973366e38, 3.40282356779733e38, 1.7e308, -1e300]
    lowest = [2.0**-149, 2.0**-150, -(2.0**-150), 1.0000001 * 2.0**-150, 2.0**-126, 1e-45, 1e-5]
    extreme = np.array(specials + large + lowest)
    sign = rng.choice([1.0, -1.0], 64)
    random = rng.standard_normal(80) * np.exp2(rng.uniform(-140, 127, 80))
    return np.concatenate([near * sign, middle * sign, edge, small, extreme, at * sign, random])


@pytest.mark.sample(3)
@pytest.mark.parametrize("bits", GRIDS)
def test_log_and_rev_are_the_papers(bits: int, is_exhaustive: bool) -> None:
    """On all values with --exhaustive, else on all without grid and every third of the others."""
    rng = np.random.default_rng(bits)
    x = nasty(rng, bits)
    if bits != 32 and not is_exhaustive:
        x = x[::3]
    kinds = ((T, False), (T, True), (0, False), (3 * T // 2, True))
    packed = [packed_reference([paper.log(float(v), bits, *kind) for v in x]) for kind in kinds]
    rounded = np.array([paper.rnd(float(v), bits) for v in x], np.float32)
    given = rng.integers(0, 3, x.size)
    want = np.array(
        [paper.rev(float(v), bits, int(e)) for v, e in zip(x, given, strict=True)], np.float32
    )
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        out, made = np.empty(x.size, np.float32), np.empty(-(-x.size // 5), np.uint8)
        for kind, entries in zip(kinds, packed, strict=True):
            _core.published_log(x, *kind, bits, False, out, made)
            assert np.array_equal(made, entries), isa
            assert same_bits(out, rounded), isa
        followed = np.empty(x.size, np.float32)
        changed = _core.published_follow(
            x, packed_reference([int(e) for e in given]), bits, False, followed
        )
        assert same_bits(followed, want), isa
        assert changed == np.count_nonzero(~(followed == out) & ~np.isnan(followed)) > 0


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    nan = np.isnan(b)
    canonical = a.view(np.uint32)[nan] == 0x7FC00000
    return bool(np.array_equal(a.view(np.uint32)[~nan], b.view(np.uint32)[~nan]) and all(canonical))


@pytest.mark.parametrize("size", (0, 1, 4, 5, 6, 639, 640, 641, 1284))
def test_every_length_and_thread_count(size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size)
    entries = [paper.log(float(v), 32, T, False) for v in x]
    for threads in (1, 3):
        _core.set_threads(threads)
        out, packed = np.empty(size, np.float32), np.empty(-(-size // 5), np.uint8)
        _core.published_log(x, T, False, 32, False, out, packed)
        assert np.array_equal(packed, packed_reference(entries))
        followed = np.empty(size, np.float32)
        assert _core.published_follow(x, packed, 32, False, followed) == 0
        assert same_bits(followed, out)


def test_many_elements_do_not_depend_on_threads_or_instruction_set() -> None:
    x = np.random.default_rng(0).standard_normal(300_003)
    seen = set()
    for isa in _core.supported_isas():
        for threads in (1, 2):
            _core.set_isa(isa)
            _core.set_threads(threads)
            out, packed = np.empty(x.size, np.float32), np.empty(-(-x.size // 5), np.uint8)
            _core.published_log(x, T, False, 28, False, out, packed)
            seen.add((out.tobytes(), packed.tobytes()))
    assert len(seen) == 1


def test_a_rounded_operators_zero_is_positive() -> None:
    x = np.array([-0.0, -1e-60, 1.0])
    out, packed = np.empty(3, np.float32), np.empty(1, np.uint8)
    _core.published_log(x, T, False, 32, True, out, packed)
    assert not np.signbit(out).any()
    _core.published_log(x, T, False, 32, False, out, packed)
    assert np.signbit(out[:2]).all()


def test_wrong_sizes_are_refused() -> None:
    x, out = np.zeros(6), np.empty(6, np.float32)
    with pytest.raises(ValueError, match="five entries"):
        _core.published_log(x, T, False, 32, False, out, np.empty(1, np.uint8))
    with pytest.raises(ValueError, match="bits"):
        _core.published_log(x, T, False, 19, False, out, np.empty(2, np.uint8))
    with pytest.raises(ValueError, match="one size"):
        _core.published_follow(x, np.empty(2, np.uint8), 32, False, np.empty(5, np.float32))


@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("decoupled", (True, False))
def test_adam_is_numpys_in_binary64(isa: str, decoupled: bool) -> None:
    """x of NUMERICS 11.2 and 11.3, from operands of a size that no vector divides."""
    _core.set_isa(isa)
    n, rng = 70_003, np.random.default_rng(4)
    p, g, m = (rng.standard_normal(n).astype(np.float32) for _ in range(3))
    v = rng.random(n).astype(np.float32)
    v[:100] = 0.0
    kept, decay = (1 - 3e-4 * 0.1, 0.0) if decoupled else (1.0, 0.1)
    scale, beta1, beta2, eps, root, step_size = 0.7, 0.9, 0.999, 1e-8, 0.0447, 1.6e-3
    found = [np.empty(n) for _ in range(3)]
    _core.published_adam(
        p, g, m, v, scale, 1 - beta1, beta2, 1 - beta2, eps, root, step_size, kept, decay, *found
    )
    p64, g64, m64, v64 = (x.astype(np.float64) for x in (p, g, m, v))
    g64 = g64 * scale + decay * p64
    m64 += (1 - beta1) * (g64 - m64)
    v64 = beta2 * v64 + (1 - beta2) * g64 * g64
    p64 = kept * p64 - step_size * m64 / (np.sqrt(v64) / root + eps)
    for x, y in zip(found, (p64, m64, v64), strict=True):
        assert np.allclose(x, y, rtol=1e-14, atol=1e-15)


def test_adam_refuses_outputs_that_are_operands() -> None:
    p = np.zeros(4)
    narrow = [np.zeros(4, np.float32) for _ in range(4)]
    with pytest.raises(ValueError, match="one size"):
        _core.published_adam(*narrow, *[0.5] * 9, p, np.zeros(4), np.zeros(5))
    with pytest.raises(ValueError, match="overlaps"):
        _core.published_adam(*narrow, *[0.5] * 9, p, p, np.zeros(4))
    with pytest.raises(ValueError, match="overlaps"):
        own = [p.view(np.float32)[:4], *narrow[1:]]
        _core.published_adam(*own, *[0.5] * 9, p, np.zeros(4), np.zeros(4))
