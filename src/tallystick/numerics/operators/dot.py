"""The dot class: matrix products and 2-D convolutions (NUMERICS 2)."""

from __future__ import annotations

from typing import cast

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import Types, pair
from tallystick.numerics.registry import SUM, AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType

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


# --- matrix products ------------------------------------------------------------------------------
@operator("aten.mm", clause="2.4", operands=("a", "b"), op_class="dot", rounded=SUM)
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


@operator("aten.bmm", clause="2.4", operands=("a", "b"), op_class="dot", rounded=SUM)
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


@operator(
    "aten.convolution",
    clause="2.6",
    operands=("x", "weight", "bias?"),
    attrs=_CONVOLUTION,
    op_class="dot",
    rounded=SUM,
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
