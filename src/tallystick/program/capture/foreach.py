"""`aten._foreach_…`: a list operator is its plain operator on each element, one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_PREFIX = "aten::_foreach_"
_ATEN = torch.ops.aten


def _norm(x: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return _ATEN.linalg_vector_norm.default(x, ord, None, False, dtype=dtype)


def _addc(name: str) -> Callable[..., Any]:
    packet = getattr(_ATEN, name)
    return lambda x, tensor1, tensor2, value=1: packet.default(x, tensor1, tensor2, value=value)


def _limit(name: str) -> Callable[..., Any]:
    """A minimum or maximum with a tensor or a number."""
    plain, limit = {
        "maximum": (_ATEN.maximum.default, _ATEN.clamp_min.default),
        "minimum": (_ATEN.minimum.default, _ATEN.clamp_max.default),
        "clamp_min": (_ATEN.maximum.default, _ATEN.clamp_min.default),
        "clamp_max": (_ATEN.minimum.default, _ATEN.clamp_max.default),
    }[name]
    return lambda x, other: (plain if isinstance(other, Tensor) else limit)(x, other)


def _lerp(x: Tensor, end: Tensor, weight: Any) -> Any:
    return (_ATEN.lerp.Tensor if isinstance(weight, Tensor) else _ATEN.lerp.Scalar)(x, end, weight)


def _pow(x: Any, exponent: Any) -> Any:
    if not isinstance(x, Tensor):
        return _ATEN.pow.Scalar(x, exponent)
    form = _ATEN.pow.Tensor_Tensor if isinstance(exponent, Tensor) else _ATEN.pow.Tensor_Scalar
    return form(x, exponent)


def _arithmetic(name: str) -> Callable[..., Any]:
    packet = getattr(_ATEN, name)

    def call(x: Tensor, other: Any, **alpha: Any) -> Any:
        return (packet.Tensor if isinstance(other, Tensor) else packet.Scalar)(x, other, **alpha)

    return call


_PLAIN: dict[str, Callable[..., Any]] = {
    **{name: _arithmetic(name) for name in ("add", "sub", "mul", "div")},
    **{name: _limit(name) for name in ("maximum", "minimum", "clamp_min", "clamp_max")},
    **{name: _addc(name) for name in ("addcmul", "addcdiv")},
    "lerp": _lerp,
    "pow": _pow,
    "norm": _norm,
    "max": _ATEN.max.default,
    "mm": _ATEN.mm.default,
    "copy": _ATEN.copy.default,
    "zero": _ATEN.zeros_like.default,
    "clone": _ATEN.clone.default,
}


def foreach(func: Any) -> Callable[..., list[Any]] | None:
    """The list operator as plain operators on its elements, or None where `func` is none."""
    schema = func._schema
    if not schema.name.startswith(_PREFIX) or schema.is_mutable:
        return None
    name = schema.name.removeprefix(_PREFIX)
    plain = _PLAIN.get(name)
    if plain is None:
        packet = getattr(_ATEN, name, None)
        if packet is None or "default" not in packet.overloads():
            return None
        plain = packet.default
    return functools.partial(_one_by_one, func, plain)


def _one_by_one(func: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    arguments = func._schema.arguments
    listed = [str(a.type) in ("List[Tensor]", "List[number]") for a in arguments]
    count = next(len(v) for v, many in zip(args, listed, strict=False) if many)
    results = []
    for i in range(count):
        given = [v[i] if many else v for v, many in zip(args, listed, strict=False)]
        results.append(plain(*given, **kwargs))
    return results
