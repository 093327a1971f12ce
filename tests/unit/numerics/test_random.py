"""Philox, dropout, uniform and normal numbers (NUMERICS 8), on every path."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from plain import check, evaluate
from reference.floats import canonical, fma
from reference.rand import philox

from tallystick import _core
from tallystick.errors import UsageError

F = np.float32
RNG = np.array([0x123456789ABCDEF, 41], np.int64)


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], want: str) -> None:
    """Random123's kat_vectors, for the scalar block, the plain reference and the vector form."""
    expected = [int(w, 16) for w in want.split()]
    assert list(philox(counter, key)) == expected
    seed = key[0] | key[1] << 32
    element = (counter[0] | counter[1] << 32) * 4
    for isa in plain.ISAS:
        _core.set_isa(isa)
        out = np.empty(4, np.uint32)
        _core.philox_block(np.array(counter, np.uint32), np.array(key, np.uint32), out)
        assert out.tolist() == expected
        first = element - element % 128
        if first + 128 < 2**64:
            many = np.empty(128, np.uint32)
            _core.philox_words(seed, counter[3], counter[2], first, many)
            at = element - first
            assert many[at : at + 4].tolist() == expected


@pytest.mark.parametrize("first", [0, 128, 4 * 2**32 - 128, 4 * 2**33])
def test_words_of_elements(first: int) -> None:
    """NUMERICS 8.1: the block number carries into the second counter word."""
    want = plain.words(2**62 + 5, 3, 7, first, 133)
    for isa in plain.ISAS:
        _core.set_isa(isa)
        got = np.empty(133, np.uint32)
        _core.philox_words(2**62 + 5, 3, 7, first, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (63,), (65,), (3, 50), (0,)])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1 - 2**-53, 2**-33, 3 * 2**-33])
def test_dropout_mask(shape: tuple[int, ...], p: float) -> None:
    """NUMERICS 8.4."""
    threshold = round(p * 2**32)
    count = int(np.prod(shape))
    kept = plain.words(int(RNG[0]), int(RNG[1]), 5, 0, count).astype(np.uint64) >= threshold
    attrs = {"draw": 5, "p": p, "shape": shape}
    check("tallystick.dropout_mask", attrs, [RNG], kept.reshape(shape))


def test_large_masks_do_not_depend_on_threads() -> None:
    attrs = {"draw": 0, "p": 0.25, "shape": (301, 333)}
    _core.set_isa("scalar")
    _core.set_threads(1)
    (want,) = evaluate("tallystick.dropout_mask", attrs, RNG)
    tail = plain.words(int(RNG[0]), int(RNG[1]), 0, want.size - 5, 5) >= 2**30
    np.testing.assert_array_equal(want.reshape(-1)[-5:], tail)
    assert abs(want.mean() - 0.75) < 0.01
    check("tallystick.dropout_mask", attrs, [RNG], want)


def test_draws_and_steps_differ() -> None:
    """Every part of the key reaches the generator."""
    seen = set()
    for seed, step, draw in ((1, 0, 0), (2**40, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)):
        attrs = {"draw": draw, "p": 0.5, "shape": (64,)}
        (mask,) = evaluate("tallystick.dropout_mask", attrs, np.array([seed, step]))
        seen.add(mask.tobytes())
    assert len(seen) == 5


@pytest.mark.parametrize("size", [1, 31, 64, 1000])
def test_mask_scale(size: int) -> None:
    """NUMERICS 8.5: a dropped element is +0 whatever it was."""
    rng = np.random.default_rng(size)
    x = plain.normal(rng, size)
    x[0] = np.nan
    mask = rng.random(size) < 0.5
    scale = 1.0 / (1.0 - 0.1)
    with np.errstate(all="ignore"):
        want = canonical(np.where(mask, x * F(scale), F(0)))
    check("tallystick.mask_scale", {"scale": scale}, [x, mask], want)
    two = np.stack([x, x], 1)[:, 0]
    check("tallystick.mask_scale", {"scale": scale}, [two, mask], want)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.1, 0.3), (1.0, 1.0), (2.0, -1e30)])
@pytest.mark.parametrize("count", [1, 66, 500])
def test_uniform(low: float, high: float, count: int) -> None:
    """NUMERICS 8.6."""
    w = plain.words(int(RNG[0]), int(RNG[1]), 2, 0, count)
    u = (w >> np.uint32(8)).astype(F) * F(2.0**-24)
    want = fma(u, F(high) - F(low), np.broadcast_to(F(low), u.shape))
    attrs = {"draw": 2, "shape": (count,), "low": low, "high": high}
    check("tallystick.uniform", attrs, [RNG], want)


def test_normal() -> None:
    """NUMERICS 8.7, with log and cos rounded from longer arithmetic."""
    count = 2001
    w = plain.words(int(RNG[0]), int(RNG[1]), 9, 0, 2 * count).reshape(-1, 2)
    top = (w >> np.uint32(8)).astype(F)
    u1, u2 = (top[:, 0] + F(1)) * F(2.0**-24), top[:, 1] * F(2.0**-24)
    angle = u2 * np.array(0x40C90FDB, np.uint32).view(F)
    log = np.log(u1.astype(np.longdouble)).astype(F)
    z = np.sqrt(F(-2) * log) * np.cos(angle.astype(np.longdouble)).astype(F)
    want = fma(z, np.broadcast_to(F(0.02), z.shape), np.broadcast_to(F(0.5), z.shape))
    attrs = {"draw": 9, "shape": (count,), "mean": 0.5, "std": 0.02}
    check("tallystick.normal", attrs, [RNG], want)
    assert abs(want.mean() - 0.5) < 0.002 and abs(want.std() - 0.02) < 0.001


def test_refusals() -> None:
    good = {"draw": 0, "p": 0.5, "shape": (4,)}
    for attrs in ({**good, "p": 1.0}, {**good, "p": -0.1}, {**good, "draw": -1},
                  {**good, "draw": 2**32}, {**good, "shape": (-1,)}):  # fmt: skip
        with pytest.raises(UsageError, match="dropout_mask"):
            evaluate("tallystick.dropout_mask", attrs, RNG)
    for key in ([-1, 0], [0, -1], [0, 2**32]):
        with pytest.raises(UsageError, match="dropout_mask"):
            evaluate("tallystick.dropout_mask", good, np.array(key))
    with pytest.raises(UsageError, match="i64"):
        evaluate("tallystick.dropout_mask", good, np.zeros(3, np.int64))
    with pytest.raises(UsageError, match="mask"):
        evaluate("tallystick.mask_scale", {"scale": 1.0}, np.zeros(3, F), np.zeros(2, bool))
