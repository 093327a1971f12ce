"""mse_loss and its gradient (NUMERICS 7.4)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    Result,
    Types,
    check_dtype,
    check_shape,
    declares,
    operands,
    text,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.forms import forms
from tallystick.numerics.values.graph import Expr, case, is_, size
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    either,
    element,
    local,
    numel,
    part,
    read,
    term,
    tree,
)

_elementwise = declares("elementwise")
_REDUCTION = {"reduction": AttrSpec("str", "mean")}


def reduction_name(op: str, attrs: Attrs) -> str:
    """The reduction: none, mean or sum. Raises UsageError for another."""
    reduction = text(attrs, "reduction")
    if reduction not in ("none", "mean", "sum"):
        raise UsageError(f"{op}: reduction must be none, mean or sum, got {reduction!r}.")
    return reduction


def _squared_difference(x: Expr, y: Expr) -> Expr:
    d = x - y
    return d * d


def _loss() -> Part:
    def term_at(at: Expr) -> Expr:
        return _squared_difference(read("x", at), read("y", at))

    count = numel("x")
    total = tree("SUM(q)", count, term_at(term()))
    mean = local("loss", part(total) / as_float(count))
    reduced = either(is_("reduction", "sum"), total, mean)
    return either(is_("reduction", "none"), local("q", term_at(element())), reduced)


def _gradient(grad: Expr, x: Expr, y: Expr) -> Expr:
    doubled = (2.0 * (x - y)) * grad
    return case(is_("reduction", "mean"), doubled / size("x"), doubled)


def _same_shape(op: str, types: Types) -> TensorType:
    x, y = operands(op, types, 2)
    check_dtype(op, x, FLOATS)
    check_dtype(op, y, FLOATS)
    check_shape(op, "the second operand", y, x.shape)
    return x


_TERMS = forms(_squared_difference, "f32")
_GRADIENT = forms(_gradient, "f32")


@_elementwise("aten.mse_loss", "7.4", ("x", "y"), _loss(), _REDUCTION, terms=_TERMS)
def _mse(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = _same_shape(op, inputs)
    return (t if reduction_name(op, attrs) == "none" else TensorType("f32", ()),)


@_elementwise(
    "aten.mse_loss_backward", "7.4", ("grad", "x", "y"), attrs=_REDUCTION, forms=_GRADIENT
)
def _mse_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, y = operands(op, inputs, 3)
    _same_shape(op, (x, y))
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, x.shape if reduction_name(op, attrs) == "none" else ())
    return (x,)
