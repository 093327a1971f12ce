"""Factories of a traced model: a named device is that of the trace (PROGRAM 5.10).

A trace runs on meta tensors. On a device that has storage torch's own kernels would make the
values, and the program would have their bits in place of the contract's.
"""

from __future__ import annotations

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
