"""Operators that move, shape or make data: bits are unchanged (NUMERICS 9); and the scatter
class (4)."""

from __future__ import annotations

import math
from fractions import Fraction

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    ANY,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    Declares,
    Result,
    Types,
    axis_of,
    broadcast,
    check_dtype,
    check_shape,
    constant,
    declares,
    describe,
    flag,
    integer,
    integers,
    number,
    operands,
    same_dtype,
    text,
)
from tallystick.numerics.registry import AttrSpec, InTypes
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import (
    INDEX,
    MOVED,
    Expr,
    attribute,
    convert,
    primitive,
    select,
)
from tallystick.numerics.values.graph import constant as literal
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    at,
    broadcast_place,
    chain,
    choice,
    element,
    entry,
    extent,
    inner,
    inside,
    joined,
    latest,
    local,
    numel,
    permuted,
    placed,
    reaches,
    read,
    term,
    whole,
)


def _open_end(attrs: Attrs, inputs: InTypes) -> int | None:
    """ATen's open end: the axis's size."""
    x, dim = (inputs[0] if inputs else None), attrs.get("dim")
    if x is None or not isinstance(dim, int) or not -len(x.shape) <= dim < len(x.shape):
        return None
    return x.shape[dim]


_RANGE = {
    "dim": AttrSpec("int", 0),
    "start": AttrSpec("int", 0),
    "end": AttrSpec("int", _open_end),
    "step": AttrSpec("int", 1),
}
_mover, _scattering = declares("move"), declares("scatter")
_HERE = element()
_START, _END, _STEP = (attribute(name, INDEX) for name in ("start", "end", "step"))


def _moved(operand: str, position: Expr = _HERE) -> Expr:
    """An element with its bits."""
    return read(operand, position, MOVED)


def _move(name: str, names: tuple[str, ...], out: Expr, **attrs: AttrSpec) -> Declares:
    """Declares an operator by the element of its output, of any dtype."""
    return _mover(name, "9", names, {MOVED: (local("out", out),)}, attrs)


# --- views ----------------------------------------------------------------------------------------
@_move("aten.view", ("x",), _moved("x"), size=INTS)
def _view(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1, stored=True)
    size = integers(attrs, "size")
    if any(n < 0 for n in size) or math.prod(size) != t.numel:
        raise UsageError(f"{op}: {t} cannot be seen as {list(size)}.")
    return (TensorType(t.dtype, size),)


@_move("aten.permute", ("x",), _moved("x", permuted("x", "dims")), dims=INTS)
def _permute(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1, stored=True)
    dims = integers(attrs, "dims")
    if sorted(dims) != list(range(len(t.shape))):
        raise UsageError(f"{op}: {list(dims)} does not order the axes of {t}.")
    return (TensorType(t.dtype, tuple(t.shape[d] for d in dims)),)


@_move("aten.expand", ("x",), _moved("x", broadcast_place("x")), size=INTS)
def _expand(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    size = integers(attrs, "size")
    lead = len(size) - len(t.shape)
    fits = lead >= 0 and all(n in (1, size[lead + i]) for i, n in enumerate(t.shape))
    if not fits or any(n < 0 for n in size):
        raise UsageError(f"{op}: {t} does not expand to {list(size)}.")
    return (TensorType(t.dtype, size),)


def slice_of(op: str, attrs: Attrs, t: TensorType) -> tuple[int, slice, int]:
    """(axis, slice, number of elements it takes), bounds as canonical programs have them."""
    axis = axis_of(op, integer(attrs, "dim"), len(t.shape))
    start, end, step = (integer(attrs, k) for k in ("start", "end", "step"))
    if not t.shape or not 0 <= start <= end <= t.shape[axis] or step < 1:
        raise UsageError(f"{op}: {start}:{end}:{step} is not a slice of axis {axis} of {t}.")
    return axis, slice(start, end, step), -((start - end) // step)


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


@_move("aten.slice", ("x",), _moved("x", placed("x", "dim", _START + at() * _STEP)), **_RANGE)
def _slice(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1, stored=True)
    axis, _, count = slice_of(op, attrs, t)
    return (TensorType(t.dtype, _with(t.shape, axis, count)),)


# --- joining and scattering -----------------------------------------------------------------------
def _written() -> Expr:
    """x's element, or the source's where the slice has one."""
    k = at() - _START
    between = primitive("and", primitive("ge", k, 0), primitive("lt", at(), _END))
    written = primitive("and", between, primitive("eq", k % _STEP, 0))
    return choice(written, _moved("source", placed("source", "dim", k // _STEP)), _moved("x"))


@_move("aten.slice_scatter", ("x", "source"), _written(), **_RANGE)
def _slice_scatter(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, src = operands(op, inputs, 2)
    same_dtype(op, (x, src))
    axis, _, count = slice_of(op, attrs, x)
    if src.shape != _with(x.shape, axis, count):
        raise UsageError(f"{op}: {src} does not fill the slice of {x}.")
    return (x,)


@_move("aten.cat", ("x*",), joined("x"), dim=AttrSpec("int", 0))
def _cat(op: str, attrs: Attrs, inputs: Types) -> Result:
    types = operands(op, inputs, max(len(inputs), 1))
    dtype = same_dtype(op, types)
    axis = axis_of(op, integer(attrs, "dim"), len(types[0].shape))
    first = types[0].shape
    if not first or any(len(t.shape) != len(first) for t in types):
        raise UsageError(f"{op}: {describe(inputs)} cannot be joined.")
    if any(_with(t.shape, axis, 0) != _with(first, axis, 0) for t in types):
        raise UsageError(f"{op}: {describe(inputs)} differ beside axis {axis}.")
    return (TensorType(dtype, _with(first, axis, sum(t.shape[axis] for t in types))),)


# --- reading by index -----------------------------------------------------------------------------
def _check_along(op: str, attrs: Attrs, x: TensorType, index: TensorType) -> None:
    """Indices along `dim`, one for each element of `index`; beside it they may be fewer than x's.

    Raises UsageError.
    """
    check_dtype(op, index, ("i64",))
    axis = axis_of(op, integer(attrs, "dim"), len(x.shape))
    if len(x.shape) != len(index.shape) or any(
        index.shape[i] > n for i, n in enumerate(x.shape) if i != axis
    ):
        raise UsageError(f"{op}: indices {index} do not fit {x} along axis {axis}.")


def _indexed(position: Expr) -> Expr:
    """The element of x whose index along `dim` is an element of `index`."""
    return _moved("x", placed("x", "dim", inside(read("index", position, "i64"), extent("x"))))


@_move("aten.gather", ("x", "index"), _indexed(_HERE), dim=INT)
def _gather(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, index = operands(op, inputs, 2)
    _check_along(op, attrs, x, index)
    return (TensorType(x.dtype, index.shape),)


@_move("aten.index_select", ("x", "index"), _indexed(at()), dim=INT)
def _index_select(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, index = operands(op, inputs, 2, stored=True)
    check_dtype(op, index, ("i64",))
    axis = axis_of(op, integer(attrs, "dim"), len(x.shape))
    if len(index.shape) != 1 or not x.shape:
        raise UsageError(f"{op}: takes a tensor with axes and a list of indices, got {index}.")
    return (TensorType(x.dtype, _with(x.shape, axis, index.shape[0])),)


# --- writing by index (NUMERICS 9.3) --------------------------------------------------------------
def _replaced() -> Part:
    """x's element, or that of the last source along `dim` whose index is the element's own."""
    index = read("index", placed("index", "dim", term()), "i64")
    own = primitive("eq", inside(index, extent("x")), at())
    source = _moved("source", placed("source", "dim", term()))
    return latest("out", reaches("index", "dim") * extent("index"), source, _moved("x"), own)


@_mover("aten.scatter.src", "9.3", ("x", "index", "source"), {MOVED: (_replaced(),)}, {"dim": INT})
def _scatter(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, index, source = operands(op, inputs, 3)
    _check_along(op, attrs, x, index)
    same_dtype(op, (x, source))
    check_shape(op, "the source", source, index.shape)
    return (x,)


# --- choosing -------------------------------------------------------------------------------------
def _chosen() -> Expr:
    a, b = (_moved(name, broadcast_place(name)) for name in ("a", "b"))
    return choice(read("condition", broadcast_place("condition"), "bool"), a, b)


@_move("aten.where", ("condition", "a", "b"), _chosen())
def _where(op: str, _attrs: Attrs, inputs: Types) -> Result:
    condition, a, b = operands(op, inputs, 3)
    check_dtype(op, condition, ("bool",))
    dtype = same_dtype(op, (a, b))
    return (TensorType(dtype, broadcast(op, (condition, a, b))),)


_VALUE = attribute("value", MOVED)


@_move(
    "aten.masked_fill",
    ("x", "mask"),
    choice(read("mask", broadcast_place("mask"), "bool"), _VALUE, _moved("x")),
    value=FLOAT,
)
def _masked_fill(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, mask = operands(op, inputs, 2)
    check_dtype(op, mask, ("bool",))
    constant(op, "value", number(attrs, "value"), x.dtype)
    if broadcast(op, (x, mask)) != x.shape:
        raise UsageError(f"{op}: the mask {mask} does not broadcast to {x}.")
    return (x,)


# --- making ---------------------------------------------------------------------------------------
@_move("aten.full", (), _VALUE, size=INTS, value=FLOAT, dtype=AttrSpec("dtype", "f32"))
def _full(op: str, attrs: Attrs, _inputs: Types) -> Result:
    size, dtype = integers(attrs, "size"), text(attrs, "dtype")
    if dtype not in ANY or any(n < 0 for n in size):
        raise UsageError(f"{op}: {dtype} {list(size)} is not a tensor type.")
    constant(op, "value", number(attrs, "value"), dtype)
    return (TensorType(dtype, size),)


def _counted(number: Expr) -> Expr:
    """start + number·step in number's dtype."""
    return attribute("start", number) + number * attribute("step", number)


_COUNTED = {
    "i64": (local("out", _counted(convert(_HERE, "i64"))),),
    "f32": (local("out", convert(_counted(as_float(_HERE, "f64")), "f32")),),
}


_ARANGE = {
    "start": AttrSpec("float", 0.0),
    "end": FLOAT,
    "step": AttrSpec("float", 1.0),
    "dtype": AttrSpec("dtype", "i64"),
}


@_mover("aten.arange", "9", (), _COUNTED, _ARANGE)
def _arange(op: str, attrs: Attrs, _inputs: Types) -> Result:
    start, end, step = (number(attrs, k) for k in ("start", "end", "step"))
    dtype = text(attrs, "dtype")
    if dtype not in ("f32", "i64"):
        raise UsageError(f"{op}: is defined on f32, i64, got {dtype}.")
    if not all(map(math.isfinite, (start, end, step))) or step == 0.0:
        raise UsageError(f"{op}: start, end and step must be finite, and step not zero.")
    if dtype == "i64":
        for name in ("start", "end", "step"):
            constant(op, name, number(attrs, name), dtype)
    # The number of elements is exact (NUMERICS 9.1), unlike that of a rounded quotient.
    count = math.ceil((Fraction(end) - Fraction(start)) / Fraction(step))
    return (TensorType(dtype, (max(count, 0),)),)


def _kept(comparison: str) -> Expr:
    """x where column - row compares so with `diagonal`, else 0."""
    kept = primitive(comparison, at(-1) - at(-2), attribute("diagonal", INDEX))
    return choice(kept, _moved("x"), literal(0, MOVED))


_DIAGONAL = AttrSpec("int", 0)


@_move("aten.tril", ("x",), _kept("le"), diagonal=_DIAGONAL)
@_move("aten.triu", ("x",), _kept("ge"), diagonal=_DIAGONAL)
def _triangle(op: str, _attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    if len(t.shape) < 2:
        raise UsageError(f"{op}: needs a matrix, got {t}.")
    return (t,)


# --- the scatter class, and embedding's look-up (4, 9) --------------------------------------------
_PADDING = {"padding_idx": AttrSpec("int", -1)}


def scattered(
    count: Expr, index: Expr, rows: Expr, row: Expr, value: Expr, start: Expr | float = 0.0
) -> Part:
    """A chain over `count` sources (4.1): `start`, then the values of those whose index, of `rows`
    destinations, is `row`. One of another destination keeps the state."""
    begin = start if isinstance(start, Expr) else literal(start, "f32")
    return chain("d", count, value, begin, primitive("eq", inside(index, rows), row))


# --- embedding (9, 4.2) ---------------------------------------------------------------------------
def _looked_up() -> Expr:
    width = extent("weight", 1)
    row = inside(read("index", element() // width, "i64"), extent("weight", 0))
    return read("weight", row * width + element() % width, MOVED)


_ROW = {MOVED: (local("out", _looked_up()),)}


@_mover("aten.embedding", "9", ("weight", "index"), _ROW, _PADDING)
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


@_scattering(
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


@_scattering("aten.index_add", "4.3", ("x", "index", "source"), _added(), {"dim": INT})
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
