"""Tensors that a program makes by itself: one number repeated, lines of integers, runs of both."""

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
# More pieces than this make a tensor from Python numbers, which capture refuses or commits to.
_PIECES = 1024


def is_plain(array: Known) -> bool:
    """Whether it is one number, repeated."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return array.size > 0 and flat.tobytes() == flat[:1].tobytes() * flat.size


def runs(places: list[int]) -> list[range]:
    """Integers in order, as the ranges of step 1 or −1 that one pass finds."""
    found: list[range] = []
    for place in places:
        last = found[-1] if found else None
        if last is not None and len(last) == 1 and abs(place - last[0]) == 1:
            step = place - last[0]
            found[-1] = range(last[0], place + step, step)
        elif last is not None and len(last) > 1 and place == last.stop:
            found[-1] = range(last.start, last.stop + last.step, last.step)
        else:
            found.append(range(place, place + 1))
    return found


def made_tensor(array: Known, device: torch.device) -> Tensor:
    """A tensor with the values of a known array, made by the program itself."""
    dtype, flat = TORCH[array.dtype], np.ascontiguousarray(array).reshape(-1)
    if array.size == 0:
        return torch.zeros(array.shape, dtype=dtype, device=device)
    if device.type == "cpu" and not _is_traced():
        return torch.from_numpy(np.array(array, order="C"))
    if is_plain(array):
        return torch.full(array.shape, flat[0].item(), dtype=dtype, device=device)
    pieces = _lines(flat) if array.dtype.kind == "i" else _repeated(flat)
    if len(pieces) > _PIECES:
        return torch.tensor(array.tolist(), dtype=dtype, device=device)
    made = [
        torch.arange(piece.start, piece.stop, piece.step, dtype=dtype, device=device)
        if isinstance(piece, range)
        else torch.full((piece[1],), piece[0], dtype=dtype, device=device)
        for piece in pieces
    ]
    return (made[0] if len(made) == 1 else torch.cat(made)).reshape(array.shape)


def _is_traced() -> bool:
    """Whether tensors are looked at by a mode: capture, or the comparison of a first step."""
    return bool(torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack())


def _lines(flat: Known) -> list[Any]:
    """Ranges of integers; one where the whole array is one."""
    if flat.size > 1:
        step = int(flat[1]) - int(flat[0])
        if step and np.array_equal(flat, int(flat[0]) + step * np.arange(flat.size)):
            return [range(int(flat[0]), int(flat[-1]) + (1 if step > 0 else -1), step)]
    repeated = _repeated(flat)
    if len(repeated) * 2 <= flat.size:
        return repeated
    return [*runs([int(n) for n in flat])]


def _repeated(flat: Known) -> list[Any]:
    """Pairs of a number and how often it is repeated, by its bits."""
    bits = flat.view(f"u{flat.dtype.itemsize}")
    starts = np.flatnonzero(np.concatenate([[True], bits[1:] != bits[:-1]]))
    counts = np.diff(np.append(starts, flat.size))
    return [(flat[i].item(), int(n)) for i, n in zip(starts, counts, strict=True)]
