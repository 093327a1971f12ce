"""Helpers that kernels share: operands of a call, masks as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError

Arrays = Sequence[np.ndarray | None]
Outputs = Sequence[np.ndarray]


def operand(inputs: Arrays, position: int) -> np.ndarray:
    """The array at `position`; the shape rule has refused absent ones."""
    x = inputs[position]
    if x is None:
        raise UsageError(f"Operand {position} is missing.")
    return x


def optional(inputs: Arrays, position: int) -> np.ndarray | None:
    """The array at `position`; None where there is no array."""
    return inputs[position] if position < len(inputs) else None


def padded(arrays: Arrays, count: int) -> list[Any]:
    """The arrays of a call in their places, `count` of them; None for each that is not there."""
    return [*arrays, *[None] * (count - len(arrays))]


def wanted(outputs: Outputs, mask: Sequence[bool]) -> list[np.ndarray | None]:
    """The outputs in their places; None for those masked off."""
    remaining = iter(outputs)
    return [next(remaining) if on else None for on in mask]


def is_f32(x: np.ndarray) -> bool:
    """True if the native kernels take x."""
    return x.dtype == np.float32


def as_bytes(mask: np.ndarray) -> np.ndarray:
    """A bool array as bytes 0 and 1, without a copy: kernels read masks in this form."""
    return mask.view(np.uint8)


def copy(x: np.ndarray, out: np.ndarray) -> None:
    """Copy the bits of x, of any strides, into C-contiguous `out` of the same dtype and shape."""
    _core.copy_strided(*((as_bytes(x), as_bytes(out)) if x.dtype == bool else (x, out)))
