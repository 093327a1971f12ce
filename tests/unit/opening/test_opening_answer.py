"""Noise is one formula, and an occurrence count a tree of integers (OPENING 7.4.4, 7.10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand
from harness import check_games, check_values
from reference.data import Gen
from reference.rand import gumbel_of, philox

from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import RefusedOperandsError, Site, opening_rule
from tallystick.opening.values import WholeSource, value_of
from tallystick.protocol.element import same_bits

NOISE, COUNT = "tallystick.gumbel", "tallystick.occurrences"
KEY = np.array([1234567890123, 17])


@pytest.mark.parametrize("classes", [1, 4, 5, 67])
def test_noise(classes: int) -> None:
    place = np.array([0, 2**32 - 1, 9])
    attrs = {"classes": classes, "draw": 3}
    check_values(NOISE, attrs, (KEY, place))
    for verdict in check_games(NOISE, attrs, (KEY, place), most=8):
        assert (verdict.clause, verdict.terms) == ("6.5", 1)


def _noise(key: Any, place: int, column: int, classes: int) -> Any:
    types = (TensorType("i64", (2,)), TensorType("i64", (3,)))
    out = TensorType("f32", (3, classes))
    site = Site(NOISE, {"classes": classes, "draw": 9}, types, (out,), 0, classes + column)
    return value_of(opening_rule(site), WholeSource([np.array(key), np.array([0, place, 0])]))


@pytest.mark.parametrize("place", [1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("column", [0, 5, 10**9])
def test_elements_of_blocks_far_away(place: int, column: int) -> None:
    """The block number fills both counter words."""
    classes, seed = 2**31 + 3, (5 << 40) + 3
    block = place * (2**29 + 1) + column // 4
    words = philox((block % 2**32, block >> 32, 9, 21), (seed % 2**32, seed >> 32))
    got = _noise([seed, 21], place, column, classes)
    assert same_bits(got, gumbel_of(words[column % 4])[()])


@pytest.mark.parametrize(
    ("key", "place", "what"),
    [((3, 0), -1, "place"), ((3, 0), 2**32, "place"), ((-1, 0), 4, "key"), ((3, 2**32), 4, "key"),
     ((-1, 0), -1, "place")],
)  # fmt: skip
def test_a_place_is_refused_before_the_key(key: tuple[int, int], place: int, what: str) -> None:
    with pytest.raises(RefusedOperandsError, match=what):
        _noise(key, place, 2, 7)


@pytest.mark.parametrize("length", [1, 255, 256, 257, 600])
def test_occurrences(length: int) -> None:
    g = Gen(f"opening occurrences {length}")
    operands = (g.ints(-1, 4, length), g.ints(-9, length, 2), g.ints(0, length + 9, 2))
    check_values(COUNT, {"classes": 3}, operands)
    check_games(COUNT, {"classes": 3}, operands)


@pytest.mark.parametrize("at", [0, 255, 256, 40_000, 69_999])
def test_a_token_said_to_be_absent_is_found_within_256_terms(at: int) -> None:
    """Row 1, class 7: one token of a long text is said to be another one."""
    tokens = Gen("opening long text").ints(0, 7, 70_000)
    tokens[at] = 7
    outcome = check_changed_operand(
        COUNT, {"classes": 8}, tokens, np.array([5, 0]), np.array([9, 69_999]),
        operand=0, positions=[at], value=6, element=8 + 7,
    )  # fmt: skip
    assert (outcome.quantity, outcome.clause) == ("count", "6.5") and outcome.terms <= 256
