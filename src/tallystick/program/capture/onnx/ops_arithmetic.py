"""Operators of two tensors and more, with the standard's broadcasting, which is numpy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, allow, broadcast, rule

_Number = int | float | bool


def _operands(c: OnnxCall) -> tuple[Tensor, Tensor | _Number]:
    """Both operands, the second as a Python number where it is known and changes no shape."""
    left, number, known = c.tensor(0), c.number(1), c.known(1)
    shape = tuple(c.array(1).shape) if known is not None else tuple(c.tensor(1).shape)
    allow(c, broadcast(left.shape, shape), left.dtype)
    held = c.node.inputs[1] in c.held
    if number is not None and known is not None and known.ndim <= left.dim() and not held:
        return left, number
    return left, c.tensor(1)


def _divide(a: Tensor, b: Any) -> Tensor:
    """Integers are divided towards zero."""
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


_BINARY: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "Greater": lambda a, b: a > b,
    "LessOrEqual": lambda a, b: a <= b,
    "GreaterOrEqual": lambda a, b: a >= b,
}
_LOGICAL = {
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}  # fmt: skip


@rule(
    "Add 7-14", "Sub 7-14", "Mul 7-14", "Div 7-14", "Equal 7-19", "Less 7-13", "Greater 7-13",
    "LessOrEqual 12-16", "GreaterOrEqual 12-16", folds=True, named=True,
)  # fmt: skip
def _binary(name: str, c: OnnxCall) -> Tensor:
    return _BINARY[name](*_operands(c))


@rule(
    "And 7", "Or 7", "Xor 7", "BitwiseAnd 18", "BitwiseOr 18", "BitwiseXor 18",
    folds=True, named=True,
)  # fmt: skip
def _logical(name: str, c: OnnxCall) -> Tensor:
    return _LOGICAL[name](c.tensor(0), c.tensor(1))


@rule("BitShift 11-28")
def _bit_shift(c: OnnxCall) -> Tensor:
    shift = {"LEFT": torch.bitwise_left_shift, "RIGHT": torch.bitwise_right_shift}
    return shift[c.attr("direction")](c.tensor(0), c.tensor(1))


@rule("Mod 10-28", folds=True)
def _mod(c: OnnxCall) -> Tensor:
    """Of integers with the divisor's sign, or as C's fmod (`fmod`)."""
    a, b = _operands(c)
    return torch.fmod(a, b) if c.attr("fmod") else torch.remainder(a, b)


@rule("Pow 7-15", settings=(1,), folds=True)
def _pow(c: OnnxCall) -> Tensor:
    """The result has the first operand's dtype."""
    base, exponent = _operands(c)
    if isinstance(exponent, Tensor) and exponent.is_floating_point() > base.is_floating_point():
        return torch.pow(base.to(exponent.dtype), exponent).to(base.dtype)
    if isinstance(exponent, float) and not base.is_floating_point():
        return torch.pow(base.to(torch.float32), exponent).to(base.dtype)
    if isinstance(exponent, Tensor) and exponent.dtype != base.dtype:
        exponent = exponent.to(base.dtype)
    return torch.pow(base, exponent)


@rule("Max 6-13", "Min 6-13", folds=True, named=True)
def _extremum(name: str, c: OnnxCall) -> Tensor:
    return reduce(torch.maximum if name == "Max" else torch.minimum, c.tensors())


@rule("Sum 8-13", "Mean 8-13", named=True)
def _sum(name: str, c: OnnxCall) -> Tensor:
    total: Tensor = reduce(torch.add, c.tensors())
    return total / len(c) if name == "Mean" else total


@rule("Where 9-16", folds=True)
def _where(c: OnnxCall) -> Tensor:
    return torch.where(c.tensor(0), c.tensor(1), c.tensor(2))


def _converted(c: OnnxCall, x: Tensor, dtype: torch.dtype) -> Tensor:
    rounds, saturates = c.attr("round_mode"), c.attr("saturate")
    # Both only concern 8-bit floats, which no contract has.
    del rounds, saturates
    return x.to(dtype)


@rule("Cast 6-28", folds=True)
def _cast(c: OnnxCall) -> Tensor:
    return _converted(c, c.tensor(0), c.torch_dtype(c.attr("to")))


@rule("CastLike 15-25", folds=True)
def _cast_like(c: OnnxCall) -> Tensor:
    return _converted(c, c.tensor(0), c.tensor(1).dtype)


@rule("BitCast 26")
def _bit_cast(c: OnnxCall) -> Tensor:
    return c.tensor(0).view(c.torch_dtype(c.attr("to")))
