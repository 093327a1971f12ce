"""Cross-entropy and negative log-likelihood with their gradients (NUMERICS 7.1 - 7.3)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    check_dtype,
    check_shape,
    integer,
    operand,
    operands,
    text,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

_ATTRS = {"ignore_index": AttrSpec("int"), "reduction": AttrSpec("str")}
_REDUCTIONS = {"mean": 0, "sum": 1, "none": 2}
_SCALAR = TensorType("f32", ())


def _reduction(op: str, attrs: Attrs) -> int:
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
    return TensorType("f32", (rows,)) if _reduction(op, attrs) == 2 else _SCALAR


def _check_targets(op: str, attrs: Attrs, target: np.ndarray, classes: int) -> None:
    """Every target a class or ignore_index (NUMERICS 7.1). Raises RefusedOperandsError."""
    ignored = target == integer(attrs, "ignore_index")
    bad = np.flatnonzero(((target < 0) | (target >= classes)) & ~ignored)
    if bad.size:
        raise RefusedOperandsError(
            op,
            f"target {target[bad[0]]} in row {bad[0]} is not one of {classes} classes.",
            "Mark rows to skip with ignore_index.",
        )


def _targets(op: str, attrs: Attrs, inputs: Arrays, position: int) -> np.ndarray:
    target = operand(inputs, position)
    _check_targets(op, attrs, target, operand(inputs, position - 1).shape[1])
    return target


# --- cross_entropy (7.1, 7.2) ---------------------------------------------------------------------
_CE, _CE_BACKWARD = "tallystick.cross_entropy", "tallystick.cross_entropy_backward"


def _infer_cross_entropy(attrs: Attrs, inputs: Types) -> Result:
    rows = _logits(_CE, *operands(_CE, inputs, 2))
    per_row = TensorType("f32", (rows,))
    return _loss_type(_CE, attrs, rows), per_row, per_row


def _run_cross_entropy(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_CE, attrs, inputs, 1)
    ignore, reduction = integer(attrs, "ignore_index"), _reduction(_CE, attrs)
    _core.cross_entropy(operand(inputs, 0), target, ignore, reduction, *outputs)


def _infer_cross_entropy_backward(attrs: Attrs, inputs: Types) -> Result:
    g, x, target, row_max, row_sum = operands(_CE_BACKWARD, inputs, 5)
    rows = _logits(_CE_BACKWARD, x, target)
    for what, t in (("the row maximum", row_max), ("the row sum", row_sum)):
        check_dtype(_CE_BACKWARD, t, FLOATS)
        check_shape(_CE_BACKWARD, what, t, (rows,))
    _check_grad(_CE_BACKWARD, attrs, g, rows)
    return (x,)


def _check_grad(op: str, attrs: Attrs, g: TensorType, rows: int) -> None:
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, _loss_type(op, attrs, rows).shape)


def _run_cross_entropy_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_CE_BACKWARD, attrs, inputs, 2)
    _core.cross_entropy_backward(
        operand(inputs, 0),
        operand(inputs, 1),
        target,
        operand(inputs, 3),
        operand(inputs, 4),
        integer(attrs, "ignore_index"),
        _reduction(_CE_BACKWARD, attrs),
        outputs[0],
    )


# --- nll_loss (7.3) -------------------------------------------------------------------------------
_NLL, _NLL_BACKWARD = "aten.nll_loss_forward", "aten.nll_loss_backward"


def _infer_nll(attrs: Attrs, inputs: Types) -> Result:
    rows = _logits(_NLL, *operands(_NLL, inputs, 2))
    return _loss_type(_NLL, attrs, rows), _SCALAR


def _run_nll(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_NLL, attrs, inputs, 1)
    ignore, reduction = integer(attrs, "ignore_index"), _reduction(_NLL, attrs)
    _core.nll_loss(operand(inputs, 0), target, ignore, reduction, *outputs)


def _infer_nll_backward(attrs: Attrs, inputs: Types) -> Result:
    g, x, target, total = operands(_NLL_BACKWARD, inputs, 4)
    rows = _logits(_NLL_BACKWARD, x, target)
    check_dtype(_NLL_BACKWARD, total, FLOATS)
    check_shape(_NLL_BACKWARD, "total_weight", total, ())
    _check_grad(_NLL_BACKWARD, attrs, g, rows)
    return (x,)


def _run_nll_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_NLL_BACKWARD, attrs, inputs, 2)
    _core.nll_loss_backward(
        operand(inputs, 0),
        operand(inputs, 1),
        target,
        operand(inputs, 3),
        integer(attrs, "ignore_index"),
        _reduction(_NLL_BACKWARD, attrs),
        outputs[0],
    )


register(
    OpSpec(
        name=_CE,
        clause="7.1",
        attrs=_ATTRS,
        infer=_infer_cross_entropy,
        run=_run_cross_entropy,
        op_class="composite",
    )
)
register(
    OpSpec(
        name=_CE_BACKWARD,
        clause="7.2",
        attrs=_ATTRS,
        infer=_infer_cross_entropy_backward,
        run=_run_cross_entropy_backward,
        inplace=((1, 0),),
        op_class="composite",
    )
)
register(
    OpSpec(
        name=_NLL,
        clause="7.3",
        attrs=_ATTRS,
        infer=_infer_nll,
        run=_run_nll,
        op_class="composite",
    )
)
register(
    OpSpec(
        name=_NLL_BACKWARD,
        clause="7.3",
        attrs=_ATTRS,
        infer=_infer_nll_backward,
        run=_run_nll_backward,
        inplace=((1, 0),),
        op_class="composite",
    )
)
