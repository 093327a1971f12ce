"""An element of a cumulative sum is a chain of stretches (NUMERICS 3.8, PROTOCOL 6.2)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from disputes import check_changed_operand, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import LIMIT, Chain, opening_rule
from tallystick.opening.values import WholeSource, value_of

OP = "aten.cumsum"
CASES: list[tuple[tuple[int, ...], int]] = [
    ((1,), 0),
    ((256,), 0),
    ((257,), -1),
    ((3, 300), 1),
    ((300, 3), 0),
    ((2, 3, 4), -2),
]


@pytest.mark.parametrize("maker", ["floats", "wide", "mixed"])
@pytest.mark.parametrize("case", CASES)
def test_cumsum(case: tuple[tuple[int, ...], int], maker: str) -> None:
    shape, dim = case
    x = getattr(Gen(f"opening cumsum {shape} {maker}"), maker)(*shape)
    check_values(OP, {"dim": dim}, (x,))
    check_games(OP, {"dim": dim}, (x,))


def test_the_shape_of_the_rule() -> None:
    """As many links as there are terms, one term a link, so that a stretch is what may be run."""
    x = Gen("opening cumsum shape").floats(4, 700, 3)
    site, output = sites(OP, {"dim": 1}, (x,))[0]
    for at in (0, 2, 3, 699 * 3 + 1, 2 * 2100 + 5):
        rule = opening_rule(replace(site, element=at))
        assert isinstance(rule, Chain) and rule.stretch * rule.weight <= LIMIT
        assert rule.count == at % 2100 // 3 + 1
        assert value_of(rule, WholeSource((x,))) == output.reshape(-1)[at]


def test_a_0_d_tensor_is_its_own_sum() -> None:
    check_values(OP, {"dim": 0}, (np.array(-0.0, np.float32),))


@pytest.mark.parametrize("at", [0, 255, 256, 40_000, 69_999])
def test_one_false_term_of_a_long_row_is_found_within_256_terms(at: int) -> None:
    x = Gen("opening cumsum long").floats(70_000)
    outcome = check_changed_operand(
        OP, {"dim": 0}, x, operand=0, positions=[at], value=1000.0, element=69_999
    )
    assert outcome.terms <= 256
