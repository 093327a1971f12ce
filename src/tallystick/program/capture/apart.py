"""`x.data` in a trace: the same memory, apart from autograd and from the count of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

GET: Any = vars(torch._C.TensorBase)["data"].__get__
SET: Any = vars(torch._C.TensorBase)["data"].__set__


def apart(x: Tensor) -> Tensor:
    """`x.data`, which torch hands out past the trace, as a tensor that the trace knows."""
    mode = get_proxy_mode()
    detached = x.detach()
    with torch._C.DisableTorchFunction():
        made: Tensor = GET(detached)
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
