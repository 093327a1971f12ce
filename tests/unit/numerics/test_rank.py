"""tallystick.rank (NUMERICS 3.9): order, ties, zeros, NaN, integers, axes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from plain import evaluate as into_garbage
from plain import same
from reference.data import Gen
from reference.ops import REFERENCE

from tallystick import evaluate
from tallystick.errors import UsageError

F32, OP = np.float32, "tallystick.rank"


def rank(x: np.ndarray, dim: int = 0, descending: bool = False) -> np.ndarray:
    got = evaluate(OP, x, dim=dim, descending=descending)
    assert isinstance(got, np.ndarray)
    return got


def test_equal_elements_keep_their_order_both_ways() -> None:
    x = np.array([2, 1, 2, 3, 1], F32)
    assert rank(x).tolist() == [2, 0, 3, 4, 1]
    assert rank(x, descending=True).tolist() == [1, 3, 2, 0, 4]


def test_zeros_are_equal_and_nans_are_equal_and_above_all() -> None:
    odd = np.array([0xFFC00001, 0x7FC00000], np.uint32).view(F32)
    x = np.array([odd[0], np.inf, 0.0, -0.0, odd[1], -1e-45, 1e-45], F32)
    assert rank(x).tolist() == [5, 4, 1, 2, 6, 0, 3]
    assert rank(x, descending=True).tolist() == [0, 2, 4, 5, 1, 6, 3]


@pytest.mark.parametrize("descending", [False, True])
def test_integers_at_their_ends(descending: bool) -> None:
    """They are compared as integers: no rounding, and no overflow where the order turns round."""
    x = np.array([2**63 - 1, -(2**63), 2**53 + 1, 2**53, -1, 0, -(2**63)])
    up = [6, 0, 5, 4, 2, 3, 1]
    down = [0, 5, 1, 2, 4, 3, 6]
    assert rank(x, descending=descending).tolist() == (down if descending else up)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (0, 4), (1, 5), (4, 3, 5)])
def test_every_axis_of_every_shape(shape: tuple[int, ...]) -> None:
    g = Gen(f"rank {shape}")
    for x in (g.mixed(*shape), g.ints(0, 3, *shape)):
        for dim in range(-max(len(shape), 1), max(len(shape), 1)):
            for descending in (False, True):
                attrs = {"dim": dim, "descending": descending}
                same(rank(x, dim, descending), REFERENCE[OP](attrs, [x])[0])


@pytest.mark.parametrize("values", [2, 1000, 2**62])
@pytest.mark.parametrize("descending", [False, True])
def test_places_of_a_long_row(values: int, descending: bool) -> None:
    """Against Python's own stable sort, whose `reverse` keeps equal elements in order."""
    x = np.random.default_rng(values % 97).integers(0, values, 70_001)
    for row in (x, x.astype(F32)):
        listed = row.tolist()
        order = sorted(range(len(listed)), key=listed.__getitem__, reverse=descending)
        places = rank(row, descending=descending)
        assert places[order].tolist() == list(range(len(listed)))


def test_strides_are_no_part_of_the_meaning() -> None:
    x = Gen("rank strides").mixed(6, 9)
    (turned,) = into_garbage(OP, {"dim": 0, "descending": False}, x.T)
    same(turned, rank(np.ascontiguousarray(x.T)))
    (cut,) = into_garbage(OP, {"dim": 1, "descending": True}, x[::2, ::-1])
    same(cut, rank(np.ascontiguousarray(x[::2, ::-1]), 1, True))


@pytest.mark.parametrize(
    ("operands", "attrs", "says"),
    [
        ((np.ones(3, bool),), {"dim": 0}, "f32, i64"),
        ((np.ones(3, np.float64),), {"dim": 0}, "f32, i64"),
        ((np.ones(3, F32),), {"dim": 1}, "axis 1"),
        ((np.ones(3, F32),), {}, "dim"),
    ],
)
def test_misuse_is_refused(operands: tuple, attrs: dict, says: str) -> None:
    with pytest.raises(UsageError, match=rf"tallystick\.rank.*{says}"):
        evaluate(OP, *operands, **attrs)
