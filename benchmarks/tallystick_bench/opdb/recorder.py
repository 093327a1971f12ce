"""A record of the ATen calls that truly ran, from below the dispatch mode of `reproducible()`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tallystick.program.capture.eager import is_storage
from tallystick.program.capture.schema import op_name


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enter it before `reproducible()`. It then gets every ATen call that the block passes on.

    `storage` and `arithmetic` count the calls that touch a tensor with storage, by the operator's
    name: those that only allocate, move or view storage, and the others. Calls on meta tensors
    compute shapes only, so they are in neither.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storage: Counter[str] = Counter()
        self.arithmetic: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs, result))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if func.namespace != "profiler" and any(t.device.type != "meta" for t in tensors):
            (self.storage if is_storage(func) else self.arithmetic)[op_name(func)] += 1
        return result
