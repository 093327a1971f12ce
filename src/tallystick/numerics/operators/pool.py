"""Max pooling over planes, and its gradient (NUMERICS 6.15, 6.16)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    INTS,
    Result,
    Types,
    check_dtype,
    check_shape,
    declares,
    flag,
    only,
    operands,
    pair,
)
from tallystick.numerics.operators.movement import scattered
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import Expr, convert, primitive
from tallystick.numerics.values.positions import (
    Part,
    as_index,
    element,
    entry,
    extent,
    extremum,
    local,
    part,
    read,
    term,
)

_ATTRS = {
    "kernel_size": INTS,
    "stride": INTS,  # ATen's default is the kernel_size, which a program writes out
    "padding": AttrSpec("ints", (0, 0)),
    "dilation": AttrSpec("ints", (1, 1)),
    "ceil_mode": AttrSpec("bool", False),
}

# Larger attributes are refused: no model needs them, and checking them would take time.
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
        """The number of outputs; not positive where the kernel does not fit."""
        room = self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        count = (-(-room // self.stride) if ceil_mode else room // self.stride) + 1
        return count - (ceil_mode and (count - 1) * self.stride >= self.size + self.padding)

    def covered(self, count: int) -> bool:
        """True if each of `count` outputs has a tap. From origin 0 on, the last output decides."""
        before = min(count, -(-self.padding // self.stride))
        return all(self.taps(j) for j in (*range(before), count - 1))

    def taps(self, output: int) -> range:
        """The taps of an output inside the axis, ascending."""
        origin, d = output * self.stride - self.padding, self.dilation
        first = -(-max(0, -origin) // d)
        return range(origin + first * d, min(self.size, origin + (self.kernel - 1) * d + 1), d)


def sides(op: str, attrs: Attrs) -> list[tuple[int, int]]:
    """Kernel, stride, padding and dilation. Raises UsageError."""
    named = (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
    return [pair(op, attrs, name, low, _MAX_SIDE) for name, low in named]


def axes(op: str, attrs: Attrs, x: TensorType) -> tuple[Axis, Axis]:
    """The two pooled axes of x. Raises UsageError."""
    if len(x.shape) not in (3, 4):
        raise UsageError(f"{op}: x must have 3 or 4 axes, got {x}.")
    given = sides(op, attrs)
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


_HERE = element()


def _plane(name: str) -> Expr:
    """The elements of a plane of an operand."""
    return extent(name, -2) * extent(name, -1)


def _taps(axis: int, output: Expr) -> tuple[Expr, Expr]:
    """The first tap inside x of an output along pooled axis 0 or 1, and how many there are."""
    size = extent("x", axis - 2)
    kernel, stride, padding, dilation = (
        entry(name, axis) for name in ("kernel_size", "stride", "padding", "dilation")
    )
    origin = output * stride
    before = (primitive("max", padding - origin, 0) + dilation - 1) // dilation
    within = (size + padding - origin + dilation - 1) // dilation
    return origin + before * dilation - padding, primitive("min", kernel, within) - before


def _pooled() -> tuple[Part, Part]:
    wide, column = extent("", -1), _HERE % extent("", -1)
    (top, rows), (left, columns) = _taps(0, _HERE // wide % extent("", -2)), _taps(1, column)
    base = _HERE // _plane("") * _plane("x")

    def place(tap: Expr) -> Expr:
        """Position in the plane of a tap by number; as taps ascend, so do positions (6.15)."""
        y = top + tap // columns * entry("dilation", 0)
        return y * extent("x", -1) + left + tap % columns * entry("dilation", 1)

    count = rows * columns
    winner = extremum("tap", count, read("x", base + place(term())), "argmax")
    # A number that both parties made up gives some tap, so no element outside is asked for.
    at = place(as_index(part(winner)) % count)
    return local("y", read("x", base + at)), local("index", convert(at, "i64"))


_composite, _scatter = declares("composite"), declares("scatter")


@_composite("aten.max_pool2d_with_indices", "6.15", ("x",), _pooled(), _ATTRS, is_exact=True)
def _forward(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = only(op, inputs, FLOATS)
    shape = _result_shape(op, attrs, x)
    return TensorType("f32", shape), TensorType("i64", shape)


def _pool_gradient() -> Part:
    size, sources = _plane("x"), _plane("grad")
    at = _HERE // size * sources + term()
    return scattered(sources, read("index", at, "i64"), size, _HERE % size, read("grad", at))


@_scatter(
    "aten.max_pool2d_with_indices_backward",
    "6.16",
    ("grad", "x", "index"),
    _pool_gradient(),
    _ATTRS,
)
def _backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    grad, x, index = operands(op, inputs, 3)
    for t in (grad, x):
        check_dtype(op, t, FLOATS)
    check_dtype(op, index, ("i64",))
    shape = _result_shape(op, attrs, x)
    check_shape(op, "the gradient", grad, shape)
    check_shape(op, "the index", index, shape)
    return (x,)
