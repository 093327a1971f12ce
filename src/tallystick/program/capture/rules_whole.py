"""Rules for integers: division and bits (NUMERICS 10.10, 10.11)."""

from __future__ import annotations

from typing import Any

from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.schema import short_name
from tallystick.program.ir import Value


def whole(lo: Lowerer, node: fx.Node, x: Any) -> Value:
    """An operand as i64, where the node's result is i64. Raises UnsupportedOperatorError."""
    if lo.result(node).dtype != "i64":
        raise UnsupportedOperatorError(
            f"Bits of {lo.result(node).dtype} are not defined by the contract.",
            "Convert integers to int64 first (x.long()).",
        )
    if isinstance(x, fx.Node):
        x = lo.value(x)
    return lo.cast(x, "i64") if isinstance(x, Value) else lo.full((), x, "i64")


@lowering("aten.floor_divide", "aten.floor_divide.Scalar")
def _floor_divide(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Of floats: rules_round's composition."""
    if lo.result(node).dtype != "i64":
        return lo.composed(node)
    return lo.emit("aten.floor_divide", *(whole(lo, node, a[k]) for k in ("self", "other")))


_SHORT = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
          "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}  # fmt: skip

_OF_TRUTHS = {"bitwise_and": "aten.logical_and", "bitwise_or": "aten.logical_or",
              "bitwise_xor": "aten.ne.Tensor"}  # fmt: skip


@lowering(
    *(f"aten.bitwise_{n}.{form}" for n in ("and", "or", "xor")
      for form in ("Scalar", "Scalar_Tensor")),
    *(f"aten.bitwise_{n}_shift.{form}" for n in ("left", "right")
      for form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    *(f"aten.{n}.Scalar" for n in _SHORT), "aten.__lshift__.Tensor", "aten.__rshift__.Tensor",
    "aten.bitwise_xor.Tensor", "aten.__xor__.Tensor",
)  # fmt: skip
def of_bits(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """An operator of two integers, bit by bit or as a shift."""
    name = _SHORT.get(short_name(node), short_name(node))
    # Of a truth value and a number. torch does not shift truth values.
    if lo.result(node).dtype == "bool" and name in _OF_TRUTHS:
        left, right = (
            lo.value(v) if isinstance(v, fx.Node) else lo.full((), bool(v), "bool")
            for v in (a["self"], a["other"])
        )
        return lo.emit(_OF_TRUTHS[name], left, right)
    operands = [whole(lo, node, a[k]) for k in ("self", "other")]
    return lo.emit(f"aten.{name}.Tensor", *operands)
