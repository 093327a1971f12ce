"""Cross-entropy and negative log-likelihood with their gradients (NUMERICS 7.1 - 7.3)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    Result,
    Types,
    check_dtype,
    check_shape,
    operands,
    text,
)
from tallystick.numerics.registry import AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType

_ATTRS = {"ignore_index": AttrSpec("int", -100), "reduction": AttrSpec("str", "mean")}

_REDUCTIONS = {"mean": 0, "sum": 1, "none": 2}


_SCALAR = TensorType("f32", ())


def reduction_of(op: str, attrs: Attrs) -> int:
    name = text(attrs, "reduction")
    if name not in _REDUCTIONS:
        raise UsageError(f"{op}: reduction must be mean, sum or none, got {name!r}.")
    return _REDUCTIONS[name]


def _logits(op: str, x: TensorType, target: TensorType) -> int:
    """The number of rows of logits [R, V] with targets [R]. Raises UsageError."""
    check_dtype(op, x, FLOATS)
    check_dtype(op, target, ("i64",))
    if len(x.shape) != 2 or x.shape[1] == 0:
        raise UsageError(f"{op}: logits must be f32[rows, classes] with a class, got {x}.")
    check_shape(op, "the target", target, x.shape[:1])
    return x.shape[0]


def _loss_type(op: str, attrs: Attrs, rows: int) -> TensorType:
    return TensorType("f32", (rows,)) if reduction_of(op, attrs) == 2 else _SCALAR


# --- cross_entropy (7.1, 7.2) ---------------------------------------------------------------------
@operator(
    "tallystick.cross_entropy",
    clause="7.1",
    operands=("x", "target"),
    attrs=_ATTRS,
    op_class="composite",
)
def _cross_entropy(op: str, attrs: Attrs, inputs: Types) -> Result:
    rows = _logits(op, *operands(op, inputs, 2))
    per_row = TensorType("f32", (rows,))
    return _loss_type(op, attrs, rows), per_row, per_row


@operator(
    "tallystick.cross_entropy_backward",
    clause="7.2",
    operands=("grad", "x", "target", "row_max", "row_sum"),
    attrs=_ATTRS,
    op_class="composite",
)
def _cross_entropy_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, target, row_max, row_sum = operands(op, inputs, 5)
    rows = _logits(op, x, target)
    for what, t in (("the row maximum", row_max), ("the row sum", row_sum)):
        check_dtype(op, t, FLOATS)
        check_shape(op, what, t, (rows,))
    _check_grad(op, attrs, g, rows)
    return (x,)


def _check_grad(op: str, attrs: Attrs, g: TensorType, rows: int) -> None:
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, _loss_type(op, attrs, rows).shape)


# --- nll_loss (7.3) -------------------------------------------------------------------------------
@operator(
    "aten.nll_loss_forward",
    clause="7.3",
    operands=("x", "target"),
    attrs=_ATTRS,
    op_class="composite",
)
def _nll(op: str, attrs: Attrs, inputs: Types) -> Result:
    rows = _logits(op, *operands(op, inputs, 2))
    return _loss_type(op, attrs, rows), _SCALAR


@operator(
    "aten.nll_loss_backward",
    clause="7.3",
    operands=("grad", "x", "target", "total_weight"),
    attrs=_ATTRS,
    op_class="composite",
)
def _nll_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, target, total = operands(op, inputs, 4)
    rows = _logits(op, x, target)
    check_dtype(op, total, FLOATS)
    check_shape(op, "total_weight", total, ())
    _check_grad(op, attrs, g, rows)
    return (x,)
