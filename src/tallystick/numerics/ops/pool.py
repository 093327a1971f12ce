"""Max pooling over planes, and its gradient (NUMERICS 6.15, 6.16)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    check_dtype,
    check_shape,
    flag,
    operand,
    operands,
    pair,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

FORWARD = "aten.max_pool2d_with_indices"
BACKWARD = "aten.max_pool2d_with_indices_backward"
_ATTRS = {
    "kernel_size": AttrSpec("ints"),
    "stride": AttrSpec("ints"),
    "padding": AttrSpec("ints"),
    "dilation": AttrSpec("ints"),
    "ceil_mode": AttrSpec("bool"),
}
# Larger attributes are refused: nobody needs them, and checking them would take time.
_MAX_SIDE = 2**16 - 1


@dataclass(frozen=True)
class Axis:
    """Pooling along one axis of `size` elements (NUMERICS 6.15)."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def outputs(self, ceil_mode: bool) -> int:
        """How many outputs there are; not positive where the kernel does not fit."""
        room = self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        count = (-(-room // self.stride) if ceil_mode else room // self.stride) + 1
        return count - (ceil_mode and (count - 1) * self.stride >= self.size + self.padding)

    def covered(self, count: int) -> bool:
        """Whether each of `count` outputs has a tap; from origin 0 on, the last one decides."""
        before = min(count, -(-self.padding // self.stride))
        return all(self.taps(j) for j in (*range(before), count - 1))

    def taps(self, output: int) -> range:
        """Positions inside the axis that an output looks at, ascending."""
        origin, d = output * self.stride - self.padding, self.dilation
        first = -(-max(0, -origin) // d)
        return range(origin + first * d, min(self.size, origin + (self.kernel - 1) * d + 1), d)


def _pairs(op: str, attrs: Attrs) -> list[tuple[int, int]]:
    """Kernel, stride, padding and dilation. Raises UsageError."""
    named = (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
    return [pair(op, attrs, name, low, _MAX_SIDE) for name, low in named]


def axes(op: str, attrs: Attrs, x: TensorType) -> tuple[Axis, Axis]:
    """The two pooled axes of x. Raises UsageError."""
    if len(x.shape) not in (3, 4):
        raise UsageError(f"{op}: x must have 3 or 4 axes, got {x}.")
    given = _pairs(op, attrs)
    high, wide = (Axis(size, *(g[k] for g in given)) for k, size in enumerate(x.shape[-2:]))
    return high, wide


def _result_shape(op: str, attrs: Attrs, x: TensorType) -> tuple[int, ...]:
    sizes = []
    for axis in axes(op, attrs, x):
        count = axis.outputs(flag(attrs, "ceil_mode"))
        if count < 1 or not axis.covered(count):
            raise UsageError(f"{op}: an output of {x} would have no element to look at.")
        sizes.append(count)
    return (*x.shape[:-2], *sizes)


def _infer_forward(attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(FORWARD, inputs, 1)
    check_dtype(FORWARD, x, FLOATS)
    shape = _result_shape(FORWARD, attrs, x)
    return TensorType("f32", shape), TensorType("i64", shape)


def _run_forward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.max_pool2d(operand(inputs, 0), *_pairs(FORWARD, attrs), outputs[0], outputs[1])


def _infer_backward(attrs: Attrs, inputs: Types) -> Result:
    grad, x, index = operands(BACKWARD, inputs, 3)
    for t in (grad, x):
        check_dtype(BACKWARD, t, FLOATS)
    check_dtype(BACKWARD, index, ("i64",))
    shape = _result_shape(BACKWARD, attrs, x)
    check_shape(BACKWARD, "the gradient", grad, shape)
    check_shape(BACKWARD, "the index", index, shape)
    return (x,)


def _run_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, index, out = operand(inputs, 0), operand(inputs, 2), outputs[0]
    limit = out.shape[-2] * out.shape[-1]
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < limit:
        raise RefusedOperandsError(BACKWARD, f"an index is outside [0, {limit}).")
    _core.max_pool2d_backward(grad, index, out)


register(
    OpSpec(
        name=FORWARD,
        clause="6.15",
        attrs=_ATTRS,
        infer=_infer_forward,
        run=_run_forward,
        op_class="composite",
    )
)
register(
    OpSpec(
        name=BACKWARD,
        clause="6.16",
        attrs=_ATTRS,
        infer=_infer_backward,
        run=_run_backward,
        op_class="scatter",
    )
)
