"""The operands of a call of a kernel on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.errors import UsageError

Tensors = Sequence[DeviceTensor | None]
Outputs = Sequence[DeviceTensor]


def operand(inputs: Tensors, position: int) -> DeviceTensor:
    """The tensor at `position`; the shape rule has refused absent ones."""
    x = inputs[position]
    if x is None:
        raise UsageError(f"Operand {position} is missing.")
    return x


def optional(inputs: Tensors, position: int) -> DeviceTensor | None:
    """The tensor at `position`; None where there is none."""
    return inputs[position] if position < len(inputs) else None
