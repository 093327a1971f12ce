"""The operands of a call on a torch device, and the dtypes of NUMERICS 1.1 as torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tallystick.errors import RefusedOperandsError
from tallystick.numerics.types import TensorType

Tensor = torch.Tensor
Tensors = Sequence[Tensor | None]
TORCH_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def type_of(x: torch.Tensor) -> TensorType:
    """The type of a tensor; KeyError for a dtype outside of NUMERICS 1.1."""
    return TensorType(NAMES[x.dtype], tuple(x.shape))


def check_indices(op: str, index: Tensor, size: int) -> None:
    """Every index in [0, size): torch would read or write elsewhere.

    Raises RefusedOperandsError. One flag is read on the host.
    """
    if index.numel() and bool(((index < 0) | (index >= size)).any()):
        raise RefusedOperandsError(op, f"an index is outside [0, {size}).")
