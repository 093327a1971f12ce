"""Known arrays, and the tensors that a program makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Known = np.ndarray

TORCH: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.bool_): torch.bool,
}


def is_plain(array: Known) -> bool:
    """Whether it is one number, repeated."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return array.size > 0 and flat.tobytes() == flat[:1].tobytes() * flat.size


def made_tensor(array: Known, device: torch.device) -> Tensor:
    """A tensor with the values of a known array: a constant of the program (PROGRAM 5.10)."""
    dtype = TORCH[array.dtype]
    if array.size == 0:
        return torch.zeros(array.shape, dtype=dtype, device=device)
    if is_plain(array):
        return torch.full(array.shape, array.flat[0].item(), dtype=dtype, device=device)
    return torch.tensor(array.tolist(), dtype=dtype, device=device)
