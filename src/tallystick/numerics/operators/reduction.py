"""Sums, means, extremes, argmax and variance (NUMERICS 3); the fold of a value over micro-batches
(10.12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    INT,
    INTS,
    NUMBERS,
    Result,
    Types,
    axis_of,
    check_dtype,
    check_shape,
    declares,
    describe,
    flag,
    integer,
    integers,
    only,
    operands,
)
from tallystick.numerics.registry import DIVIDED, SUM, AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import (
    INDEX,
    Expr,
    attribute,
    case,
    constant,
    convert,
    has,
    is_,
    primitive,
    select,
)
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    as_index,
    chain,
    element,
    extent,
    extremum,
    fold,
    given,
    inner,
    local,
    numel,
    part,
    read,
    reduced,
    reduced_place,
    term,
    tree,
)

_reduction = declares("reduction")
_KEEPDIM = AttrSpec("bool", False)
_DIMS = {"dim": INTS, "keepdim": _KEEPDIM}
_DIM = {"dim": INT, "keepdim": _KEEPDIM}


def reduced_axes(op: str, attrs: Attrs, rank: int) -> tuple[int, ...]:
    """The reduced axes, ascending (NUMERICS 3.3); without `dim`, or with none in it, all."""
    if "dim" not in attrs:
        return tuple(range(rank))
    dim = attrs["dim"]
    given = (integer(attrs, "dim"),) if isinstance(dim, int) else integers(attrs, "dim")
    axes = sorted(axis_of(op, d, rank) for d in given)
    if len(set(axes)) != len(axes):
        raise UsageError(f"{op}: an axis is reduced twice in {given}.")
    if rank == 0:
        return ()
    return tuple(axes) if axes else tuple(range(rank))


def _shape(op: str, attrs: Attrs, shape: tuple[int, ...]) -> tuple[int, ...]:
    axes = reduced_axes(op, attrs, len(shape))
    if "keepdim" in attrs and flag(attrs, "keepdim"):
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


# --- sum and mean (NUMERICS 3.4) ------------------------------------------------------------------
def _summed(dtype: str) -> Part:
    x = read("x", reduced_place(), dtype)
    return tree("SUM(x)", reduced(), x if dtype in NUMBERS else convert(x, "i64"))


_SUM = {dtype: (_summed(dtype),) for dtype in ("f32", "i64", "bool")}
_MEAN = local("mean", part(_summed("f32")) / as_float(reduced()))


@_reduction("aten.mean", "3.4", ("x",), _MEAN, rounded=DIVIDED)
@_reduction("aten.mean.dim", "3.4", ("x",), _MEAN, _DIMS, rounded=DIVIDED)
@_reduction("aten.sum", "3.4", ("x",), _SUM, rounded=SUM)
@_reduction("aten.sum.dim_IntList", "3.4", ("x",), _SUM, _DIMS, rounded=SUM)
def _sum(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = only(op, inputs, FLOATS if op.startswith("aten.mean") else ("f32", "i64", "bool"))
    return (TensorType("f32" if t.dtype == "f32" else "i64", _shape(op, attrs, t.shape)),)


# --- extremes (NUMERICS 3.5) ----------------------------------------------------------------------
def _extremes(kind: str) -> dict[str, tuple[Part, ...]]:
    return {
        dtype: (extremum(kind, reduced(), read("x", reduced_place(), dtype), kind),)
        for dtype in NUMBERS
    }


@_reduction("aten.argmax", "3.5", ("x",), _extremes("argmax"), _DIM)
@_reduction("aten.min", "3.5", ("x",), _extremes("min"), is_exact=True)
@_reduction("aten.max", "3.5", ("x",), _extremes("max"), is_exact=True)
@_reduction("aten.amin", "3.5", ("x",), _extremes("min"), _DIMS, is_exact=True)
@_reduction("aten.amax", "3.5", ("x",), _extremes("max"), _DIMS, is_exact=True)
def _extreme(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = only(op, inputs, NUMBERS)
    shape = _shape(op, attrs, t.shape)
    if t.numel == 0 and math.prod(shape) != 0:
        raise UsageError(f"{op}: an empty axis of {t} has no extreme (NUMERICS 3.5).")
    return (TensorType("i64" if op == "aten.argmax" else t.dtype, shape),)


# --- variance and sum of squares (NUMERICS 3.6, 3.7) ----------------------------------------------
def _variance() -> tuple[Part, ...]:
    x, count = convert(read("x", reduced_place()), "f64"), as_float(reduced(), "f64")
    mean = local("mean", part(tree("SUM64(x)", reduced(), x)) / count)
    d = x - part(mean)
    left = count - attribute("correction", "f64")
    total = part(tree("SUM64(d*d)", reduced(), d * d)) / select(left <= 0.0, 0.0, left)
    return local("RN32(var)", convert(total, "f32")), local(
        "RN32(mean)", convert(part(mean), "f32")
    )


_VAR_MEAN = {**_DIMS, "correction": AttrSpec("float", 1.0)}


@_reduction("aten.var_mean.correction", "3.6", ("x",), _variance(), _VAR_MEAN)
def _var_mean(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = only(op, inputs, FLOATS)
    out = TensorType("f32", _shape(op, attrs, t.shape))
    return out, out


# --- cumulative sum (NUMERICS 3.8) ----------------------------------------------------------------
_SIZE, _STEP, _HERE = extent("x"), inner("x"), element()
_OWN = _HERE // _STEP % _SIZE  # the place in the row along `dim`
_IN_ROW = _HERE // (_SIZE * _STEP) * (_SIZE * _STEP) + _HERE % _STEP + term() * _STEP
# -0 is the exact identity of addition (3.2), so the first element is a term like the others.
_PREFIX = chain("y", _OWN + 1, read("x", _IN_ROW), constant(-0.0, "f32"))


@_reduction("aten.cumsum", "3.8", ("x",), _PREFIX, {"dim": INT})
def _cumsum(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = only(op, inputs, FLOATS)
    axis_of(op, integer(attrs, "dim"), len(t.shape))
    return (t,)


# --- places (NUMERICS 3.9) ------------------------------------------------------------------------
def _smaller(a: Expr, b: Expr) -> Expr:
    """Whether a is smaller than b; NaN is larger than every number."""
    less = primitive("lt", a, b)
    if a.dtype != "f32":
        return less
    number = primitive("not", primitive("ne", a, a))
    return primitive("or", less, primitive("and", primitive("ne", b, b), number))


def _place(dtype: str) -> Part:
    """How many elements of the row come before this one; of equal ones the earlier do."""
    x, other = read("x", _HERE, dtype), read("x", _IN_ROW, dtype)
    down = is_("descending", True)
    lower, higher = _smaller(other, x), _smaller(x, other)
    before, after = case(down, higher, lower), case(down, lower, higher)
    tie = primitive("and", primitive("not", after), primitive("lt", term(), _OWN))
    counted = convert(primitive("or", before, tie), "i64")
    return tree("place", _SIZE, counted, reads=(x,))


_PLACES = {dtype: (_place(dtype),) for dtype in NUMBERS}
_RANK = {"dim": INT, "descending": AttrSpec("bool", False)}


@_reduction("tallystick.rank", "3.9", ("x",), _PLACES, _RANK)
def _rank(op: str, attrs: Attrs, inputs: Types) -> Result:
    t = only(op, inputs, NUMBERS)
    axis_of(op, integer(attrs, "dim"), len(t.shape))
    return (TensorType("i64", t.shape),)


# --- occurrences (NUMERICS 3.10) -----------------------------------------------------------------
def _occurring() -> Part:
    """How many of the tokens in a row's stretch are the element's class."""
    classes = extent("", 1)
    row, own = _HERE // classes, _HERE % classes
    first, last = read("first", row, "i64"), read("last", row, "i64")
    token = read("tokens", term(), "i64")
    after = primitive("ge", term(), as_index(first))
    before = primitive("le", term(), as_index(last))
    counts = primitive(
        "and", primitive("and", after, before), primitive("eq", as_index(token), own)
    )
    return tree("count", numel("tokens"), convert(counts, "i64"), reads=(first, last, token))


@_reduction(
    "tallystick.occurrences",
    "3.10",
    ("tokens", "first", "last"),
    {"i64": (_occurring(),)},
    {"classes": INT},
    uncaptured="the program of an answer counts tokens by it (answers/sampler.py)",
)
def _occurrences(op: str, attrs: Attrs, inputs: Types) -> Result:
    tokens, first, last = operands(op, inputs, 3)
    for t in (tokens, first, last):
        check_dtype(op, t, ("i64",))
    if len(tokens.shape) != 1 or len(first.shape) != 1:
        raise UsageError(f"{op}: takes i64[L], i64[A] and i64[A], got {tokens} and {first}.")
    check_shape(op, "the last places", last, first.shape)
    classes = integer(attrs, "classes")
    if classes < 0:
        raise UsageError(f"{op}: the number of classes must not be negative, got {classes}.")
    return (TensorType("i64", (*first.shape, classes)),)


_X = read("x", reduced_place())


@_reduction("tallystick.sum_squares", "3.7", ("x",), tree("SUM(x*x)", reduced(), _X * _X))
def _sum_squares(op: str, _attrs: Attrs, inputs: Types) -> Result:
    only(op, inputs, FLOATS)
    return (TensorType("f32", ()),)


# --- the fold over micro-batches (10.12) ----------------------------------------------------------
FOLD = "tallystick.fold"
T = TypeVar("T")
# Operands of one fold, so that a referee executes an element at once (OPENING 1.8, LIMIT).
WIDTH = 256
MOST_PARTS = 65536


def split(count: int) -> int:
    """The summands of the left part of a sum of `count`, at least 2 (COMMITMENTS 2.3)."""
    return 1 << (count - 1).bit_length() - 1


def folded(xs: Sequence[T], add: Callable[[T, T], T]) -> T:
    """S of at least one value (NUMERICS 10.12): their sum by the split of COMMITMENTS 2.3."""
    if len(xs) == 1:
        return xs[0]
    half = split(len(xs))
    return add(folded(xs[:half], add), folded(xs[half:], add))


def fold_count(attrs: Attrs, given: int) -> int:
    """The number that a mean divides by: `count`, or the number of operands."""
    return integer(attrs, "count") if "count" in attrs else given


# A mean's divisor is the attribute, or the number of operands. What is no mean is divided by 1.
_FOLDED = as_float(case(has("count"), attribute("count", INDEX), given("x")))
_DIVISOR = case(is_("mean", True), _FOLDED, constant(1, "f32"))
_FOLD_PARTS = fold("out", given("x"), local("x[i]", read("x", element(), number=term())), _DIVISOR)


@declares("fold")(
    FOLD,
    "10.12",
    ("x*",),
    _FOLD_PARTS,
    {"count": AttrSpec("int", required=False), "mean": AttrSpec("bool", False)},
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
