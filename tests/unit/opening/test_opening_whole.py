"""Elements of integer operators are local (NUMERICS 10.10, OPENING 5.6, 7.1.1)."""

from __future__ import annotations

import numpy as np
import pytest
from disputes import sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import RefusedOperandsError, opening_rule
from tallystick.opening.values import WholeSource, value_of

OP = "aten.floor_divide"


@pytest.mark.parametrize("shapes", [((7,), (7,)), ((3, 1), (4,)), ((), (2, 3))])
def test_floor_divide(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    g = Gen(f"opening whole {shapes}")
    for a, b in ((g.any_ints(*shapes[0]), g.any_ints(*shapes[1]) | 1),
                 (g.ints(-9, 9, *shapes[0]), g.ints(1, 5, *shapes[1]) * -1)):  # fmt: skip
        check_values(OP, {}, (a, b))
        check_games(OP, {}, (a, b))


def test_a_divisor_zero_is_refused() -> None:
    """Its kernel stops there: no honest run has it (NUMERICS 1.13, PROTOCOL 6.5)."""
    a, b = np.array([5, 6]), np.array([2, 3])
    site, _ = sites(OP, {}, (a, b))[0]
    with pytest.raises(RefusedOperandsError, match="divisor is 0"):
        value_of(opening_rule(site), WholeSource((a, b * 0)))
