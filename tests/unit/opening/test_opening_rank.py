"""A place is a count of comparisons: a tree of integers (NUMERICS 3.9, OPENING 7.4.3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from disputes import check_changed_operand, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import TreeQuantity, opening_rule
from tallystick.opening.values import WholeSource, value_of

OP = "tallystick.rank"
CASES: list[tuple[tuple[int, ...], int]] = [
    ((1,), 0),
    ((256,), 0),
    ((257,), -1),
    ((3, 300), 1),
    ((300, 3), 0),
    ((2, 3, 4), -2),
    ((), 0),
]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_rank(case: tuple[tuple[int, ...], int], descending: bool) -> None:
    shape, dim = case
    g = Gen(f"opening rank {shape} {descending}")
    for x in (g.mixed(*shape), g.ints(-2, 3, *shape)):
        attrs = {"dim": dim, "descending": descending}
        check_values(OP, attrs, (x,))
        check_games(OP, attrs, (x,))


def test_the_shape_of_the_rule() -> None:
    x = Gen("opening rank shape").mixed(4, 700, 3)
    site, output = sites(OP, {"dim": 1, "descending": True}, (x,))[0]
    for at in (0, 2, 3, 699 * 3 + 1, 2 * 2100 + 5):
        rule = opening_rule(replace(site, element=at))
        assert isinstance(rule, TreeQuantity) and (rule.dtype, rule.count) == ("i64", 700)
        assert value_of(rule, WholeSource((x,))) == output.reshape(-1)[at]


@pytest.mark.parametrize("at", [0, 255, 256, 40_000, 69_999])
def test_one_false_element_of_a_long_row_is_found_within_256_terms(at: int) -> None:
    """The element in question is the greatest; another one is said to be greater."""
    x = Gen("opening rank long").floats(70_000)
    x[35_000] = 100
    outcome = check_changed_operand(
        OP, {"dim": 0, "descending": False}, x,
        operand=0, positions=[at], value=1000.0, element=35_000,
    )  # fmt: skip
    assert (outcome.quantity, outcome.clause) == ("place", "6.5") and outcome.terms <= 256


def test_the_place_of_a_nan_and_of_a_zero() -> None:
    x = np.array([0.0, np.nan, -0.0, np.nan, 1.0], np.float32)
    for descending in (False, True):
        check_values(OP, {"dim": 0, "descending": descending}, (x,))
