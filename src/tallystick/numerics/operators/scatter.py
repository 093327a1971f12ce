"""The scatter class, and embedding's look-up (NUMERICS 4, 9)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    INT,
    Result,
    Types,
    axis_of,
    check_dtype,
    check_shape,
    declares,
    flag,
    integer,
    operands,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import Expr, constant, primitive, select
from tallystick.numerics.values.positions import (
    Part,
    chain,
    element,
    entry,
    extent,
    inner,
    inside,
    local,
    numel,
    read,
    term,
    whole,
)
from tallystick.numerics.values.primitives import MOVED

_HERE = element()
_move, _scatter = declares("move"), declares("scatter")
_PADDING = {"padding_idx": AttrSpec("int", -1)}


def scattered(
    count: Expr, index: Expr, rows: Expr, row: Expr, value: Expr, start: Expr | float = 0.0
) -> Part:
    """A chain over `count` sources (4.1): `start`, then the values of those whose index, of `rows`
    destinations, is `row`. One of another destination keeps the state."""
    begin = start if isinstance(start, Expr) else constant(start, "f32")
    return chain("d", count, value, begin, primitive("eq", inside(index, rows), row))


# --- embedding (9, 4.2) ---------------------------------------------------------------------------
def _looked_up() -> Expr:
    width = extent("weight", 1)
    row = inside(read("index", element() // width, "i64"), extent("weight", 0))
    return read("weight", row * width + element() % width, MOVED)


_ROW = {MOVED: (local("out", _looked_up()),)}


@_move("aten.embedding", "9", ("weight", "index"), _ROW, _PADDING)
def _embedding(op: str, _attrs: Attrs, inputs: Types) -> Result:
    weight, index = operands(op, inputs, 2)
    check_dtype(op, weight, FLOATS)
    check_dtype(op, index, ("i64",))
    if len(weight.shape) != 2:
        raise UsageError(f"{op}: the weight must have two axes, got {weight}.")
    return (TensorType("f32", index.shape + weight.shape[1:]),)


def _embedding_gradient() -> Part:
    width = extent("", 1)
    row, column = _HERE // width, _HERE % width
    # Every source of the padding row is skipped.
    padded = primitive("eq", row, entry("padding_idx"))
    count = select(padded, whole(0), numel("index"))
    index = read("index", term(), "i64")
    return scattered(count, index, extent("", 0), row, read("grad", term() * width + column))


@_scatter(
    "aten.embedding_dense_backward",
    "4.2",
    ("grad", "index"),
    _embedding_gradient(),
    {"num_weights": INT, **_PADDING, "scale_grad_by_freq": AttrSpec("bool", False)},
)
def _embedding_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    grad, index = operands(op, inputs, 2)
    check_dtype(op, grad, FLOATS)
    check_dtype(op, index, ("i64",))
    if flag(attrs, "scale_grad_by_freq"):
        raise UsageError(f"{op}: scale_grad_by_freq is not part of any contract.")
    if not grad.shape:
        raise UsageError(f"{op}: the gradient needs a last axis, got {grad}.")
    check_shape(op, "the gradient", grad, index.shape + grad.shape[-1:])
    weights = integer(attrs, "num_weights")
    if weights < 0:
        raise UsageError(f"{op}: num_weights must not be negative, got {weights}.")
    return (TensorType("f32", (weights, grad.shape[-1])),)


# --- index_add (4.3) ------------------------------------------------------------------------------
def _added() -> Part:
    size, step, count = extent("x"), inner("x"), numel("index")
    source = (_HERE // (step * size) * count + term()) * step + _HERE % step
    index, row = read("index", term(), "i64"), _HERE // step % size
    return scattered(count, index, size, row, read("source", source), read("x", _HERE))


@_scatter("aten.index_add", "4.3", ("x", "index", "source"), _added(), {"dim": INT})
def _index_add(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, index, source = operands(op, inputs, 3)
    check_dtype(op, x, FLOATS)
    check_dtype(op, source, FLOATS)
    check_dtype(op, index, ("i64",))
    if not x.shape or len(index.shape) != 1:
        raise UsageError(f"{op}: takes x with an axis and a 1-d index, got {x} and {index}.")
    axis = axis_of(op, integer(attrs, "dim"), len(x.shape))
    wanted = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    check_shape(op, "the source", source, wanted)
    return (x,)
