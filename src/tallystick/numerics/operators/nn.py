"""Softmax and layer_norm with their gradients (NUMERICS 6.1 to 6.6)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    INT,
    INTS,
    MASK,
    Result,
    Types,
    axis_of,
    check_floats,
    declares,
    integer,
    integers,
    masked,
    operands,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import Expr, attribute, case, fma, function, has
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    element,
    extent,
    extremum,
    inner,
    local,
    numel,
    part,
    product,
    read,
    term,
    tree,
)

_composite = declares("composite")


def _same_f32(op: str, inputs: Types, count: int) -> TensorType:
    """`count` f32 operands of one shape; that type. Raises UsageError."""
    types = operands(op, inputs, count)
    for t in types:
        check_floats(op, "each operand", t, types[0].shape)
    return types[0]


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
_COUNT, _STEP, _HERE = extent(""), inner(""), element()
# The place of an element of the row along `dim` that this one is in.
_IN_ROW = _HERE // (_COUNT * _STEP) * (_COUNT * _STEP) + _HERE % _STEP + term() * _STEP


def _softmax(name: str, clause: str, names: tuple[str, ...], y: Part) -> None:
    @_composite(name, clause, names, y, {"dim": INT})
    def rule(op: str, attrs: Attrs, inputs: Types) -> Result:
        t = _same_f32(op, inputs, len(names))
        axis_of(op, integer(attrs, "dim"), len(t.shape))
        return (t,)


def _declare_softmax() -> None:
    x, grad, y = (read(name, _HERE) for name in ("x", "grad", "y"))
    m = extremum("m", _COUNT, read("x", _IN_ROW), "max")
    s = tree("s", _COUNT, function("exp", read("x", _IN_ROW) - part(m)))
    log_s = local("l", function("log", part(s)))
    products = tree("s", _COUNT, read("grad", _IN_ROW) * read("y", _IN_ROW))
    total = tree("s", _COUNT, read("grad", _IN_ROW))
    of_x, of_y = ("x",), ("grad", "y")
    exponential = function("exp", x - part(m))
    _softmax("aten._softmax", "6.1", of_x, local("y", exponential / part(s)))
    _softmax("aten._log_softmax", "6.2", of_x, local("y", (x - part(m)) - part(log_s)))
    back = local("out", y * (grad - part(products)))
    _softmax("aten._softmax_backward_data", "6.3", of_y, back)
    back = local("out", grad - function("exp", y) * part(total), reads=(y,))
    _softmax("aten._log_softmax_backward_data", "6.4", of_y, back)


_declare_softmax()


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
def _normalized(op: str, attrs: Attrs, x: TensorType) -> tuple[int, ...]:
    """normalized_shape, if it is x's trailing shape. Raises UsageError."""
    shape = integers(attrs, "normalized_shape")
    if not shape or len(shape) > len(x.shape) or x.shape[len(x.shape) - len(shape) :] != shape:
        raise UsageError(f"{op}: normalized_shape {list(shape)} is not the trailing shape of {x}.")
    return shape


def _statistics_shape(x: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    return x.shape[: len(x.shape) - len(shape)] + (1,) * len(shape)


def _check_affine(op: str, inputs: Types, first: int, shape: tuple[int, ...]) -> None:
    """Weight and bias at `first` and after it, either absent or f32 of `shape`."""
    for what, t in zip(("the weight", "the bias"), inputs[first:], strict=False):
        if t is not None:
            check_floats(op, what, t, shape)


def affine(h: Expr, weight: Expr, bias: Expr) -> Expr:
    """h with weight and bias, where they are present."""
    weighted = case(has("bias"), fma(h, weight, bias), h * weight)
    return case(has("weight"), weighted, case(has("bias"), h + bias, h))


_N = product("normalized_shape")
_RN = as_float(_N)


def _statistics(row: Expr) -> tuple[Part, Part]:
    """mean and rstd of a row."""
    x = read("x", row * _N + term())
    mean = local("mean", part(tree("SUM(x)", _N, x)) / _RN)
    d = x - part(mean)
    var = local("var", part(tree("SUM(d*d)", _N, d * d)) / _RN)
    return mean, local("rstd", function("rsqrt", part(var) + attribute("eps", "f32")))


def _layer_norm_parts() -> tuple[Part, ...]:
    here = element()
    mean, rstd = _statistics(here // _N)
    h = (read("x", here) - part(mean)) * part(rstd)
    y = affine(h, read("weight", here % _N), read("bias", here % _N))
    return local("y", y), *_statistics(here)


@_composite(
    "aten.native_layer_norm",
    "6.5",
    ("x", "weight?", "bias?"),
    _layer_norm_parts(),
    {"normalized_shape": INTS, "eps": AttrSpec("float", 1e-5)},
)
def _layer_norm(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _same_f32(op, inputs[:1], 1)
    shape = _normalized(op, attrs, x)
    _check_affine(op, inputs, 1, shape)
    statistics = TensorType("f32", _statistics_shape(x, shape))
    return x, statistics, statistics


def _layer_norm_gradient() -> tuple[Part, ...]:
    here, row = element(), element() // _N

    def h(at: Expr, of: Expr) -> Expr:
        return (read("x", at) - read("mean", of)) * read("rstd", of)

    def k(at: Expr, column: Expr) -> Expr:
        grad = read("grad", at)
        return case(has("weight"), grad * read("weight", column), grad)

    at = row * _N + term()
    s1 = local("s1", part(tree("SUM(k)", _N, k(at, term()))) / _RN)
    s2 = local("s2", part(tree("SUM(k*h)", _N, k(at, term()) * h(at, row))) / _RN)
    rest = (k(here, here % _N) - part(s1)) - h(here, row) * part(s2)
    # The parameters' gradients are sums over the rows.
    rows, below = numel("x") // _N, here + term() * _N
    dw = tree("dw", rows, read("grad", below) * h(below, term()))
    db = tree("db", rows, read("grad", below))
    return local("dx", rest * read("rstd", row)), dw, db


@_composite(
    "aten.native_layer_norm_backward",
    "6.6",
    ("grad", "x", "mean", "rstd", "weight?", "bias?"),
    _layer_norm_gradient(),
    {"normalized_shape": INTS, **MASK},
    masked_by="output_mask",
)
def _layer_norm_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _same_f32(op, inputs[:2], 2)
    shape = _normalized(op, attrs, x)
    for what, t in zip(("the mean", "rstd"), operands(op, inputs[2:4], 2), strict=True):
        check_floats(op, what, t, _statistics_shape(x, shape))
    _check_affine(op, inputs, 4, shape)
    affine = TensorType("f32", shape)
    return masked(op, attrs, x, affine, affine)
