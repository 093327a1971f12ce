"""Random tensors from Philox4x32-10 (NUMERICS 8)."""

from __future__ import annotations

import math

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOAT,
    INT,
    INTS,
    Result,
    Types,
    check_dtype,
    declares,
    integer,
    integers,
    number,
    operands,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import (
    INDEX,
    Expr,
    attribute,
    binary32,
    constant,
    fma,
    function,
    primitive,
)
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    element,
    extent,
    in_reals,
    inside,
    local,
    read,
    whole,
    word,
)

_random = declares("random", is_random=True)
_DRAW = {"draw": AttrSpec("int", 0), "shape": INTS}
_MASK = {**_DRAW, "p": FLOAT}
_UNIFORM = {**_DRAW, "low": AttrSpec("float", 0.0), "high": AttrSpec("float", 1.0)}
_NORMAL = {**_DRAW, "mean": AttrSpec("float", 0.0), "std": AttrSpec("float", 1.0)}
WORD = 1 << 32


# --- elements (8.4, 8.6, 8.7) ---------------------------------------------------------------------
def _word(block: Expr, number: Expr) -> Expr:
    return word("rng", attribute("draw", INDEX), block, number)


_OWN = _word(element() // 4, element() % 4)


def _unit(whole: Expr) -> Expr:
    """whole·2^-24, exact also in the real numbers."""
    exact = as_float(whole, "f64") * 2.0**-24
    return in_reals(as_float(whole) * 2.0**-24, exact)


def _mask() -> Part:
    """The threshold is p·2^32 rounded to a whole number. Adding 2^52 rounds to one, to even."""
    threshold = (attribute("p", "f64") * 2.0**32 + 2.0**52) - 2.0**52
    return local("mask", primitive("ge", as_float(_OWN, "f64"), threshold))


def _uniform() -> Part:
    low, high = attribute("low", "f32"), attribute("high", "f32")
    return local("out", fma(_unit(_OWN // 256), high - low, low))


def _normal() -> Part:
    block, pair = element() // 2, element() % 2 * 2
    u1 = _unit(_word(block, pair) // 256 + 1)
    u2 = _unit(_word(block, pair + 1) // 256)
    root = function("sqrt", constant(-2.0, "f32") * function("log", u1))
    z = root * function("cos", u2 * binary32(0x40C90FDB, 2 * math.pi))  # C6
    return local("out", fma(z, attribute("std", "f32"), attribute("mean", "f32")))


def _gumbel() -> Part:
    """The word's twofold and 1 is (word + 1/2)·2^33, rounded once. Below the clamp no value of the
    logarithms is infinite."""
    classes = extent("", 1)
    row, column = element() // classes, element() % classes
    place = inside(read("place", row, "i64"), whole(WORD), "place")
    odd = _word(place * ((classes + 3) // 4) + column // 4, column % 4) * 2 + 1
    rounded = primitive("min", as_float(odd) * 2.0**-33, 1.0 - 2.0**-24)
    exact = as_float(primitive("min", odd, 2**33 - 2**9), "f64") * 2.0**-33
    v = in_reals(rounded, exact)
    return local("out", -function("log", -function("log1p", -v)))


def _drawn(op: str, attrs: Attrs, inputs: Types, dtype: str) -> Result:
    (rng,) = operands(op, inputs, 1)
    if rng != TensorType("i64", (2,)):
        raise UsageError(f"{op}: takes the key i64[2], got {rng}.")
    if not 0 <= integer(attrs, "draw") < WORD:
        raise UsageError(f"{op}: the draw id must be in [0, 2^32).")
    shape = integers(attrs, "shape")
    if any(n < 0 for n in shape):
        raise UsageError(f"{op}: shape {shape} has a negative size.")
    return (TensorType(dtype, shape),)


@_random("tallystick.dropout_mask", "8.4", ("rng",), {"i64": (_mask(),)}, _MASK)
def _dropout(op: str, attrs: Attrs, inputs: Types) -> Result:
    if not 0.0 <= number(attrs, "p") < 1.0:
        raise UsageError(f"{op}: p must be in [0, 1), got {attrs['p']}.")
    return _drawn(op, attrs, inputs, "bool")


@_random("tallystick.uniform", "8.6", ("rng",), {"i64": (_uniform(),)}, _UNIFORM)
@_random("tallystick.normal", "8.7", ("rng",), {"i64": (_normal(),)}, _NORMAL)
def _float(op: str, attrs: Attrs, inputs: Types) -> Result:
    return _drawn(op, attrs, inputs, "f32")


_GUMBEL = {"classes": INT, "draw": AttrSpec("int", 0)}


@_random(
    "tallystick.gumbel",
    "8.8",
    ("rng", "place"),
    {"i64": (_gumbel(),)},
    _GUMBEL,
    uncaptured="the program of an answer draws tokens by it (answers/sampler.py)",
)
def _noise(op: str, attrs: Attrs, inputs: Types) -> Result:
    rng, place = operands(op, inputs, 2)
    check_dtype(op, place, ("i64",))
    if len(place.shape) != 1:
        raise UsageError(f"{op}: takes the places i64[A], got {place}.")
    classes = integer(attrs, "classes")
    if not 0 <= classes < WORD:
        raise UsageError(f"{op}: the number of classes must be in [0, 2^32), got {classes}.")
    return _drawn(op, {**attrs, "shape": (*place.shape, classes)}, (rng,), "f32")
