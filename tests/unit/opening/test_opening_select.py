"""An element of aten.scatter.src is a chain over the sources along dim (NUMERICS 9.3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from disputes import check_changed_operand, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import LIMIT, Chain, RefusedOperandsError, opening_rule
from tallystick.opening.values import WholeSource, chain_states, value_of
from tallystick.protocol.element import same_bits

OP = "aten.scatter.src"
# x's shape, the indices', dim.
CASES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((3,), (1,), 0),
    ((3,), (255,), 0),
    ((3,), (256,), -1),
    ((2, 4), (2, 300), 1),
    ((4, 3), (300, 2), 0),
    ((3, 2, 4), (1, 5, 4), -2),
    ((3, 2), (3, 0), 1),
    ((), (), 0),
]


def operands(
    shape: tuple[int, ...], own: tuple[int, ...], dim: int, maker: str = "mixed"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    g = Gen(f"opening select {shape} {own} {maker}")
    size = shape[dim] if shape else 1
    return getattr(g, maker)(*shape), g.ints(0, size, *own), getattr(g, maker)(*own)


@pytest.mark.parametrize("maker", ["mixed", "any_ints", "bools"])
@pytest.mark.parametrize("case", CASES)
def test_scatter(case: tuple[tuple[int, ...], tuple[int, ...], int], maker: str) -> None:
    given = operands(*case, maker)
    check_values(OP, {"dim": case[2]}, given)
    check_games(OP, {"dim": case[2]}, given)


def test_the_shape_of_the_rule() -> None:
    """One link for x's element and one for each source; none where no index reaches."""
    site, _ = sites(OP, {"dim": 1}, operands((3, 5), (2, 700), 1))[0]
    for element, links in ((0, 701), (9, 701), (10, 1), (14, 1)):
        rule = opening_rule(replace(site, element=element))
        assert isinstance(rule, Chain) and (rule.dtype, rule.count) == ("f32", links)
        assert rule.stretch * rule.weight == LIMIT


def test_states_do_not_depend_on_where_a_prover_stops() -> None:
    given = operands((2,), (900,), 0)
    chain = opening_rule(sites(OP, {"dim": 0}, given)[0][0])
    assert isinstance(chain, Chain)
    whole = WholeSource(given)
    each = chain_states(chain, whole, range(1, 902))
    for links in (1, 2, 255, 256, 257, 512, 900, 901):
        assert same_bits(chain_states(chain, whole, [links])[0], each[links - 1])


@pytest.mark.parametrize("at", [0, 255, 256, 40_000, 69_999])
def test_one_false_source_of_a_long_row_is_found(at: int) -> None:
    """The only source of its element, among 70,000."""
    index = np.zeros(70_000, np.int64)
    index[at] = 1
    source = Gen("opening select long").floats(70_000)
    x = np.ones(2, np.float32)
    outcome = check_changed_operand(
        OP, {"dim": 0}, x, index, source, operand=2, positions=[at], value=1e6, element=1
    )
    assert (outcome.quantity, outcome.clause) == ("out", "6.5") and outcome.terms <= 256


def test_a_false_index_and_a_false_beginning_are_found() -> None:
    x, index = np.ones(2, np.float32), np.zeros(1000, np.int64)
    source = Gen("opening select index").floats(1000)
    hidden = check_changed_operand(
        OP, {"dim": 0}, x, index, source, operand=1, positions=[999], value=1, element=0
    )
    assert hidden.clause == "6.5" and hidden.terms <= 256
    begun = check_changed_operand(
        OP, {"dim": 0}, x, index, source, operand=0, positions=[1], value=50.0, element=1
    )
    assert begun.clause == "6.5" and begun.terms <= 256


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_index_outside_is_refused(bad: int) -> None:
    """Its kernel stops there: no honest run has it (NUMERICS 1.13, PROTOCOL 6.5)."""
    x, index, source = operands((3,), (7,), 0)
    site, _ = sites(OP, {"dim": 0}, (x, index, source))[0]
    index = np.where(np.arange(7) == 4, bad, index)
    with pytest.raises(RefusedOperandsError, match=f"index {bad} is outside"):
        value_of(opening_rule(site), WholeSource((x, index, source)))
