"""The dot class: matrix products and 2-D convolutions (NUMERICS 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.numerics.ops._common import pair
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

Arrays = Sequence[np.ndarray | None]
Outputs = Sequence[np.ndarray]
Types = tuple[TensorType | None, ...]
_CONV_ATTRS = {
    "stride": AttrSpec("ints"),
    "padding": AttrSpec("ints"),
    "dilation": AttrSpec("ints"),
    "transposed": AttrSpec("bool"),
    "output_padding": AttrSpec("ints"),
    "groups": AttrSpec("int"),
}
# Kernels hold coordinates in 32 bits; sizes beyond this are refused rather than wrapped.
_MAX_SIDE = 2**28 - 1


def _f32(name: str, what: str, t: TensorType | None, rank: int) -> tuple[int, ...]:
    if t is None:
        raise UsageError(f"{name}: {what} is missing.")
    if t.dtype != "f32" or len(t.shape) != rank:
        raise UsageError(f"{name}: {what} must be f32 with {rank} axes, got {t}.")
    return t.shape


def _count(name: str, inputs: Types, low: int, high: int) -> None:
    if not low <= len(inputs) <= high:
        raise UsageError(f"{name}: takes {low} to {high} inputs, got {len(inputs)}.")


def _need(x: np.ndarray | None) -> np.ndarray:
    if x is None:
        raise UsageError("A required tensor of a dot-class operator is missing.")
    return x


# --- matrix products ------------------------------------------------------------------------------
def _infer_mm(_attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    _count("aten.mm", inputs, 2, 2)
    m, k = _f32("aten.mm", "the first matrix", inputs[0], 2)
    k2, n = _f32("aten.mm", "the second matrix", inputs[1], 2)
    if k != k2:
        raise UsageError(f"aten.mm: inner sizes differ: {inputs[0]} and {inputs[1]}.")
    return (TensorType("f32", (m, n)),)


def _run_mm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.mm(_need(inputs[0]), _need(inputs[1]), outputs[0])


def _infer_addmm(_attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    _count("aten.addmm", inputs, 3, 3)
    c = inputs[0]
    if c is None or c.dtype != "f32" or len(c.shape) > 2:
        raise UsageError(f"aten.addmm: the added tensor must be f32 with 0 to 2 axes, got {c}.")
    m, k = _f32("aten.addmm", "the first matrix", inputs[1], 2)
    k2, n = _f32("aten.addmm", "the second matrix", inputs[2], 2)
    if k != k2:
        raise UsageError(f"aten.addmm: inner sizes differ: {inputs[1]} and {inputs[2]}.")
    for have, want in zip(reversed(c.shape), (n, m), strict=False):
        if have not in (1, want):
            raise UsageError(f"aten.addmm: {c} does not broadcast to f32[{m},{n}].")
    return (TensorType("f32", (m, n)),)


def _run_addmm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.addmm(
        _need(inputs[0]),
        _need(inputs[1]),
        _need(inputs[2]),
        outputs[0],
        cast(float, attrs["beta"]),
        cast(float, attrs["alpha"]),
    )


def _infer_bmm(_attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    _count("aten.bmm", inputs, 2, 2)
    b, m, k = _f32("aten.bmm", "the first batch", inputs[0], 3)
    b2, k2, n = _f32("aten.bmm", "the second batch", inputs[1], 3)
    if b != b2 or k != k2:
        raise UsageError(f"aten.bmm: batch or inner sizes differ: {inputs[0]} and {inputs[1]}.")
    return (TensorType("f32", (b, m, n)),)


def _run_bmm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.bmm(_need(inputs[0]), _need(inputs[1]), outputs[0])


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


def _infer_convolution(attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    name = "aten.convolution"
    _count(name, inputs, 2, 3)
    x = _f32(name, "the input", inputs[0], 4)
    w = _f32(name, "the weight", inputs[1], 4)
    if len(inputs) == 3 and inputs[2] is not None and _f32(name, "the bias", inputs[2], 1) != w[:1]:
        raise UsageError(f"{name}: bias {inputs[2]} does not fit {w[0]} output channels.")
    return (TensorType("f32", _conv_shape(name, attrs, x, w)),)


def _run_convolution(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    bias = inputs[2] if len(inputs) == 3 else None
    _core.convolution(
        _need(inputs[0]),
        _need(inputs[1]),
        bias,
        outputs[0],
        *geometry("aten.convolution", attrs),
    )


def output_mask(attrs: Attrs) -> tuple[bool, bool, bool]:
    mask = cast("tuple[bool, ...]", attrs["output_mask"])
    if len(mask) != 3:
        raise UsageError(
            f"aten.convolution_backward: output_mask must have three entries, got {mask}."
        )
    return mask[0], mask[1], mask[2]


def _infer_convolution_backward(attrs: Attrs, inputs: Types) -> tuple[TensorType, ...]:
    name = "aten.convolution_backward"
    _count(name, inputs, 3, 3)
    grad = _f32(name, "the gradient", inputs[0], 4)
    x = _f32(name, "the input", inputs[1], 4)
    w = _f32(name, "the weight", inputs[2], 4)
    if _conv_shape(name, attrs, x, w) != grad:
        raise UsageError(f"{name}: gradient {inputs[0]} does not fit {inputs[1]} and {inputs[2]}.")
    shapes = (x, w, w[:1])
    return tuple(
        TensorType("f32", s) for s, on in zip(shapes, output_mask(attrs), strict=True) if on
    )


def _run_convolution_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, x, w = _need(inputs[0]), _need(inputs[1]), _need(inputs[2])
    form = geometry("aten.convolution_backward", attrs)
    want_input, want_weight, want_bias = output_mask(attrs)
    remaining = iter(outputs)
    if want_input:
        _core.convolution_input_grad(grad, w, next(remaining), *form)
    if want_weight:
        _core.convolution_weight_grad(grad, x, next(remaining), *form)
    if want_bias:
        _core.convolution_bias_grad(grad, next(remaining))


register(
    OpSpec(
        name="aten.mm",
        clause="2.4",
        attrs={},
        infer=_infer_mm,
        run=_run_mm,
        all_inputs_strided=True,
        op_class="dot",
    )
)
register(
    OpSpec(
        name="aten.addmm",
        clause="2.5",
        attrs={"beta": AttrSpec("float"), "alpha": AttrSpec("float")},
        infer=_infer_addmm,
        run=_run_addmm,
        all_inputs_strided=True,
        op_class="dot",
    )
)
register(
    OpSpec(
        name="aten.bmm",
        clause="2.4",
        attrs={},
        infer=_infer_bmm,
        run=_run_bmm,
        all_inputs_strided=True,
        op_class="dot",
    )
)
register(
    OpSpec(
        name="aten.convolution",
        clause="2.6",
        attrs=dict(_CONV_ATTRS),
        infer=_infer_convolution,
        run=_run_convolution,
        op_class="dot",
    )
)
register(
    OpSpec(
        name="aten.convolution_backward",
        clause="2.7",
        attrs={**_CONV_ATTRS, "output_mask": AttrSpec("bools")},
        infer=_infer_convolution_backward,
        run=_run_convolution_backward,
        op_class="dot",
    )
)
