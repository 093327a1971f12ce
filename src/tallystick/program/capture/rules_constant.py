"""Rules for constants, random numbers and updates in the middle of a step (PROGRAM 5.16), which
torch's dispatcher carries as our own operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from tallystick.errors import UsageError
from tallystick.program.capture.constants import MOST_ELEMENTS, bits_of
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.schema import DTYPES, type_of_tensor
from tallystick.program.ir import Value
from tallystick.program.update_base import Given

_EXACT_F32, _EXACT_F64 = 1 << 24, 1 << 53
_SHORTEST_RANGE = 3


@lowering("tallystick.constant")
def _constant(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return write_constant(lo, a["bits"], a["shape"], DTYPES[a["dtype"]])


@lowering("tallystick.number")
def _number(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """A number of the step, rounded once (PROGRAM 5.21)."""
    scalar = lo.b.scalar(a["name"])
    return Given(lo.b, {}, {}, None, ()).single(scalar)


@lowering("get_attr")
def _held(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """A tensor that reached the graph past the replacements: its content as a constant."""
    tensor = a["tensor"]
    fits = isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu"
    if not fits or tensor.numel() > MOST_ELEMENTS:
        raise UsageError(
            "The model uses a tensor that is neither parameter, buffer nor batch.",
            "Register it as a buffer (register_buffer), so that it is part of the state.",
        )
    type_ = type_of_tensor(tensor, "a constant")
    return write_constant(lo, bits_of(tensor), type_.shape, type_.dtype)


def write_constant(lo: Lowerer, bits: Sequence[int], shape: Sequence[int], dtype: str) -> Value:
    """Nodes with this content: equal runs by `full`, whole numbers in steps by `arange`."""
    if not bits:
        return lo.full(shape, 0, dtype)
    if bits.count(bits[0]) == len(bits):
        return _filled(lo, shape, _values(bits[:1], dtype)[0], dtype)
    rows = shape[0] if shape else 1
    width = len(bits) // rows
    if rows > 1 and all(
        bits[:width] == bits[at : at + width] for at in range(width, len(bits), width)
    ):
        row = write_constant(lo, bits[:width], (1, *shape[1:]), dtype)
        return lo.expand(row, shape)
    parts = list(_parts(lo, bits, dtype))
    whole = parts[0] if len(parts) == 1 else lo.emit("aten.cat", *parts, dim=0)
    return lo.view(whole, shape)


def _values(bits: Sequence[int], dtype: str) -> list[Any]:
    if dtype not in ("f32", "f64"):
        return list(bits)
    kinds = (np.int32, np.float32) if dtype == "f32" else (np.int64, np.float64)
    found: list[Any] = np.array(bits, kinds[0]).view(kinds[1]).tolist()
    return found


def _parts(lo: Lowerer, bits: Sequence[int], dtype: str) -> Iterator[Value]:
    """1-D pieces in order, each as long as it can be."""
    values, at = _values(bits, dtype), 0
    while at < len(bits):
        end = at + 1
        while end < len(bits) and bits[end] == bits[at]:
            end += 1
        far = _range_end(values, bits, at, dtype)
        if far - at >= _SHORTEST_RANGE and far > end:
            step = values[at + 1] - values[at]
            yield lo.emit(
                "aten.arange",
                start=values[at],
                end=values[far - 1] + step,
                step=step,
                dtype=dtype,
            )
            end = far
        else:
            yield _filled(lo, (end - at,), values[at], dtype)
        at = end


def _range_end(values: Sequence[Any], bits: Sequence[int], at: int, dtype: str) -> int:
    """The end of the longest row of whole numbers with one step ≠ 0 that begins at `at`."""
    limit = {"i64": _EXACT_F64, "f32": _EXACT_F32}.get(dtype, 0)

    def fits(i: int) -> bool:
        v = values[i]
        whole = math.isfinite(v) and v == int(v) and abs(v) < limit
        return whole and not (v == 0 and bits[i] != 0)

    if at + 1 >= len(values) or not (fits(at) and fits(at + 1)):
        return at + 1
    step = values[at + 1] - values[at]
    if step == 0 or abs(step) >= limit:
        return at + 1
    end = at + 2
    while end < len(values) and fits(end) and values[end] - values[end - 1] == step:
        end += 1
    return end if abs(values[end - 1] + step) < limit else at + 1


def _filled(lo: Lowerer, shape: Sequence[int], value: Any, dtype: str) -> Value:
    if dtype == "i64" and abs(value) > _EXACT_F64 and value & 0xFFFFFFFF:
        return lo.in_halves(shape, value)
    return lo.full(shape, value, dtype)


@lowering("tallystick.update")
def _update(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    assert lo.updates is not None  # only a step with several optimizers traces such a node
    return lo.updates(
        a["number"],
        [lo.value(p) for p in a["parameters"]],
        [lo.value(g) for g in a["gradients"]],
    )
