"""The types of a batch, from example tensors, meta tensors, or (shape, dtype) pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick.errors import UsageError
from tallystick.numerics.types import DTYPE_NAMES, TensorType
from tallystick.program.capture.lower import DTYPES, type_of_tensor

_TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def _dtype(name: str, given: Any) -> torch.dtype:
    if isinstance(given, torch.dtype):
        return given
    if given in _TORCH_DTYPES:
        return _TORCH_DTYPES[given]
    try:
        return _TORCH_DTYPES[DTYPE_NAMES[np.dtype(given)]]
    except (TypeError, KeyError):
        raise UsageError(
            f"Batch tensor {name!r}: {given!r} is no dtype.", "Use torch.int64, 'i64', np.int64."
        ) from None


def meta_batch(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Meta tensors of the batch's types, in bytewise name order.

    Each item is a tensor (real or meta), a numpy array, or a pair (shape, dtype).
    """
    result: dict[str, Tensor] = {}
    for name in sorted(batch):
        item = batch[name]
        if isinstance(item, (Tensor, np.ndarray)):
            shape, dtype = tuple(item.shape), _dtype(name, item.dtype)
        elif isinstance(item, tuple) and len(item) == 2:
            shape, dtype = tuple(item[0]), _dtype(name, item[1])
        else:
            raise UsageError(
                f"Batch item {name!r} is a {type(item).__name__}.",
                "Give a tensor, an array, or a pair (shape, dtype).",
            )
        result[name] = torch.empty(shape, dtype=dtype, device="meta")
    return result


def batch_types(batch: Mapping[str, Tensor]) -> dict[str, TensorType]:
    """Program types of a meta batch."""
    return {name: type_of_tensor(t, f"batch tensor {name!r}") for name, t in batch.items()}
