"""Distances in units in the last place, against counting them one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tallystick.comparing.values import distances, elements_apart, kept_bits

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype="<f4")


@given(FLOATS, st.integers(0, 40))
def test_a_distance_counts_the_floats_between(start: float, steps: int) -> None:
    value = np.float32(start)
    for _ in range(steps):
        value = np.nextafter(value, np.float32(np.inf))
    assume(not math.isinf(value))
    assert int(distances(f32(start), f32(float(value)))[0]) == steps


@given(FLOATS, FLOATS)
def test_a_distance_is_one_of_a_line(x: float, y: float) -> None:
    there, back = distances(f32(x), f32(y))[0], distances(f32(y), f32(x))[0]
    assert there == back >= 0
    assert (there == 0) == (np.float32(x) == np.float32(y))


@given(st.lists(FLOATS, min_size=1, max_size=20), st.data())
def test_one_flipped_bit_is_found(values: list[float], data: st.DataObject) -> None:
    ours = f32(*values)
    at = data.draw(st.integers(0, len(values) - 1))
    bit = data.draw(st.integers(0, 31))
    theirs = ours.copy()
    theirs.view("<u4")[at] ^= np.uint32(1 << bit)
    found = elements_apart(ours, theirs)
    assert found is not None
    assert (found.index, found.flipped, found.different) == ((at,), bit, 1)
    assert elements_apart(ours, ours.copy()) is None


@given(st.lists(FLOATS, min_size=2, max_size=20), st.data())
def test_the_first_of_several_is_named(values: list[float], data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=2))
    ours = f32(*values)
    theirs = ours.copy()
    for at in places:
        theirs.view("<u4")[at] ^= np.uint32(1)
    found = elements_apart(ours.reshape(1, -1), theirs.reshape(1, -1))
    assert found is not None and found.flipped is None
    assert found.index == (0, min(places)) and found.different == len(places)


@pytest.mark.parametrize(
    ("dtype", "one", "next_one"),
    [("<f8", 0x3FF0000000000000, 0x3FF0000000000001), ("<f2", 0x3C00, 0x3C01)],
)
def test_other_types_have_their_own_places(dtype: str, one: int, next_one: int) -> None:
    kind = np.dtype(dtype)
    words = np.array([one, next_one], dtype=f"<u{kind.itemsize}").view(kind)
    found = elements_apart(words[:1], words[1:])
    assert found is not None and found.ulps == 1


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_distances_of_doubles_are_exact(x: float, y: float) -> None:
    def place(value: float) -> int:
        bits = int(np.float64(value).view(np.uint64))
        return bits if bits < 1 << 63 else (1 << 63) - bits

    found = distances(np.array([x]), np.array([y]))[0]
    assert int(found) == abs(place(x) - place(y))


def test_bfloat16_has_its_own_places() -> None:
    words = np.array([0x3F80, 0x3F81], dtype="<u2").view([("bf16", "<u2")])
    found = elements_apart(words[:1], words[1:])
    assert found is not None and (found.ulps, found.first) == (1, 1.0)


def test_what_is_no_number_has_no_distance() -> None:
    found = elements_apart(f32(1.0), f32(math.nan))
    assert found is not None and found.ulps is None
    whole = elements_apart(np.array([3]), np.array([5]))
    assert whole is not None and (whole.ulps, whole.first, whole.second) == (None, 3, 5)


@given(st.lists(FLOATS, min_size=1), st.sampled_from((10, 7, 0)))
def test_kept_bits_are_what_a_rounding_leaves(values: list[float], kept: int) -> None:
    array = f32(*values)
    array.view("<u4")[:] &= np.uint32(0xFFFFFFFF << (23 - kept) & 0xFFFFFFFF)
    found = kept_bits(array)
    assert found is None or found <= kept
    assert (kept_bits(f32(1.0)), kept_bits(f32(1.5)), kept_bits(f32(0.0))) == (0, 1, None)
