"""Opening rules of random tensors (NUMERICS 8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import check_games, check_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.exact import elementary
from reference.floats import bits32, fma
from reference.rand import philox

from tallystick import _core
from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import RefusedOperandsError, Site, opening_rule
from tallystick.opening.values import WholeSource, value_of
from tallystick.protocol.element import same_bits

F32 = np.float32
WORD = 1 << 32
few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
keys = st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, WORD - 1)).map(np.array)
draws = st.integers(0, WORD - 1)
shapes = st.lists(st.sampled_from((1, 2, 3, 5, 7)), max_size=3).map(tuple)
UNIFORM, NORMAL, DROPOUT = (f"tallystick.{n}" for n in ("uniform", "normal", "dropout_mask"))


@few
@given(keys, draws, shapes, st.floats(0, 1, exclude_max=True))
def test_masks(rng: np.ndarray, draw: int, shape: tuple[int, ...], p: float) -> None:
    check_values(DROPOUT, {"draw": draw, "p": p, "shape": shape}, (rng,))


@few
@given(keys, draws, shapes, st.floats(width=64), st.floats(width=64))
def test_floats(
    rng: np.ndarray, draw: int, shape: tuple[int, ...], first: float, second: float
) -> None:
    for low, high in ((first, second), (-0.02, 0.02), (0.0, 1.0)):
        check_values(UNIFORM, {"draw": draw, "shape": shape, "low": low, "high": high}, (rng,))
        check_values(NORMAL, {"draw": draw, "shape": shape, "mean": low, "std": high}, (rng,))


def test_games() -> None:
    rng, base = np.array([1234567890123, 17]), {"draw": 3, "shape": (5, 7)}
    for op, attrs in (
        (DROPOUT, {"p": 0.1}),
        (UNIFORM, {"low": -1.0, "high": 1.0}),
        (NORMAL, {"mean": 0.0, "std": 0.02}),
    ):
        for verdict in check_games(op, {**base, **attrs}, (rng,), most=8):
            assert (verdict.clause, verdict.terms) == ("6.5", 1)


def _value(op: str, dtype: str, rng: np.ndarray, element: int, **attrs: Any) -> Any:
    shape = (1 << 20, 1 << 20)
    site = Site(
        op,
        {"draw": 9, "shape": shape, **attrs},
        (TensorType("i64", (2,)),),
        (TensorType(dtype, shape),),
        0,
        element,
    )
    return value_of(opening_rule(site), WholeSource([rng]))


# About the last element of a counter's first word, for four and for two elements a block.
FAR = [0, 7, WORD - 1, WORD, 2 * WORD + 1, 4 * WORD - 1, 4 * WORD, 4 * WORD + 6, (1 << 40) - 1]


@pytest.mark.parametrize("element", FAR)
def test_elements_far_away(element: int) -> None:
    """8.1: the block number fills two counter words. Words by the core, normals by Python."""
    rng = np.array([(5 << 40) + 3, 21])
    words128 = np.empty(128, np.uint32)
    _core.philox_words(int(rng[0]), int(rng[1]), 9, element // 128 * 128, words128)
    word = int(words128[element % 128])
    for threshold in (word, word + 1):  # 2^32 is one too many
        kept = _value(DROPOUT, "bool", rng, element, p=min(threshold, WORD - 1) / WORD)
        assert bool(kept) == (word >= min(threshold, WORD - 1))
    u = F32(word >> 8) * F32(2.0**-24)
    assert same_bits(_value(UNIFORM, "f32", rng, element, low=0.0, high=1.0), u)

    block, pair = divmod(element, 2)
    key = (int(rng[0]) % WORD, int(rng[0]) // WORD)
    words = philox((block % WORD, block // WORD, 9, 21), key)[2 * pair : 2 * pair + 2]
    u1, u2 = (np.array([w >> 8], np.int64).astype(F32) for w in words)
    u1, u2 = (u1 + F32(1)) * F32(2.0**-24), u2 * F32(2.0**-24)
    z = np.sqrt(F32(-2) * elementary("log", u1)) * elementary("cos", u2 * bits32(0x40C90FDB))
    want = fma(z, F32(0.5), F32(2))[0]
    assert same_bits(_value(NORMAL, "f32", rng, element, mean=2.0, std=0.5), want)


@pytest.mark.parametrize("rng", [(-1, 0), (3, -1), (3, WORD)])
def test_a_key_out_of_range_is_refused(rng: tuple[int, int]) -> None:
    with pytest.raises(RefusedOperandsError, match="out of range"):
        _value(DROPOUT, "bool", np.array(rng), 5, p=0.5)
