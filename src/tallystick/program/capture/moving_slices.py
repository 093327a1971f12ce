"""Slices whose place is a tensor of the trace, and whose length is a number: `bank[at : at + 8]`.

torch would read the tensor. A slice that goes on past the end, which torch would shorten, has no
such program: its positions are out of range, which ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.factories import node_of

_ADD = torch.ops.aten.add.Tensor


@dataclass(frozen=True)
class MovingSlice:
    """Along `axis` the elements from `start`, a whole number of the trace, `length` of them."""

    axis: int
    start: Tensor
    length: int

    def positions(self) -> Tensor:
        steps = torch.arange(self.length, dtype=torch.int64, device=self.start.device)
        return self.start.reshape(()).to(torch.int64) + steps

    def get(self, x: Tensor) -> Tensor:
        return x.index_select(self.axis, self.positions())

    def set(self, x: Tensor, value: Any) -> None:
        shape = list(x.shape)
        shape[self.axis] = self.length
        if not isinstance(value, Tensor):
            value = torch.full((), value, dtype=x.dtype, device=x.device)
        x.index_copy_(self.axis, self.positions(), value.to(x.dtype).expand(shape))


def _is_whole(part: Any) -> bool:
    # A comparison of slices would ask the tensors in them.
    return isinstance(part, slice) and part.start is part.stop is part.step is None


def _is_position(value: Any) -> bool:
    whole = isinstance(value, Tensor) and value.is_meta and value.numel() == 1
    return whole and not value.dtype.is_floating_point and value.dtype != torch.bool


def moving_slice(index: Any) -> MovingSlice | None:
    """`[at : at + n]`, or that behind whole axes; None for any other index."""
    parts = index if isinstance(index, tuple) else (index,)
    axis = next((i for i, part in enumerate(parts) if not _is_whole(part)), len(parts) - 1)
    if not parts or not all(_is_whole(part) for part in parts[axis + 1 :]):
        return None
    part = parts[axis]
    if not isinstance(part, slice) or part.step is not None:
        return None
    if not _is_position(part.start) or not _is_position(part.stop):
        return None
    start, stop = node_of(part.start), node_of(part.stop)
    if start is None or stop is None or stop.target is not _ADD or stop.kwargs:
        return None
    length: Any = stop.args[1]
    if stop.args[0] is not start or not isinstance(length, int) or length < 1:
        return None
    return MovingSlice(axis, part.start, length)
