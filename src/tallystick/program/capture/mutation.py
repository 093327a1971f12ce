"""Which operator without mutation gives the values that an in-place or out= operator writes.

Read off ATen's schemas: the in-place operator `add_.Tensor` and `add.out` both belong to
`add.Tensor`, whose arguments are the same but for `out`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from tallystick.program.capture.schema import op_name

# What an out= form of a factory takes from `out` itself.
_PLACE = frozenset({"dtype", "layout", "device", "pin_memory"})


@dataclass(frozen=True)
class Functional:
    """`pure` computes what the operator writes.

    `written` names the operator's written arguments, in the order of the last results of `pure`.
    `out` says that they are its only results, and no operands. A `factory` takes the dtype from
    the written tensor.
    """

    pure: Any
    written: tuple[str, ...]
    out: bool
    factory: bool = False


def is_storage_view(func: Any) -> bool:
    """Whether the operator only changes how a tensor sees its storage: `squeeze_`, `t_`, …"""
    return torch.Tag.inplace_view in func.tags


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _signature(arguments: Any, skip: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in arguments if a.name not in skip]


def _overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return []
    found = [getattr(packet, overload) for overload in packet.overloads()]
    return [op for op in found if not op._schema.is_mutable]


def _pure_name(base: str) -> str:
    if base.startswith("__i"):
        return f"__{base[3:]}"
    return base.removesuffix("_") if not base.endswith("__") else base


@functools.cache
def functional(func: Any) -> Functional | None:
    """The form of `func` without mutation, or None where ATen has none."""
    arguments = func._schema.arguments
    written = tuple(a.name for a in arguments if _written(a))
    out = all(a.kwarg_only for a in arguments if _written(a))
    base = op_name(func).removeprefix("aten.").partition(".")[0]
    wanted = _signature(arguments, frozenset(written) if out else frozenset())
    for pure in _overloads(base if out else _pure_name(base)):
        given = pure._schema.arguments
        if _signature(given) == wanted:
            return Functional(pure, written, out)
        if out and _signature(given, _PLACE) == [w for w in wanted if w[0] not in _PLACE]:
            return Functional(pure, written, out, factory=True)
    # These give the written values after their other results.
    for pure in _overloads(f"{base}_functional"):
        if _signature(pure._schema.arguments) == wanted:
            return Functional(pure, written, out=False)
    return None
