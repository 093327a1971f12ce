"""The dot class: matrix products and 2-D convolutions (NUMERICS 2)."""

from __future__ import annotations

from typing import Any, cast

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import Types, pair
from tallystick.numerics.registry import SUM, AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import Value, attribute, case, has, is_, primitive
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
    alpha_is_1, beta_is_0 = is_("alpha", 1.0), is_("beta", 0.0)
    d, c = part(_PRODUCT), read("c", broadcast_place("c"))
    d = case(alpha_is_1, d, attribute("alpha", d) * d)
    scaled = local(
        "out", case(beta_is_0, d, d + case(is_("beta", 1.0), c, attribute("beta", c) * c))
    )
    return either(alpha_is_1, either(beta_is_0, _PRODUCT, scaled), scaled)


_PRODUCTS: dict[str, Any] = {"op_class": "dot", "rounded": SUM, "parts": {"f32": (_PRODUCT,)}}


@operator("aten.mm", clause="2.4", operands=("a", "b"), **_PRODUCTS)
def _mm(op: str, _attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    m, k = _f32(op, "the first matrix", inputs[0], 2)
    k2, n = _f32(op, "the second matrix", inputs[1], 2)
    if k != k2:
        raise UsageError(f"{op}: inner sizes differ: {inputs[0]} and {inputs[1]}.")
    return (TensorType("f32", (m, n)),)


@operator(
    "aten.addmm",
    clause="2.5",
    operands=("c", "a", "b"),
    attrs={"beta": AttrSpec("float", 1.0), "alpha": AttrSpec("float", 1.0)},
    op_class="dot",
    rounded=SUM,
    parts={"f32": (_scaled(),)},
)
def _addmm(op: str, _attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    c = inputs[0]
    if c is None or c.dtype != "f32" or len(c.shape) > 2:
        raise UsageError(f"{op}: the added tensor must be f32 with 0 to 2 axes, got {c}.")
    m, k = _f32(op, "the first matrix", inputs[1], 2)
    k2, n = _f32(op, "the second matrix", inputs[2], 2)
    if k != k2:
        raise UsageError(f"{op}: inner sizes differ: {inputs[1]} and {inputs[2]}.")
    for have, want in zip(reversed(c.shape), (n, m), strict=False):
        if have not in (1, want):
            raise UsageError(f"{op}: {c} does not broadcast to f32[{m},{n}].")
    return (TensorType("f32", (m, n)),)


@operator("aten.bmm", clause="2.4", operands=("a", "b"), **_PRODUCTS)
def _bmm(op: str, _attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
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
_Plane = tuple[Value, Value]  # coordinates, or sizes, along the two axes of a plane
_STRIDE, _PADDING, _DILATION = (
    (entry(name, 0), entry(name, 1)) for name in ("stride", "padding", "dilation")
)
# Channels of the weight that an image's group of channels has: outputs and inputs.
_OUTS, _INS = extent("weight", 0) // entry("groups"), extent("weight", 1)
_TAPS = inner("weight", 1)


def _digits(index: Value, operand: str) -> tuple[Value, Value, Value]:
    """`index` as a number of planes of an operand of 4 axes, and the place in the plane."""
    wide = extent(operand, 3)
    rest = index // wide
    return rest // extent(operand, 2), rest % extent(operand, 2), index % wide


def _place(operand: str) -> tuple[Value, Value, Value, Value]:
    """The element's coordinates, as those of an operand of 4 axes."""
    plane, *inner_place = _digits(_HERE, operand)
    channels = extent(operand, 1)
    return plane // channels, plane % channels, inner_place[0], inner_place[1]


def _seen(operand: str, plane: Value, at: _Plane, met: Value | None = None) -> Value:
    """The element of a plane, +0 outside of it and where `met` does not hold."""
    height, wide = extent(operand, 2), extent(operand, 3)
    there = primitive("and", inside_of(at[0], height), inside_of(at[1], wide))
    there = there if met is None else primitive("and", met, there)
    return choice(there, read(operand, (plane * height + at[0]) * wide + at[1]), 0.0)


def _tapped(output: _Plane, tap: _Plane) -> _Plane:
    """Where in the image a tap of the kernel lies for an output's place."""
    row, column = (output[k] * _STRIDE[k] - _PADDING[k] + tap[k] * _DILATION[k] for k in range(2))
    return row, column


def _convolved() -> Part:
    n, o, y, x = _place("")
    c, i, j = _digits(term(), "weight")
    first = n * extent("x", 1) + o // _OUTS * _INS
    plane = inner("x", 1)
    seen = _seen("x", first + c, _tapped((y, x), (i, j)))
    image = Factor(seen, read("x", first * plane + term()), plane)
    found = dot("dot", _INS, _TAPS, image, read("weight", o * _INS * _TAPS + term()))
    return either(has("bias"), local("out", part(found) + read("bias", o)), found)


def _input_gradient() -> Part:
    n, channel, h, w = _place("x")
    o, i, j = _digits(term(), "weight")
    first, plane = channel // _INS * _OUTS, inner("grad", 1)
    row, column = (
        at + _PADDING[k] - tap * _DILATION[k] for k, (at, tap) in enumerate(((h, i), (w, j)))
    )
    met = primitive(
        "and", *(primitive("eq", x % s, 0) for x, s in zip((row, column), _STRIDE, strict=True))
    )
    image = n * extent("grad", 1) + first
    seen = _seen("grad", image + o, (row // _STRIDE[0], column // _STRIDE[1]), met)
    weight = read("weight", ((first + o) * _INS + channel % _INS) * _TAPS + term() % _TAPS)
    gradient = Factor(seen, read("grad", image * plane + term()), plane)
    return dot("input gradient", _OUTS, _TAPS, gradient, weight)


def _weight_gradient() -> Part:
    o, c, i, j = _place("weight")
    n, y, x = _digits(term(), "grad")
    channel, places, plane = o // _OUTS * _INS + c, inner("grad", 1), inner("x", 1)
    taps = _seen("x", n * extent("x", 1) + channel, _tapped((y, x), (i, j)))
    member = read("x", (term() // plane * extent("x", 1) + channel) * plane + term() % plane)
    grad = read("grad", (n * extent("grad", 1) + o) * places + term() % places)
    image = Factor(taps, member, plane)
    return dot("weight gradient", extent("grad", 0), places, grad, image, reads=(taps,))


def _bias_gradient() -> Part:
    places = inner("grad", 1)
    at = (term() // places * extent("grad", 1) + _HERE) * places + term() % places
    return tree("bias gradient", extent("grad", 0) * places, read("grad", at))


@operator(
    "aten.convolution",
    clause="2.6",
    operands=("x", "weight", "bias?"),
    attrs=_CONVOLUTION,
    op_class="dot",
    rounded=SUM,
    parts={"f32": (_convolved(),)},
)
def _convolution(op: str, attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    x = _f32(op, "the input", inputs[0], 4)
    w = _f32(op, "the weight", inputs[1], 4)
    if len(inputs) == 3 and inputs[2] is not None and _f32(op, "the bias", inputs[2], 1) != w[:1]:
        raise UsageError(f"{op}: bias {inputs[2]} does not fit {w[0]} output channels.")
    return (TensorType("f32", _conv_shape(op, attrs, x, w)),)


def output_mask(attrs: Attrs) -> tuple[bool, bool, bool]:
    mask = cast("tuple[bool, ...]", attrs["output_mask"])
    if len(mask) != 3:
        raise UsageError(
            f"aten.convolution_backward: output_mask must have three entries, got {mask}."
        )
    return mask[0], mask[1], mask[2]


@operator(
    "aten.convolution_backward",
    clause="2.7",
    operands=("grad", "x", "weight"),
    attrs={**_CONVOLUTION, "output_mask": AttrSpec("bools", (True, True, True))},
    op_class="dot",
    rounded=SUM,
    parts={"f32": (_input_gradient(), _weight_gradient(), _bias_gradient())},
    masked_by="output_mask",
)
def _convolution_backward(op: str, attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    grad = _f32(op, "the gradient", inputs[0], 4)
    x = _f32(op, "the input", inputs[1], 4)
    w = _f32(op, "the weight", inputs[2], 4)
    if _conv_shape(op, attrs, x, w) != grad:
        raise UsageError(f"{op}: gradient {inputs[0]} does not fit {inputs[1]} and {inputs[2]}.")
    shapes = (x, w, w[:1])
    return tuple(
        TensorType("f32", s) for s, on in zip(shapes, output_mask(attrs), strict=True) if on
    )
