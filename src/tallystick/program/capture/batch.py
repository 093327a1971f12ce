"""The types of a batch, from example tensors, meta tensors, or (shape, dtype) pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick.errors import UsageError
from tallystick.numerics.types import DTYPE_NAMES, TensorType
from tallystick.program.capture.schema import DTYPES, type_of_tensor

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
            f"Batch tensor {name!r}: {given!r} is not a dtype.", "Use torch.int64, 'i64', np.int64."
        ) from None


def anew(tensor: Tensor) -> Tensor:
    """Another tensor of that layout, without storage."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class NoSuchTensorError(KeyError):
    """A model or a loss asked the batch for a name that it does not have."""


class Batch(dict[str, Tensor]):
    """The batch that the loss gets: a dict that says which names it has."""

    def __missing__(self, name: Any) -> Tensor:
        raise NoSuchTensorError(
            f"The batch has no {name!r}; it has {', '.join(map(repr, self)) or 'no tensor'}"
        )


_NAMED = "Give a dict of one batch: a tensor, an array or a pair (shape, dtype) by name."


def _check_names(batch: Any) -> None:
    if not isinstance(batch, Mapping):
        kind = type(batch).__name__
        if isinstance(batch, (tuple, list)):
            names = ", ".join(f'"{n}": batch[{i}]' for i, n in enumerate("xyzuvw"[: len(batch)]))
            raise UsageError(
                f"The batch is a {kind}, but a program needs a name for each tensor.",
                f"Name them: {{{names}}}." if names else _NAMED,
            )
        if hasattr(batch, "__iter__") or hasattr(batch, "__getitem__"):
            raise UsageError(
                f"The batch is a {kind}.", f"Take one batch from it: next(iter(...)). {_NAMED}"
            )
        raise UsageError(f"The batch is a {kind}.", _NAMED)
    for name in batch:
        if not isinstance(name, str):
            raise UsageError(f"The batch has a name {name!r} that is not a string.", _NAMED)


def _type_of(name: str, item: Any) -> tuple[tuple[int, ...], torch.dtype]:
    if isinstance(item, (Tensor, np.ndarray)):
        if isinstance(item, Tensor) and item.layout != torch.strided:
            raise UsageError(f"Batch tensor {name!r} is sparse.", "Call to_dense() on it.")
        return tuple(item.shape), _dtype(name, item.dtype)
    if isinstance(item, tuple) and len(item) == 2:
        shape, dtype = item
        sizes = isinstance(shape, (tuple, list)) and all(
            isinstance(n, (int, np.integer)) and n >= 0 for n in shape
        )
        if sizes:
            return tuple(int(n) for n in shape), _dtype(name, dtype)
        if isinstance(dtype, (str, torch.dtype)):
            raise UsageError(
                f"Batch item {name!r} has the shape {shape!r}.",
                "Pass a pair (shape, dtype) whose shape has non-negative integers.",
            )
    found = f"Batch item {name!r} is a {type(item).__name__}"
    if isinstance(item, (list, tuple)):
        try:
            shape = np.shape(item)
        except ValueError:
            raise UsageError(
                f"{found} whose rows have different lengths.",
                "Pad them to one length (torch.nn.utils.rnn.pad_sequence), with a mask if needed.",
            ) from None
        raise UsageError(
            f"{found} of shape {shape}.",
            "Turn it into a tensor (torch.tensor(...)), or pass a pair (shape, dtype).",
        )  # fmt: skip
    raise UsageError(f"{found}.", "Give a tensor, an array, or a pair (shape, dtype).")


def meta_batch(batch: Mapping[str, Any]) -> Batch:
    """Meta tensors of the batch's types, in bytewise name order.

    Each item is a tensor (real or meta), a numpy array, or a pair (shape, dtype). Raises UsageError
    for anything else.
    """
    _check_names(batch)
    result = Batch()
    for name in sorted(batch):
        shape, dtype = _type_of(name, batch[name])
        result[name] = torch.empty(shape, dtype=dtype, device="meta")
    return result


def batch_types(batch: Mapping[str, Tensor]) -> dict[str, TensorType]:
    """Program types of a meta batch."""
    return {name: type_of_tensor(t, f"batch tensor {name!r}") for name, t in batch.items()}
