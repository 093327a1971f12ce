"""The values of an operator's form on numpy arrays, by IEEE-754 operations one after the other.

A referee's element is made here, and so is every result that no native kernel makes. No kernel is
called: numpy's binary32 and binary64 +, -, *, / and sqrt are IEEE-754 operations, integers wrap,
and the functions of NUMERICS 5 come from the core's table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import constant, number
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import DTYPE_NAMES, DTYPES, STORED, Attrs, widened
from tallystick.numerics.values.graph import FUNCTIONS, Expr, interpreted

Array = np.ndarray


def canonical(x: Any) -> Array:
    """`x` as f32 or f64 array with every NaN the canonical one (NUMERICS 1.5)."""
    array = np.array(x, copy=True)
    array[np.isnan(array)] = np.array(np.nan, array.dtype)
    return array


def fma(a: Any, b: Any, c: Any) -> Array:
    """RN32(a * b + c) elementwise, a, b, c binary32 (NUMERICS 1.4).

    The product is exact in binary64. The sum is rounded to odd there, so that the second rounding,
    to binary32, meets no false tie.
    """
    with np.errstate(all="ignore"):
        p = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32)
        q = np.asarray(c, np.float32).astype(np.float64)
        p, q = np.broadcast_arrays(p, q)
        s = np.array(p + q)
        t = s - p
        error = (p - (s - t)) + (q - t)
        bits = s.view(np.int64)
        inexact = np.isfinite(s) & (error != 0) & (bits & 1 == 0)
        bits += np.where(inexact, np.where((error > 0) == (s > 0), 1, -1), 0)
        return canonical(s.astype(np.float32))


def function(name: str, x: Any) -> Array:
    """A function of NUMERICS 5 by its name there, such as "exp"."""
    array = np.array(x, np.float32, order="C")
    _core.elementary(name, array.reshape(-1), made := np.empty(array.size, np.float32))
    return made.reshape(array.shape)


def _power(x: Any, y: Any) -> Array:
    array = np.array(x, np.float32, order="C")
    exponent = np.array(y, np.float32).reshape(1)
    _core.pow(array.reshape(-1), exponent, made := np.empty(array.size, np.float32))
    powers: Array = made.reshape(array.shape)
    return powers


def _extremum(larger: bool) -> Callable[[Any, Any], Array]:
    """max or min of NUMERICS 1.11: a NaN wins, and -0 lies below +0."""

    def of(a: Any, b: Any) -> Array:
        a, b = np.broadcast_arrays(a, b)
        if a.dtype != np.float32:
            integers: Array = np.maximum(a, b) if larger else np.minimum(a, b)
            return integers
        join = np.bitwise_and if larger else np.bitwise_or
        zeros = join(_bits(a), _bits(b)).view(np.float32)  # of equal numbers: themselves
        found = np.where(a == b, zeros, np.where((a < b) == larger, b, a))
        made: Array = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), found)
        return made

    return of


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint32)


def _left_shift(a: Any, b: Any) -> Array:
    inside = (b >= 0) & (b <= 63)
    made: Array = np.left_shift(np.where(inside, a, 0), np.where(inside, b, 0))
    return made


def _right_shift(a: Any, b: Any) -> Array:
    made: Array = np.right_shift(a, np.where((b >= 0) & (b <= 63), b, 63))
    return made


_PRIMITIVES: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "fma": fma, "neg": np.negative, "abs": np.absolute,
    "max": _extremum(True), "min": _extremum(False),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "floor_divide": np.floor_divide, "left_shift": _left_shift, "right_shift": _right_shift,
    "select": np.where, "pow": _power,
}  # fmt: skip


def interpreter_of(
    op: str, operands: Mapping[str, Array], attrs: Attrs, sizes: Mapping[str, int]
) -> Callable[[Expr, tuple[Any, ...]], Any]:
    def of(value: Expr, parts: tuple[Any, ...]) -> Any:
        kind, dtype = value.kind, DTYPES[value.dtype]
        if kind == "operand":
            return operands[value.name]
        if kind == "attribute":
            return constant(op, value.name, number(attrs, value.name), value.dtype)
        if kind == "constant":
            return np.array(value.number, dtype)
        if kind == "size":
            return np.array(sizes[value.name]).astype(dtype)
        return numpy_primitive(value, parts)

    return of


def numpy_primitive(value: Expr, parts: tuple[Any, ...]) -> Array:
    """A primitive's result on arrays."""
    kind, dtype = value.kind, DTYPES[value.dtype]
    if kind == "convert":
        return _converted(parts[0], dtype)
    if kind in FUNCTIONS:
        return function(kind, parts[0])
    return np.asarray(_PRIMITIVES[kind](*parts), dtype)


def _converted(x: Any, dtype: Any) -> Array:
    if DTYPE_NAMES[np.asarray(x).dtype] in STORED:
        return widened(np.asarray(x))
    return np.not_equal(x, 0) if dtype == np.bool_ else np.asarray(x).astype(dtype)


def element_values(
    spec: OpSpec,
    attrs: Attrs,
    operands: Sequence[Array | None],
    sizes: Mapping[str, int] | None = None,
) -> list[Array]:
    """The outputs of `spec`, which has forms, on operands that broadcast together.

    Every NaN is canonical. `sizes` are the whole operands' numbers of elements, where these are
    only some of them. Raises RefusedOperandsError where the form refuses an element, LookupError
    where no form takes the call.
    """
    dtypes = [None if x is None else DTYPE_NAMES[x.dtype] for x in operands]
    form = spec.form(attrs, dtypes)
    if form is None:
        raise LookupError(f"{spec.name} has no form on {dtypes}")
    named = dict(zip((name.rstrip("?") for name in spec.operands), operands, strict=False))
    there = {name: x for name, x in named.items() if x is not None}
    counted = {name: x.size for name, x in there.items()} | dict(sizes or {})
    meaning = interpreter_of(spec.name, there, attrs, counted)
    with np.errstate(all="ignore"):
        shape = np.broadcast_shapes(*(x.shape for x in there.values()))
        refused = [] if form.refused is None or 0 in shape else [form.refused]
        if any(np.any(bad) for bad in interpreted(refused, meaning)):
            raise RefusedOperandsError(spec.name, f"{form.why}.")
        made = interpreted(form.resolved(attrs, frozenset((*attrs, *there))), meaning)
    return [canonical(x) if x.dtype.kind == "f" else x for x in map(np.asarray, made)]
