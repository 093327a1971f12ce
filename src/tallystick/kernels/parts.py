"""Leading axes along which an operator may be executed part by part, with the same bits.

An element of the result depends, along these axes, only on elements of the operands at its own
index. An operand that has one index there, or lacks the axis, is read whole. So the executor may
call a kernel on parts of its tensors (program/blocks.py). An operator without an entry is executed
whole.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.numerics.attachments import Attachments
from tallystick.numerics.operators.common import axis_of, integer, integers
from tallystick.numerics.registry import operator
from tallystick.numerics.types import Attrs, TensorType

# Over attributes and the type of the first result: the number of such axes.
Leading = Callable[[Attrs, TensorType], int]

_leading: Attachments[Leading] = Attachments("rule of leading axes", "tallystick.kernels.parts")


# The longest sum of a product that is cheaper to compute again than to keep.
_SHORT = 256
_CHEAP = frozenset(
    {"aten._softmax", "aten.where", "aten.masked_fill", "aten.relu", "aten.neg"}
    | {"tallystick.mask_scale", "aten.maximum", "aten.minimum"}
    | {f"aten.{name}.{form}" for name in ("add", "sub", "mul") for form in ("Tensor", "Scalar")}
)


def is_cheap(op: str, first: TensorType) -> bool:
    """True if `op`, whose first operand has the type `first`, costs little more than to write its
    result and to read it again."""
    return first.shape[2] <= _SHORT if op == "aten.bmm" else op in _CHEAP


def leading_axes(op: str, attrs: Attrs, result: TensorType) -> int:
    """The number of leading axes of `result`, the first of `op`, that parts may be cut along."""
    rule = _leading.table.get(op)
    if rule is not None:
        return rule(attrs, result)
    spec = operator.get(op)
    if spec is None or spec.op_class == "optimizer" or not spec.forms:
        return 0
    return 0 if any(form.reads_size for form in spec.forms) else len(result.shape)


@_leading("aten.where", "aten.masked_fill")
def _every(_attrs: Attrs, result: TensorType) -> int:
    return len(result.shape)


@_leading(
    "aten._softmax",
    "aten._log_softmax",
    "aten._softmax_backward_data",
    "aten._log_softmax_backward_data",
)
def _before_axis(attrs: Attrs, result: TensorType) -> int:
    return axis_of("softmax", integer(attrs, "dim"), len(result.shape))


@_leading("aten.native_layer_norm")
def _before_normalized(attrs: Attrs, result: TensorType) -> int:
    return len(result.shape) - len(integers(attrs, "normalized_shape"))


@_leading("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax", "aten.amin")
def _before_reduced(attrs: Attrs, result: TensorType) -> int:
    axes = integers(attrs, "dim")
    if not axes or not attrs["keepdim"] or not result.shape:
        return 0
    return min(axis % len(result.shape) for axis in axes)


@_leading("aten.argmax")
def _before_searched(attrs: Attrs, result: TensorType) -> int:
    axis = attrs.get("dim")
    if not isinstance(axis, int) or not attrs["keepdim"] or not result.shape:
        return 0
    return axis % len(result.shape)


@_leading("aten.bmm")
def _batches(_attrs: Attrs, _result: TensorType) -> int:
    return 1
