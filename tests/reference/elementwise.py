"""Elementwise arithmetic, comparisons, conversions (NUMERICS 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reference.exact import ELEMENTARY, elementary, power
from reference.floats import F32, fma, maximum, minimum, rn32, rn32_int
from reference.language import converted
from reference.move import DTYPES, constant

Inputs = list[Any]
Attrs = dict[str, Any]


def _second(attrs: Attrs, inputs: Inputs) -> np.ndarray:
    """The second operand: a tensor, or `other` in the first one's dtype (10.1)."""
    return inputs[1] if len(inputs) > 1 else constant(attrs["other"], inputs[0].dtype)


def _wrap(values: np.ndarray) -> np.ndarray:
    """Python integers modulo 2^64 (10.8)."""
    flat = [(int(v) + 2**63) % 2**64 - 2**63 for v in values.reshape(-1)]
    return np.array(flat, np.int64).reshape(values.shape)


def _objects(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.asarray(x).astype(object))


def _add(attrs: Attrs, inputs: Inputs, sign: int) -> list[np.ndarray]:
    a, b = inputs[0], _second(attrs, inputs)
    if a.dtype == np.int64:
        return [_wrap(np.asarray(_objects(a) + sign * int(attrs["alpha"]) * _objects(b), object))]
    if attrs["alpha"] != 1:
        return [fma(F32(sign) * rn32(attrs["alpha"]), b, a)]
    return [a + b if sign > 0 else a - b]


def _mul(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    a, b = inputs[0], _second(attrs, inputs)
    if a.dtype == np.int64:
        return [_wrap(np.asarray(_objects(a) * _objects(b), object))]
    return [a * b]


def _div(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    return [inputs[0] / _second(attrs, inputs)]


def _larger(a: Any, b: Any) -> np.ndarray:
    return maximum(a, b) if np.asarray(a).dtype == F32 else np.where(a > b, a, b)


def _smaller(a: Any, b: Any) -> np.ndarray:
    return minimum(a, b) if np.asarray(a).dtype == F32 else np.where(a < b, a, b)


def _clamp(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    if "min" in attrs:
        x = _larger(x, constant(attrs["min"], inputs[0].dtype))
    if "max" in attrs:
        x = _smaller(x, constant(attrs["max"], inputs[0].dtype))
    return [x]


def _floor_divide(_attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    """Python's own division of integers rounds down (10.10)."""
    a, b = np.broadcast_arrays(*inputs)
    flat = [int(v) // int(w) for v, w in zip(a.reshape(-1), b.reshape(-1), strict=True)]
    return [_wrap(np.array(flat, object)).reshape(a.shape)]


def _shifted(inputs: Inputs, left: bool) -> list[np.ndarray]:
    """10.11, with Python's integers, whose shift to the right rounds down."""
    a, b = np.broadcast_arrays(*inputs)

    def one(v: int, by: int) -> int:
        if not 0 <= by <= 63:
            return 0 if left or v >= 0 else -1
        return v * 2**by if left else v // 2**by

    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    return [_wrap(np.array([one(*p) for p in pairs], object)).reshape(a.shape)]


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _comparison(name: str) -> Callable[[Attrs, Inputs], list[np.ndarray]]:
    return lambda attrs, x: [np.asarray(_COMPARE[name](x[0], _second(attrs, x)), bool)]


def _sign_bit(x: np.ndarray, flip: bool) -> np.ndarray:
    bits = x.view(np.uint32)
    changed = bits ^ np.uint32(0x80000000) if flip else bits & np.uint32(0x7FFFFFFF)
    return np.asarray(changed, np.uint32).view(F32)


def _pow(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,), e = inputs, attrs["exponent"]
    if e == 1:
        return [x]
    if e == 2:
        return [x * x]
    if e == 3:
        return [(x * x) * x]
    if e == 0.5:
        return [np.sqrt(x)]
    if e == -0.5:
        return [elementary("rsqrt", x)]
    if e == -1:
        return [F32(1.0) / x]
    return [power(x, rn32(e))]


def _to_copy(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,), wanted = inputs, attrs["dtype"]
    if x.dtype in (DTYPES["bf16"], DTYPES["f16"]):
        stored = "bf16" if x.dtype == DTYPES["bf16"] else "f16"
        bits = np.frombuffer(np.ascontiguousarray(x).tobytes(), "<u2")
        wide = np.array([converted(int(b), stored, wanted) for b in bits], np.uint32)
        return [wide.view(F32).reshape(x.shape)]
    if wanted == "bool":
        return [np.asarray(x != 0, bool)]
    if wanted == "f32" and x.dtype == np.int64:
        flat = np.array([rn32_int(int(v)) for v in x.reshape(-1)], F32)
        return [flat.reshape(x.shape)]
    values = [int(v) for v in x.reshape(-1)]  # int() truncates toward zero
    if wanted == "u8":
        values = [v % 2**8 for v in values]
    if wanted == "i32":
        values = [(v + 2**31) % 2**32 - 2**31 for v in values]
    return [np.array(values, DTYPES[wanted]).reshape(x.shape)]


def _folded(xs: Inputs) -> Any:
    """The split of COMMITMENTS 2.3, as 10.12 writes it."""
    if len(xs) == 1:
        return xs[0]
    k = 1
    while 2 * k < len(xs):
        k = 2 * k
    return _folded(xs[:k]) + _folded(xs[k:])


def _fold(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    total = _folded(inputs)
    return [total / rn32_int(attrs.get("count", len(inputs))) if attrs["mean"] else total]


def _elementary(name: str) -> Callable[[Attrs, Inputs], list[np.ndarray]]:
    return lambda _attrs, x: [elementary(name, x[0])]


ELEMENTWISE: dict[str, Callable[[Attrs, Inputs], list[np.ndarray]]] = {
    "aten.maximum": lambda a, x: [_larger(x[0], x[1])],
    "aten.minimum": lambda a, x: [_smaller(x[0], x[1])],
    "aten.clamp": _clamp,
    "aten.floor_divide": _floor_divide,
    "aten.logical_and": lambda a, x: [x[0] & x[1]],
    "aten.logical_or": lambda a, x: [x[0] | x[1]],
    "aten.logical_not": lambda a, x: [~x[0]],
    "aten.bitwise_and.Tensor": lambda a, x: [x[0] & x[1]],
    "aten.bitwise_or.Tensor": lambda a, x: [x[0] | x[1]],
    "aten.bitwise_xor.Tensor": lambda a, x: [x[0] ^ x[1]],
    "aten.bitwise_left_shift.Tensor": lambda a, x: _shifted(x, True),
    "aten.bitwise_right_shift.Tensor": lambda a, x: _shifted(x, False),
    "aten.bitwise_not": lambda a, x: [~x[0]],
    "aten.neg": lambda a, x: [_sign_bit(x[0], True)],
    "aten.abs": lambda a, x: [_sign_bit(x[0], False)],
    "aten.reciprocal": lambda a, x: [F32(1.0) / x[0]],
    "aten.sqrt": lambda a, x: [np.sqrt(x[0])],
    "aten.square": lambda a, x: [x[0] * x[0]],
    "aten.pow.Tensor_Scalar": _pow,
    "aten._to_copy": _to_copy,
    "tallystick.fold": _fold,
}
for _form in ("Tensor", "Scalar"):
    ELEMENTWISE[f"aten.add.{_form}"] = lambda a, x: _add(a, x, 1)
    ELEMENTWISE[f"aten.sub.{_form}"] = lambda a, x: _add(a, x, -1)
    ELEMENTWISE[f"aten.mul.{_form}"] = _mul
    ELEMENTWISE[f"aten.div.{_form}"] = _div
    for _name in _COMPARE:
        ELEMENTWISE[f"aten.{_name}.{_form}"] = _comparison(_name)
for _name in ELEMENTARY:
    ELEMENTWISE[f"aten.{_name}"] = _elementary(_name)
