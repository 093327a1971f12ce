"""Calls of a traced model that would take numbers from outside of the trace: factories on a named
device, which is that of the trace (PROGRAM 5.10), and slices at a place that is a tensor.

A trace runs on meta tensors. On a device that has storage torch's own kernels would make the
values, and the program would have their bits in place of the contract's.

`bank[at : at + 8]` is such a slice where `at` is a tensor of the trace, and the length a number:
torch would read the tensor. A slice that goes on past the end, which torch would shorten, has no
such program: its positions are out of range, which ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from tallystick.errors import UsageError
from tallystick.program.capture.eager import is_storage
from tallystick.program.capture.schema import op_name
from tallystick.program.capture.source import here

# Those that make tensors from Python's data have replacements of their own.
_FACTORIES = frozenset({
    torch.empty, torch.empty_permuted, torch.empty_strided, torch.empty_like,
    torch.zeros, torch.zeros_like, torch.ones, torch.ones_like, torch.full, torch.full_like,
    torch.arange, torch.range, torch.linspace, torch.logspace, torch.eye,
    torch.tril_indices, torch.triu_indices, torch.fft.fftfreq, torch.fft.rfftfreq,
    torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.hann_window,
    torch.kaiser_window, torch.sparse_coo_tensor,
    Tensor.new_empty, Tensor.new_empty_strided, Tensor.new_full, Tensor.new_ones, Tensor.new_zeros,
})  # fmt: skip

# A tensor of the trace stays where it is.
STAY = frozenset({Tensor.cpu, Tensor.cuda})


def is_place(value: Any) -> bool:
    """Whether `value` names a device."""
    text = str(value) if isinstance(value, (str, torch.device)) else ""
    return text.partition(":")[0] in ("cpu", "cuda", "meta", "mps", "xpu")


def on_trace(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device) -> Any:
    """`args` and `kwargs`; the device of a factory or of `Tensor.to` is that of the trace."""
    if func is Tensor.to:
        args = (args[0], *(device if is_place(a) else a for a in args[1:]))
    elif func not in _FACTORIES:
        return args, kwargs
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": device}
    return args, kwargs


def node_of(tensor: Tensor) -> fx.Node | None:
    """The node of the trace in progress that made `tensor`, where one did."""
    mode = get_proxy_mode()
    if mode is None:
        return None
    slot = get_proxy_slot(tensor, mode.tracer, None)
    proxy = getattr(slot, "proxy", None)
    return None if proxy is None else proxy.node


def refuse_computed(tensor: Tensor) -> None:
    """Raises UsageError for a tensor with content that a kernel of torch computed in the trace."""
    if not tensor.is_floating_point():
        return
    node = node_of(tensor)
    target = None if node is None else node.target
    if isinstance(target, torch._ops.OpOverload) and not is_storage(target):
        raise UsageError(
            f"torch computed {op_name(target)} by itself while the model was traced{here()}: its "
            "bits would be those of this machine.",
            "Call the function of torch's Python interface, or compute the tensor in the module's "
            "constructor and register it as a buffer.",
        )


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
