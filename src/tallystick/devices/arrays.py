"""Helpers that kernels share: operands of a call, masks as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallystick import _core

Arrays = Sequence[np.ndarray | None]
Outputs = Sequence[np.ndarray]


def is_f32(x: np.ndarray) -> bool:
    """True if the native kernels take x."""
    return x.dtype == np.float32


def as_bytes(mask: np.ndarray) -> np.ndarray:
    """A bool array as bytes 0 and 1, without a copy: kernels read masks in this form."""
    return mask.view(np.uint8)


def copy(x: np.ndarray, out: np.ndarray) -> None:
    """Copy the bits of x, of any strides, into C-contiguous `out` of the same dtype and shape."""
    kind = {1: np.uint8, 2: np.uint16}.get(x.itemsize)  # of the others the core knows the dtypes
    _core.copy_strided(*((x, out) if kind is None else (x.view(kind), out.view(kind))))
