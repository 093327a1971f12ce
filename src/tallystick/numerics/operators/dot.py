"""The dot class: matrix products and 2-D convolutions (NUMERICS 2)."""

from __future__ import annotations

from functools import reduce
from typing import cast

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import MASK, Result, Types, declares, masked, pair
from tallystick.numerics.registry import SUM, AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import Expr, attribute, case, has, is_, primitive
from tallystick.numerics.values.positions import (
    Factor,
    Part,
    broadcast_place,
    choice,
    dot,
    either,
    element,
    entry,
    extent,
    inner,
    inside_of,
    local,
    part,
    read,
    term,
    tree,
    whole,
)

_dot = declares("dot", rounded=SUM)
_CONVOLUTION = {
    "stride": AttrSpec("ints", (1, 1)),
    "padding": AttrSpec("ints", (0, 0)),
    "dilation": AttrSpec("ints", (1, 1)),
    "transposed": AttrSpec("bool", False),
    "output_padding": AttrSpec("ints", (0, 0)),
    "groups": AttrSpec("int", 1),
}

# Kernels hold coordinates in 32 bits; sizes beyond this are refused rather than wrapped.
_MAX_SIDE = 2**28 - 1


def _f32(name: str, what: str, t: TensorType | None, rank: int) -> tuple[int, ...]:
    if t is None:
        raise UsageError(f"{name}: {what} is missing.")
    if t.dtype != "f32" or len(t.shape) != rank:
        raise UsageError(f"{name}: {what} must be f32 with {rank} axes, got {t}.")
    return t.shape


# --- matrix products (NUMERICS 2.4, 2.5) ----------------------------------------------------------
_HERE = element()


def _product() -> Part:
    """A row of `a` times a column of `b`, both of 2 or 3 axes."""
    length, columns = extent("a", -1), extent("b", -1)
    row = _HERE // columns
    a = read("a", row * length + term())
    b = read("b", row // extent("a", -2) * length * columns + _HERE % columns + term() * columns)
    return dot("dot", length, whole(1), a, b)


_PRODUCT = _product()


def _scaled() -> Part:
    """Factors of 1, and a beta of 0, are left out (2.5)."""
    alpha_is_1, beta_is_0 = is_("alpha", 1.0), is_("beta", 0.0)
    d, c = part(_PRODUCT), read("c", broadcast_place("c"))
    d = case(alpha_is_1, d, attribute("alpha", d) * d)
    c = case(is_("beta", 1.0), c, attribute("beta", c) * c)
    scaled = local("out", case(beta_is_0, d, d + c))
    return either(alpha_is_1, either(beta_is_0, _PRODUCT, scaled), scaled)


def _multiplied(op: str, a: TensorType | None, b: TensorType | None) -> tuple[int, int]:
    """The shape of a product of two matrices. Raises UsageError."""
    m, k = _f32(op, "the first matrix", a, 2)
    k2, n = _f32(op, "the second matrix", b, 2)
    if k != k2:
        raise UsageError(f"{op}: inner sizes differ: {a} and {b}.")
    return m, n


@_dot("aten.mm", "2.4", ("a", "b"), _PRODUCT)
def _mm(op: str, _attrs: Attrs, inputs: Types) -> Result:
    return (TensorType("f32", _multiplied(op, *inputs)),)


_FACTORS = {"beta": AttrSpec("float", 1.0), "alpha": AttrSpec("float", 1.0)}


@_dot("aten.addmm", "2.5", ("c", "a", "b"), _scaled(), _FACTORS)
def _addmm(op: str, _attrs: Attrs, inputs: Types) -> Result:
    c = inputs[0]
    if c is None or c.dtype != "f32" or len(c.shape) > 2:
        raise UsageError(f"{op}: the added tensor must be f32 with 0 to 2 axes, got {c}.")
    m, n = _multiplied(op, *inputs[1:])
    for have, want in zip(reversed(c.shape), (n, m), strict=False):
        if have not in (1, want):
            raise UsageError(f"{op}: {c} does not broadcast to f32[{m},{n}].")
    return (TensorType("f32", (m, n)),)


@_dot("aten.bmm", "2.4", ("a", "b"), _PRODUCT)
def _bmm(op: str, _attrs: Attrs, inputs: Types) -> Result:
    b, m, k = _f32(op, "the first batch", inputs[0], 3)
    b2, k2, n = _f32(op, "the second batch", inputs[1], 3)
    if b != b2 or k != k2:
        raise UsageError(f"{op}: batch or inner sizes differ: {inputs[0]} and {inputs[1]}.")
    return (TensorType("f32", (b, m, n)),)


# --- convolution ----------------------------------------------------------------------------------
def geometry(
    name: str, attrs: Attrs
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]:
    if attrs["transposed"]:
        raise UsageError(f"{name}: transposed convolution is not part of any contract.")
    if any(cast("tuple[int, ...]", attrs["output_padding"])):
        raise UsageError(f"{name}: output_padding belongs to transposed convolution only.")
    groups = cast(int, attrs["groups"])
    if not 1 <= groups <= _MAX_SIDE:
        raise UsageError(f"{name}: groups must be at least 1, got {groups}.")
    return (
        pair(name, attrs, "stride", 1, _MAX_SIDE),
        pair(name, attrs, "padding", 0, _MAX_SIDE),
        pair(name, attrs, "dilation", 1, _MAX_SIDE),
        groups,
    )


def _conv_shape(
    name: str, attrs: Attrs, x: tuple[int, ...], w: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """Shape of a convolution's output; refuses an input and weight that do not fit."""
    stride, padding, dilation, groups = geometry(name, attrs)
    if x[1] % groups or w[0] % groups or w[1] * groups != x[1]:
        raise UsageError(
            f"{name}: input {list(x)} and weight {list(w)} do not fit {groups} group(s)."
        )
    if min(w[2], w[3]) < 1 or max(*x, *w) > _MAX_SIDE:
        raise UsageError(f"{name}: input {list(x)} or weight {list(w)} has an unusable size.")
    sides = []
    for axis in range(2):
        room = x[2 + axis] + 2 * padding[axis] - dilation[axis] * (w[2 + axis] - 1) - 1
        if room < 0:
            raise UsageError(f"{name}: the kernel {list(w)} exceeds the padded input {list(x)}.")
        sides.append(room // stride[axis] + 1)
    return x[0], w[0], sides[0], sides[1]


# --- what an element of a convolution is (NUMERICS 2.6, 2.7) --------------------------------------
_STRIDE, _PADDING, _DILATION = (
    (entry(name, 0), entry(name, 1)) for name in ("stride", "padding", "dilation")
)
# What a group of channels has: output channels, input channels, and taps of each.
_OUTS, _INS, _TAPS = (
    extent("weight", 0) // entry("groups"), extent("weight", 1), inner("weight", 1),
)  # fmt: skip


def _digits(index: Expr, operand: str) -> tuple[Expr, Expr, Expr]:
    """A plane's number, row and column, where `index` counts elements of an operand's planes."""
    rows = index // extent(operand, 3)
    return rows // extent(operand, 2), rows % extent(operand, 2), index % extent(operand, 3)


def _place(operand: str) -> tuple[Expr, Expr, Expr, Expr]:
    """The element's coordinates, as those of an operand."""
    plane, row, column = _digits(_HERE, operand)
    return plane // extent(operand, 1), plane % extent(operand, 1), row, column


def _seen(operand: str, plane: Expr, row: Expr, column: Expr, *also: Expr) -> Expr:
    """An element of a plane; +0 outside of it (2.6), and where one of `also` does not hold."""
    height, width = extent(operand, 2), extent(operand, 3)
    there = reduce(_both, (*also, inside_of(row, height), inside_of(column, width)))
    return choice(there, read(operand, (plane * height + row) * width + column), 0.0)


def _both(a: Expr, b: Expr) -> Expr:
    return primitive("and", a, b)


def _tapped(output: Expr, tap: Expr, axis: int) -> Expr:
    """Where in the image a tap of the kernel is for an output's place."""
    return output * _STRIDE[axis] - _PADDING[axis] + tap * _DILATION[axis]


def _convolved() -> Part:
    n, o, y, x = _place("")
    c, i, j = _digits(term(), "weight")
    plane, first = inner("x", 1), n * extent("x", 1) + o // _OUTS * _INS
    seen = _seen("x", first + c, _tapped(y, i, 0), _tapped(x, j, 1))
    image = Factor(seen, read("x", first * plane + term()), plane)
    found = dot("dot", _INS, _TAPS, image, read("weight", o * _INS * _TAPS + term()))
    return either(has("bias"), local("out", part(found) + read("bias", o)), found)


def _input_gradient() -> Part:
    n, channel, h, w = _place("x")
    o, i, j = _digits(term(), "weight")
    plane, first = inner("grad", 1), channel // _INS * _OUTS
    row = h + _PADDING[0] - i * _DILATION[0]
    column = w + _PADDING[1] - j * _DILATION[1]
    met = primitive("eq", row % _STRIDE[0], 0), primitive("eq", column % _STRIDE[1], 0)
    image = n * extent("grad", 1) + first
    seen = _seen("grad", image + o, row // _STRIDE[0], column // _STRIDE[1], *met)
    left = Factor(seen, read("grad", image * plane + term()), plane)
    right = read("weight", ((first + o) * _INS + channel % _INS) * _TAPS + term() % _TAPS)
    return dot("input gradient", _OUTS, _TAPS, left, right)


def _weight_gradient() -> Part:
    o, c, i, j = _place("weight")
    n, y, x = _digits(term(), "grad")
    places, plane, channel = inner("grad", 1), inner("x", 1), o // _OUTS * _INS + c
    left = read("grad", (n * extent("grad", 1) + o) * places + term() % places)
    seen = _seen("x", n * extent("x", 1) + channel, _tapped(y, i, 0), _tapped(x, j, 1))
    member = (term() // plane * extent("x", 1) + channel) * plane + term() % plane
    right = Factor(seen, read("x", member), plane)
    return dot("weight gradient", extent("grad", 0), places, left, right, reads=(seen,))


def _bias_gradient() -> Part:
    places = inner("grad", 1)
    at = (term() // places * extent("grad", 1) + _HERE) * places + term() % places
    return tree("bias gradient", extent("grad", 0) * places, read("grad", at))


@_dot("aten.convolution", "2.6", ("x", "weight", "bias?"), _convolved(), _CONVOLUTION)
def _convolution(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _f32(op, "the input", inputs[0], 4)
    w = _f32(op, "the weight", inputs[1], 4)
    if len(inputs) == 3 and inputs[2] is not None and _f32(op, "the bias", inputs[2], 1) != w[:1]:
        raise UsageError(f"{op}: bias {inputs[2]} does not fit {w[0]} output channels.")
    return (TensorType("f32", _conv_shape(op, attrs, x, w)),)


@_dot(
    "aten.convolution_backward",
    "2.7",
    ("grad", "x", "weight"),
    (_input_gradient(), _weight_gradient(), _bias_gradient()),
    {**_CONVOLUTION, **MASK},
    masked_by="output_mask",
)
def _convolution_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    grad = _f32(op, "the gradient", inputs[0], 4)
    x = _f32(op, "the input", inputs[1], 4)
    w = _f32(op, "the weight", inputs[2], 4)
    if _conv_shape(op, attrs, x, w) != grad:
        raise UsageError(f"{op}: gradient {inputs[0]} does not fit {inputs[1]} and {inputs[2]}.")
    return masked(op, attrs, *(TensorType("f32", shape) for shape in (x, w, w[:1])))
