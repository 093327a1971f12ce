"""Operators element by element: of one tensor, and of two and more with the standard's
broadcasting, which is numpy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, allow, broadcast, rule

_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "Exp": torch.exp, "Log": torch.log, "Reciprocal": torch.reciprocal, "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh, "Relu": torch.relu, "Erf": torch.erf, "Sin": torch.sin, "Cos": torch.cos,
    "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan,
    "Sinh": torch.sinh, "Cosh": torch.cosh, "Asinh": torch.asinh, "Acosh": torch.acosh,
    "Atanh": torch.atanh, "Abs": torch.abs, "Neg": torch.neg, "Ceil": torch.ceil,
    "Floor": torch.floor, "Sqrt": torch.sqrt, "Sign": torch.sign, "Round": torch.round,
    "IsNaN": torch.isnan, "Not": torch.logical_not, "BitwiseNot": torch.bitwise_not,
    "Softsign": F.softsign, "Mish": F.mish,
}  # fmt: skip


@rule(
    "Exp 6-13", "Log 6-13", "Reciprocal 6-13", "Sigmoid 6-13", "Tanh 6-13", "Relu 6-14",
    "Erf 9-13", "Sin 7-22", "Cos 7-22", "Tan 7-22", "Asin 7-22", "Acos 7-22", "Atan 7-22",
    "Sinh 9-22", "Cosh 9-22", "Asinh 9-22", "Acosh 9-22", "Atanh 9-22", "Softsign 1-22",
    "Mish 18-22", "IsNaN 9-20", named=True,
)  # fmt: skip
def _unary(name: str, c: OnnxCall) -> Tensor:
    return _PLAIN[name](c.tensor(0))


@rule(
    "Abs 6-13", "Neg 6-13", "Ceil 6-13", "Floor 6-13", "Sqrt 6-13", "Sign 9-13", "Round 11-22",
    "Not 1", "BitwiseNot 18", folds=True, named=True,
)  # fmt: skip
def _exact_unary(name: str, c: OnnxCall) -> Tensor:
    """Exact, or rounded once: known values of these fold to the same bits on every machine."""
    return _PLAIN[name](c.tensor(0))


@rule("Identity 1-25", folds=True)
def _identity(c: OnnxCall) -> Tensor:
    return c.tensor(0)


@rule("IsInf 10-20")
def _is_inf(c: OnnxCall) -> Tensor:
    x, negative, positive = c.tensor(0), c.attr("detect_negative"), c.attr("detect_positive")
    found = torch.zeros_like(x, dtype=torch.bool)
    if positive:
        found = found | (x == math.inf)
    if negative:
        found = found | (x == -math.inf)
    return found


@rule("Elu 6-22", "Celu 12-28", named=True)
def _elu(name: str, c: OnnxCall) -> Tensor:
    x, alpha = c.tensor(0), c.attr("alpha")
    return F.elu(x, alpha) if name == "Elu" else F.celu(x, alpha)


@rule("Selu 6-22")
def _selu(c: OnnxCall) -> Tensor:
    """gamma · (x, or alpha · (eˣ − 1) below zero)."""
    x, alpha, gamma = c.tensor(0), c.attr("alpha"), c.attr("gamma")
    below: Tensor = (torch.exp(torch.clamp(x, max=0.0)) - 1.0) * alpha
    found: Tensor = torch.where(x > 0, x, below) * gamma
    return found


@rule("LeakyRelu 6-16")
def _leaky_relu(c: OnnxCall) -> Tensor:
    return F.leaky_relu(c.tensor(0), c.attr("alpha"))


@rule("PRelu 7-16")
def _prelu(c: OnnxCall) -> Tensor:
    """The slope is broadcast in one direction, to the input's shape."""
    x, slope = c.tensor(0), c.tensor(1)
    return torch.where(x < 0, x * slope, x)


@rule("ThresholdedRelu 10-22")
def _thresholded_relu(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    return torch.where(x > c.attr("alpha"), x, torch.zeros_like(x))


@rule("Shrink 9")
def _shrink(c: OnnxCall) -> Tensor:
    x, bias, lambd = c.tensor(0), c.attr("bias"), c.attr("lambd")
    if not x.is_floating_point():
        raise c.refuse("its input is of integers.")
    above = torch.where(x > lambd, x - bias, torch.zeros_like(x))
    return torch.where(x < -lambd, x + bias, above)


@rule("HardSigmoid 6-22")
def _hard_sigmoid(c: OnnxCall) -> Tensor:
    return torch.clamp(c.tensor(0) * c.attr("alpha") + c.attr("beta"), 0.0, 1.0)


@rule("HardSwish 14-22")
def _hard_swish(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    return x * torch.clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0)


@rule("Softplus 1-22")
def _softplus(c: OnnxCall) -> Tensor:
    """log(1 + eˣ) without overflow: torch's threshold would make it linear above 20."""
    x = c.tensor(0)
    return torch.relu(x) + torch.log1p(torch.exp(-torch.abs(x)))


@rule("Gelu 20")
def _gelu(c: OnnxCall) -> Tensor:
    return F.gelu(c.tensor(0), approximate=c.attr("approximate"))


@rule("Swish 24")
def _swish(c: OnnxCall) -> Tensor:
    x, alpha = c.tensor(0), c.attr("alpha")
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(x * alpha)


@rule("SwiGLU 28")
def _swiglu(c: OnnxCall) -> Tensor:
    a, b, alpha = c.tensor(0), c.tensor(1), c.attr("alpha")
    return (F.silu(a) if alpha == 1.0 else a * torch.sigmoid(a * alpha)) * b


@rule("Softmax 1-13", "LogSoftmax 1-13", "Hardmax 1-13", named=True)
def _softmax(name: str, c: OnnxCall) -> Tensor:
    """From version 13 along one axis; before, over all axes from one on."""
    x, axis = c.tensor(0), c.attr("axis")
    shape = x.shape
    if c.version < 13:
        axis = axis % max(x.dim(), 1)
        x, axis = x.reshape(math.prod(shape[:axis]), math.prod(shape[axis:])), 1
    if name == "Hardmax":
        first = torch.argmax(x, dim=axis, keepdim=True)
        sizes = [1] * x.dim()
        sizes[axis] = x.shape[axis]
        places = torch.arange(x.shape[axis], device=x.device).reshape(sizes)
        found = (places == first).to(x.dtype)
    else:
        found = (F.softmax if name == "Softmax" else F.log_softmax)(x, dim=axis)
    return found.reshape(shape)


@rule("Clip 6-13", settings=(1, 2))
def _clip(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    if c.version < 11:
        return torch.clamp(x, c.attr("min"), c.attr("max"))
    low, high = c.number(1), c.number(2)
    if not c.has(1) and not c.has(2):
        return x
    if (low is None) == c.has(1) or (high is None) == c.has(2):
        low_tensor, high_tensor = c.optional(1), c.optional(2)
        x = x if low_tensor is None else torch.maximum(x, low_tensor)
        return x if high_tensor is None else torch.minimum(x, high_tensor)
    return torch.clamp(x, low, high)


@rule("Dropout 7-22", static=(1, 2))
def _dropout(c: OnnxCall) -> tuple[Tensor, ...]:
    """As the file says, which mostly is: nothing. In torch's modes (`training=True`) it drops."""
    x, asked = c.tensor(0), c.outputs()
    if c.version >= 12:
        ratio, drops = c.number(1), bool(c.number(2))
        ratio = 0.5 if ratio is None else float(ratio)
    else:
        ratio, drops = float(c.attr("ratio", 0.5)), False
    drops = drops or c.training
    seed = c.attr("seed")
    if drops and ratio > 0:
        if seed is not None:
            raise c.refuse("its seed names a generator that is not the contract's.")
        if asked[1:] == [True]:
            raise c.refuse("its mask is an output.")
        return (F.dropout(x, ratio, True),)
    if asked[1:] != [True]:
        return (x,)
    kind = x.dtype if c.version < 10 else torch.bool
    return x, torch.ones(x.shape, dtype=kind, device=x.device)


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
