"""Losses with their gradients: cross-entropy and negative log-likelihood (NUMERICS 7.1 - 7.3),
squared error (7.4)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    Result,
    Types,
    check_dtype,
    check_floats,
    check_shape,
    declares,
    operands,
    text,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.forms import forms
from tallystick.numerics.values.graph import (
    Expr,
    case,
    convert,
    fma,
    function,
    is_,
    primitive,
    select,
    size,
)
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    as_index,
    choice,
    either,
    element,
    entry,
    extent,
    extremum,
    inside,
    local,
    numel,
    part,
    read,
    term,
    terms,
    tree,
)

_composite = declares("composite")
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


# --- what a row is (7.1) --------------------------------------------------------------------------
_ROWS, _CLASSES, _HERE = extent("x", 0), extent("x", 1), element()
_MEAN, _NONE = is_("reduction", "mean"), is_("reduction", "none")


def _counts(row: Expr) -> Expr:
    """Whether a row counts."""
    return primitive("ne", as_index(read("target", row, "i64")), entry("ignore_index"))


def _class(row: Expr) -> Expr:
    """The class that a row's target is."""
    return inside(read("target", row, "i64"), _CLASSES, "target")


_COUNT = tree("count", _ROWS, convert(_counts(term()), "i64"))
_RN = convert(part(_COUNT), "f32")


def _reduced(row: Part, total: Part) -> Part:
    """The loss, of a row's loss and the sum of all."""
    mean = local("loss", part(total) / _RN)
    return either(_NONE, row, either(is_("reduction", "sum"), total, mean))


def _gradient_of(row: Expr) -> Expr:
    """The element of the losses' gradient for a row."""
    return case(_NONE, read("grad", row), read("grad", 0))


# --- cross_entropy (7.1, 7.2) ---------------------------------------------------------------------
def _cross_entropy_parts() -> tuple[Part, ...]:
    base = _HERE * _CLASSES
    x = read("x", base + term())
    m = extremum("m", _CLASSES, x, "max")
    s = tree("s", _CLASSES, function("exp", x - part(m)))
    x = read("x", base + _class(_HERE))
    loss = choice(_counts(_HERE), function("log", part(s)) - (x - part(m)), 0.0)
    row = local("l_r", loss, (m, s))
    return _reduced(row, terms("SUM(l)", _ROWS, row, _NONE)), m, s


@_composite("tallystick.cross_entropy", "7.1", ("x", "target"), _cross_entropy_parts(), _ATTRS)
def _cross_entropy(op: str, attrs: Attrs, inputs: Types) -> Result:
    rows = _logits(op, *operands(op, inputs, 2))
    per_row = TensorType("f32", (rows,))
    return _loss_type(op, attrs, rows), per_row, per_row


def _cross_entropy_gradient() -> Part:
    row, own = _HERE // _CLASSES, _HERE % _CLASSES
    grad = _gradient_of(row)
    c = case(_MEAN, grad / _RN, grad)
    p = function("exp", read("x", _HERE) - read("row_max", row)) / read("row_sum", row)
    at_target = primitive("eq", _class(row), own)
    return local("out", choice(_counts(row), select(at_target, fma(c, p, -c), c * p), 0.0))


@_composite(
    "tallystick.cross_entropy_backward",
    "7.2",
    ("grad", "x", "target", "row_max", "row_sum"),
    _cross_entropy_gradient(),
    _ATTRS,
)
def _cross_entropy_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, target, row_max, row_sum = operands(op, inputs, 5)
    rows = _logits(op, x, target)
    check_floats(op, "the row maximum", row_max, (rows,))
    check_floats(op, "the row sum", row_sum, (rows,))
    _check_grad(op, attrs, g, rows)
    return (x,)


def _check_grad(op: str, attrs: Attrs, g: TensorType, rows: int) -> None:
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, _loss_type(op, attrs, rows).shape)


# --- nll_loss (7.3) -------------------------------------------------------------------------------
def _nll_parts() -> tuple[Part, Part]:
    def loss(row: Expr) -> Expr:
        return choice(_counts(row), -read("x", row * _CLASSES + _class(row)), 0.0)

    total = tree("SUM(l)", _ROWS, loss(term()))
    return _reduced(local("l_r", loss(_HERE)), total), local("total_weight", _RN)


@_composite("aten.nll_loss_forward", "7.3", ("x", "target"), _nll_parts(), _ATTRS)
def _nll(op: str, attrs: Attrs, inputs: Types) -> Result:
    rows = _logits(op, *operands(op, inputs, 2))
    return _loss_type(op, attrs, rows), _SCALAR


def _nll_gradient() -> Part:
    row, own = _HERE // _CLASSES, _HERE % _CLASSES
    grad = _gradient_of(row)
    c = case(_MEAN, grad / read("total_weight", 0), grad)
    at_target = choice(primitive("eq", _class(row), own), -c, 0.0)
    return local("out", choice(_counts(row), at_target, 0.0))


@_composite(
    "aten.nll_loss_backward",
    "7.3",
    ("grad", "x", "target", "total_weight"),
    _nll_gradient(),
    _ATTRS,
)
def _nll_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, target, total = operands(op, inputs, 4)
    rows = _logits(op, x, target)
    check_floats(op, "total_weight", total, ())
    _check_grad(op, attrs, g, rows)
    return (x,)


# --- squared error (7.4) --------------------------------------------------------------------------
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


def _mse_parts() -> Part:
    def term_at(at: Expr) -> Expr:
        return _squared_difference(read("x", at), read("y", at))

    count = numel("x")
    total = tree("SUM(q)", count, term_at(term()))
    mean = local("loss", part(total) / as_float(count))
    reduced = either(is_("reduction", "sum"), total, mean)
    return either(is_("reduction", "none"), local("q", term_at(element())), reduced)


def _mse_gradient(grad: Expr, x: Expr, y: Expr) -> Expr:
    doubled = (2.0 * (x - y)) * grad
    return case(is_("reduction", "mean"), doubled / size("x"), doubled)


def _same_shape(op: str, types: Types) -> TensorType:
    x, y = operands(op, types, 2)
    check_dtype(op, x, FLOATS)
    check_dtype(op, y, FLOATS)
    check_shape(op, "the second operand", y, x.shape)
    return x


_MSE_TERMS = forms(_squared_difference, "f32")
_MSE_GRADIENT = forms(_mse_gradient, "f32")


@_elementwise("aten.mse_loss", "7.4", ("x", "y"), _mse_parts(), _REDUCTION, terms=_MSE_TERMS)
def _mse(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = _same_shape(op, inputs)
    return (t if reduction_name(op, attrs) == "none" else TensorType("f32", ()),)


@_elementwise(
    "aten.mse_loss_backward", "7.4", ("grad", "x", "y"), attrs=_REDUCTION, forms=_MSE_GRADIENT
)
def _mse_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, y = operands(op, inputs, 3)
    _same_shape(op, (x, y))
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, x.shape if reduction_name(op, attrs) == "none" else ())
    return (x,)
