"""The tensors of a trace in the places of real ones, whichever reference the code has to those; and
their `x.data`: the same memory, apart from autograd and from the count of changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode


def is_whole(tensor: Tensor) -> bool:
    """Whether the tensor is its whole memory, row by row."""
    size = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == size


def seen_as(made: Tensor, view: Tensor) -> Tensor:
    """What `view`, of a memory, is in `made`, which has this memory's elements row by row."""
    flat = made.detach().reshape(-1)
    if view.numel() == flat.numel() and view.is_contiguous():
        return flat.view(view.shape)
    order = sorted(range(view.dim()), key=lambda axis: -view.stride()[axis])
    if view.permute(order).is_contiguous():  # a run of elements, with its axes in some order
        start = view.storage_offset()
        run = flat[start : start + view.numel()].view(view.permute(order).shape)
        return run.permute([order.index(axis) for axis in range(view.dim())])
    return flat.as_strided(view.shape, view.stride(), view.storage_offset())


class StandIns:
    """By the real tensor: the same object, or one that sees the same memory."""

    def __init__(self, real: Mapping[str, Tensor], placed: Mapping[str, Tensor]) -> None:
        self._by_object: dict[int, tuple[Tensor, Tensor]] = {}
        self._by_memory: dict[int, tuple[Tensor, Tensor]] = {}
        for name, tensor in real.items():
            if name in placed:
                self.add(tensor, placed[name])

    def add(self, real: Tensor, made: Tensor) -> None:
        """`made` stands for `real`, and for every view of it where that is its whole memory."""
        self._by_object[id(real)] = real, made
        if not real.is_meta and real.layout == torch.strided and is_whole(real):
            self._by_memory[real.untyped_storage()._cdata] = real, made

    def is_memory_of(self, value: Tensor) -> bool:
        """Whether `value` is of the memory of a tensor that stands for another."""
        memory = value.untyped_storage()._cdata
        return any(m.untyped_storage()._cdata == memory for _, m in self._by_object.values())

    def of(self, value: object) -> Tensor | None:
        """The tensor of the trace that stands for `value`, or None."""
        if not isinstance(value, Tensor):
            return None
        found = self._by_object.get(id(value))
        if found is not None:
            return found[1]
        if value.is_meta or value.requires_grad or not self._by_memory:
            return None
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            return None
        if value.layout != torch.strided:
            return None
        known = self._by_memory.get(value.untyped_storage()._cdata)
        if known is None or known[0].dtype != value.dtype:
            return None
        with torch._C.DisableTorchFunction():
            made = seen_as(known[1], value)
        self._by_object[id(value)] = value, made
        return made


GET_DATA: Any = vars(torch._C.TensorBase)["data"].__get__
SET_DATA: Any = vars(torch._C.TensorBase)["data"].__set__


def apart(x: Tensor) -> Tensor:
    """`x.data`, which torch hands out past the trace, as a tensor that the trace knows."""
    mode = get_proxy_mode()
    detached = x.detach()
    with torch._C.DisableTorchFunction():
        made: Tensor = GET_DATA(detached)
    slots: Any = None if mode is None else mode.tracer.tensor_tracker
    if slots is not None and detached in slots:
        slots[made] = slots[detached]
    return made


def is_written(x: Tensor, parts: Sequence[Tensor]) -> bool:
    """Whether `x`, or its memory in one of `parts`, was changed in place."""
    memory = x.untyped_storage()._cdata
    return x._version > 0 or any(
        part._version > 0 and part.untyped_storage()._cdata == memory for part in parts
    )
