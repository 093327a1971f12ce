"""What a recorder reads: of a tensor its type, its bytes, and whether its memory has content; and
the generators of random numbers that a loop may draw from, and what else may decide bits.
"""

from __future__ import annotations

import hashlib
import platform
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.int32: "i32",
    torch.uint8: "u8", torch.bool: "bool", torch.bfloat16: "bf16", torch.float16: "f16",
}  # fmt: skip


class UnwrittenMemory:
    """Memory that was made without content, and which of its elements have been written since."""

    def __init__(self, reference: StorageWeakRef) -> None:
        self.reference = reference
        self._written: Tensor | None = None  # a flag for each element of the memory

    def fills(self, tensor: Tensor) -> bool:
        """Note that `tensor` was written; true once all of the memory is."""
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        if tensor.numel() >= elements:
            return True
        if self._written is None:
            self._written = torch.zeros(elements, dtype=torch.bool)
        part = self._part(tensor)
        if part is None:
            return True
        part.fill_(True)
        return bool(self._written.all())

    def holds(self, tensor: Tensor) -> bool:
        """True if all that `tensor` shows has been written."""
        part = self._part(tensor)
        return part is not None and bool(part.all())

    def _part(self, tensor: Tensor) -> Tensor | None:
        """The flags of a tensor's elements; None where it shows the memory as another type or
        size, so that they are not known."""
        flags, elements = self._written, tensor.untyped_storage().nbytes() // tensor.element_size()
        if flags is None or flags.numel() != elements:
            return None
        return flags.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def is_gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def storage_of(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0  # a sparse or another tensor without a storage of its own


def type_of(tensor: Tensor) -> str:
    name = _NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    return f"{name}[{','.join(map(str, tensor.shape))}]"


def bytes_of(tensor: Tensor) -> bytes | memoryview | None:
    """The bytes of a tensor in the order of its elements; None where it has none to read."""
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return None
    try:
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        flat: Any = plain.view(torch.uint8).numpy()
        return memoryview(flat)
    except (NotImplementedError, RuntimeError, TypeError):
        return None


def device_of(args: Any, kwargs: Mapping[str, Any]) -> torch.device:
    """Where a call computes: as it was asked, or else where its first tensor is."""
    asked = kwargs.get("device")
    if asked is not None:
        return torch.device(asked)
    read = (t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor))
    return next((tensor.device for tensor in read), torch.device("cpu"))


def generator_of(args: Any, kwargs: Mapping[str, Any]) -> torch.Generator:
    """The default generator of the device on which a call computes."""
    device = device_of(args, kwargs)
    if device.type != "cuda" or not torch.cuda.default_generators:
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    found: torch.Generator = torch.cuda.default_generators[index]
    return found


def environment() -> dict[str, str]:
    """What may decide bits and is no part of the loop."""
    generator = torch.default_generator
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "mkldnn": str(torch.backends.mkldnn.enabled),
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "default type": str(torch.get_default_dtype()).removeprefix("torch."),
        "flush denormal": str(bool(torch.tensor(1e-40) * 1 == 0)),
        "torch seed": str(generator.initial_seed()),
        "torch generator": _state(bytes(bytes_of(generator.get_state()) or b"")),
        "numpy generator": _state(_numpy_state()),
        "python generator": _state(repr(random.getstate()).encode()),
    }


def outside_generators() -> dict[str, object]:
    """The states of the generators outside of torch."""
    return {"numpy": _numpy_state(), "python": random.getstate()}


def _numpy_state() -> bytes:
    found: Any = np.random.get_state()
    return bytes(found[1].tobytes()) + str(found[2]).encode()


def _state(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
