"""The fold of a value over micro-batches (NUMERICS 10.12)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    Result,
    Types,
    check_dtype,
    describe,
    flag,
    integer,
    operands,
)
from tallystick.numerics.registry import AttrSpec, operator
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.graph import attribute, case, constant, has, is_
from tallystick.numerics.values.positions import (
    as_float,
    element,
    fold,
    given,
    local,
    read,
    term,
)
from tallystick.numerics.values.primitives import INDEX

FOLD = "tallystick.fold"
# Operands of one fold, so that a referee executes an element at once (OPENING 1.8, LIMIT).
WIDTH = 256
MOST_PARTS = 65536


def split(count: int) -> int:
    """The summands of the left part of a sum of `count`, at least 2 (COMMITMENTS 2.3)."""
    return 1 << (count - 1).bit_length() - 1


def fold_count(attrs: Attrs, given: int) -> int:
    """The number that a mean divides by: `count`, or the number of operands."""
    return integer(attrs, "count") if "count" in attrs else given


# A mean's divisor is the attribute, or the number of operands. What is no mean is divided by 1.
_SIZE = as_float(case(has("count"), attribute("count", INDEX), given("x")))
_DIVISOR = case(is_("mean", True), _SIZE, constant(1, "f32"))
_OUT = fold("out", given("x"), local("x[i]", read("x", element(), number=term())), _DIVISOR)


@operator(
    FOLD,
    clause="10.12",
    operands=("x*",),
    attrs={"count": AttrSpec("int", required=False), "mean": AttrSpec("bool", False)},
    op_class="fold",
    parts={"f32": (_OUT,)},
    uncaptured="stands between the section of a step with micro-batches and its tail",
)
def _fold(op: str, attrs: Attrs, inputs: Types) -> Result:
    if not 1 <= len(inputs) <= WIDTH:
        raise UsageError(f"{op}: takes 1 to {WIDTH} operands, got {len(inputs)}.")
    given = operands(op, inputs, len(inputs))
    check_dtype(op, given[0], FLOATS)
    if any(t != given[0] for t in given):
        raise UsageError(f"{op}: the operands are not of one type: {describe(inputs)}.")
    if "count" in attrs and not flag(attrs, "mean"):
        raise UsageError(f"{op}: a count is of a mean only.")
    if not 1 <= fold_count(attrs, len(given)) <= MOST_PARTS:
        raise UsageError(f"{op}: count is not between 1 and {MOST_PARTS}.")
    return (given[0],)
