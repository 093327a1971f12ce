"""tallystick.gumbel (NUMERICS 8.8): rows, words at the ends, refusals, every path."""

from __future__ import annotations

import math

import numpy as np
import plain
import pytest
from plain import check
from reference.ops import REFERENCE
from reference.rand import gumbel_of, philox
from vectors.kernel_cases_answer import WORDS_AT

from tallystick import _core, evaluate
from tallystick.errors import RefusedOperandsError, UsageError

OP = "tallystick.gumbel"
KEY = np.array([0x123456789ABCDEF, 41], np.int64)
ZERO = np.zeros(2, np.int64)
LEAST, MOST = -math.log(24 * math.log(2)), 33 * math.log(2)


def noise(key: np.ndarray, place: list[int], classes: int, draw: int = 0) -> np.ndarray:
    got = evaluate(OP, key, np.array(place, np.int64), classes=classes, draw=draw)
    assert isinstance(got, np.ndarray)
    return got


@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5, 31, 129, 261])
@pytest.mark.parametrize("draw", [0, 2**32 - 1])
def test_every_path_gives_the_clause(classes: int, draw: int) -> None:
    place = np.array([0, 1, 2**32 - 1, 7], np.int64)
    attrs = {"classes": classes, "draw": draw}
    check(OP, attrs, [KEY, place], REFERENCE[OP](attrs, [KEY, place])[0])


@pytest.mark.parametrize("classes", [7, 4096, 4097, 9000, 49_152])
def test_a_row_is_the_same_alone_and_among_others(classes: int) -> None:
    """Stretches of a row go to several threads; each begins with a block."""
    place = [5, 2**31, 0, 6]
    many = noise(KEY, place, classes)
    for row, one in zip(many, place, strict=True):
        np.testing.assert_array_equal(row, noise(KEY, [one], classes)[0])


def test_instruction_sets_agree_on_long_rows() -> None:
    place, rows = np.array([3, 2**32 - 1], np.int64), []
    for isa in plain.ISAS:
        _core.set_isa(isa)
        out = np.empty((2, 49_153), np.float32)
        _core.gumbel(2**63 - 1, 2**32 - 1, 9, place, out.shape[1], out)
        rows.append(out)
    for out in rows[1:]:
        np.testing.assert_array_equal(out.view(np.uint32), rows[0].view(np.uint32))


def test_the_words_at_the_ends() -> None:
    """Their blocks are in the golden vectors; the noise is finite, and as far out as the clause
    says."""
    for word, block in WORDS_AT.items():
        words = philox((block, 0, 0, 0), (0, 0))
        assert word in words
        got = noise(ZERO, [block], 4)[0, words.index(word)]
        assert got == gumbel_of(word) and np.isfinite(got)
    ends = {word: float(gumbel_of(word)) for word in WORDS_AT}
    assert ends[0] == max(ends.values()) and ends[0] == pytest.approx(MOST, rel=1e-6)
    assert ends[2**32 - 1] == ends[2**32 - 187] == min(ends.values())
    assert ends[2**32 - 1] == pytest.approx(LEAST, rel=1e-6)
    assert ends[2**31] == pytest.approx(-math.log(math.log(2)), rel=1e-6)


def test_the_noise_never_rises_with_the_word() -> None:
    """Over words of every size and about each power of two; so what lies between two finite values
    is finite."""
    about = [2**k + d for k in range(1, 33) for d in (-300, -129, -128, -2, -1, 0, 1, 2, 129)]
    spread = np.random.default_rng(3).integers(0, 2**32, 3000).tolist()
    words = sorted({w for w in (0, 1, *about, *spread) if 0 <= w < 2**32})
    values = np.array([gumbel_of(w) for w in words])
    assert np.isfinite(values).all() and (np.diff(values) <= 0).all()


def test_a_long_sample_is_finite_and_has_the_moments_of_the_distribution() -> None:
    """2^24 elements. The mean of Gumbel's distribution is Euler's constant, its variance pi²/6."""
    out = noise(KEY, list(range(256)), 1 << 16)
    assert out.size == 1 << 24 and np.isfinite(out).all()
    assert out.min() >= LEAST - 1e-6 and out.max() <= MOST + 1e-5
    deviation = math.pi / math.sqrt(6)
    assert out.mean(dtype=np.float64) == pytest.approx(np.euler_gamma, abs=5 * deviation / 4096)
    # The fourth central moment is 27/5 of the variance's square.
    spread = 5 * math.sqrt(4.4) * deviation**2 / 4096
    assert out.var(dtype=np.float64) == pytest.approx(deviation**2, abs=spread)


@pytest.mark.parametrize("place", [-1, 2**32, -(2**63), 2**63 - 1])
def test_a_place_out_of_range_is_refused(place: int) -> None:
    with pytest.raises(RefusedOperandsError, match="place"):
        noise(KEY, [0, place], 5)


@pytest.mark.parametrize("key", [(-1, 0), (0, -1), (0, 2**32)])
def test_a_bad_key_is_refused(key: tuple[int, int]) -> None:
    with pytest.raises(RefusedOperandsError, match="seed"):
        noise(np.array(key), [0], 5)


@pytest.mark.parametrize(
    ("key", "place", "attrs"),
    [
        (KEY, np.zeros((2, 2), np.int64), {"classes": 4}),
        (KEY, np.zeros(2, np.float32), {"classes": 4}),
        (KEY[:1], np.zeros(2, np.int64), {"classes": 4}),
        (KEY, np.zeros(2, np.int64), {"classes": -1}),
        (KEY, np.zeros(2, np.int64), {"classes": 2**32}),
        (KEY, np.zeros(2, np.int64), {"classes": 4, "draw": 2**32}),
        (KEY, np.zeros(2, np.int64), {}),
    ],
)
def test_what_is_no_call(key: np.ndarray, place: np.ndarray, attrs: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"tallystick\.gumbel"):
        evaluate(OP, key, place, **attrs)
