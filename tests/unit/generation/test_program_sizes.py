"""A program for any number of rows, from the programs of two (generation/network.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import UsageError
from tallystick.generation.network import RowPrograms
from tallystick.numerics.contracts import ORDERED_1
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program


def capture(
    value: Callable[[int], float] = lambda _: 0.5,
    size: Callable[[int], int] = lambda rows: rows,
) -> Callable[[int], Program]:
    """Programs of some rows: `value` is added to each number, and `size` numbers are full."""

    def made(rows: int) -> Program:
        b = Builder(ORDERED_1)
        x = b.state("x", TensorType("f32", (rows, 4)))
        more = b.one("aten.add.Scalar", [x], other=value(rows), alpha=1.0)
        full = b.one("aten.full", [], size=(size(rows),), value=1.0, dtype="f32")
        return b.finish({"more": more, "full": full})

    return made


@pytest.mark.parametrize("rows", [1, 7, 89, 97, 500])
def test_a_program_is_that_of_its_rows(rows: int) -> None:
    made = capture(size=lambda n: 3 * n + 5)
    assert RowPrograms(made).program(rows).digest() == made(rows).digest()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (capture(value=lambda rows: 0.5 if rows < 97 else 1.5), "is 0.5 for 89 rows and 1.5"),
        (capture(value=lambda rows: rows / 2), "is 44.5 for 89 rows and 48.5"),
        (capture(value=float), "is 89.0 for 89 rows and 97.0"),
        (capture(size=lambda rows: rows // 3), "not linear"),
    ],
)
def test_what_is_not_linear_in_the_rows_is_refused(
    made: Callable[[int], Program], why: str
) -> None:
    """A number that is no size is not cut to one."""
    with pytest.raises(UsageError, match=why):
        RowPrograms(made).program(5)
