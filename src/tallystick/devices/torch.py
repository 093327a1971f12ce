"""A torch device as a device: a run under the published form stays there (NUMERICS 14.9).

The operands of its calls are torch's tensors, of the dtypes of NUMERICS 1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tallystick.devices.device import ALIGNMENT, Device
from tallystick.errors import EnvironmentRefusedError, RefusedOperandsError, UsageError
from tallystick.numerics.types import DTYPES, TensorType

Tensor = torch.Tensor
Tensors = Sequence[Tensor | None]
TORCH_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def type_of(x: torch.Tensor) -> TensorType:
    """The type of a tensor; KeyError for a dtype outside of NUMERICS 1.1."""
    return TensorType(NAMES[x.dtype], tuple(x.shape))


def check_indices(op: str, index: Tensor, size: int) -> None:
    """Every index in [0, size): torch would read or write elsewhere.

    Raises RefusedOperandsError. One flag is read on the host.
    """
    if index.numel() and bool(((index < 0) | (index >= size)).any()):
        raise RefusedOperandsError(op, f"an index is outside [0, {size}).")


def _device_called(name: str) -> torch.device:
    """The device that torch calls `name`. Raises UsageError, EnvironmentRefusedError."""
    try:
        wanted = torch.device(name)
    except RuntimeError:
        raise UsageError(f"torch knows no device {name[:40]!r}.", "Use cpu, or cuda.") from None
    try:
        return torch.empty(0, device=wanted).device
    # torch raises each of these three for a device that it has no build or no driver for.
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise EnvironmentRefusedError(
            f"torch has no device {name[:40]!r} here: {why[:200]}",
            "Use another device, or install a torch built for this one.",
        ) from None


class TorchDevice(Device):
    """The memory and the kernels of the torch device `name` ("cpu", "cuda", "cuda:1").

    Its tensors are torch's. In a step the batch, the scalars and the key go there; the loss and the
    metrics come back, and the flags by which operators refuse operands (NUMERICS 1.13): of indices,
    targets, keys of draws, and of floats that become integers. A call with an empty operand is
    computed on the host. `kernels` has entries under the published form alone.

    On "cpu" nothing is read on the host either, so that a machine without a GPU can test what holds
    on one; a party trains faster on the processor (devices/cpu.py). What `prepare` sets belongs to
    the process: torch has no other settings. No kernel hashes on the device yet.
    """

    kind = "torch"
    architecture = ""
    takes_blocks = True
    hashes_beside = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self.torch_device = _device_called(name)
        self.name = f"torch:{self.torch_device}"
        # What a contract keeps for this device.
        self.kept: dict[str, Any] = {}

    def allocate(self, nbytes: int) -> Tensor:
        try:
            raw = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8, device=self.torch_device)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            raise MemoryError(f"{self.name} has no {nbytes} bytes left.") from error
        start = -raw.data_ptr() % ALIGNMENT
        return raw[start : start + nbytes]

    def view(
        self, base: Tensor, offset: int, dtype: str, shape: Sequence[int], strides: Sequence[int]
    ) -> Tensor:
        made = torch.empty(0, dtype=TORCH_DTYPES[dtype], device=self.torch_device)
        if 0 in shape:
            return made.reshape(tuple(shape))
        size = DTYPES[dtype].itemsize
        first = base.storage_offset() * base.element_size() + offset
        if first % size or any(stride % size for stride in strides):
            raise AssertionError(f"{dtype} at byte {first}, strides {tuple(strides)}")
        steps = [stride // size for stride in strides]
        # By `set_`, since a view of torch's own keeps the type and the bounds of its base.
        return made.set_(base.untyped_storage(), first // size, tuple(shape), steps)

    def copy(self, source: Tensor, target: Tensor) -> None:
        target.copy_(source)

    def write(self, host: np.ndarray, target: Tensor) -> None:
        ready = host.flags.writeable and host.flags.c_contiguous
        target.copy_(torch.from_numpy(host if ready else np.array(host, order="C")))

    def host(self, tensor: Tensor) -> np.ndarray:
        found: np.ndarray = tensor.detach().cpu().numpy()
        return found

    def problem(self, tensor: object, dtype: str, shape: Sequence[int]) -> str:
        if not isinstance(tensor, torch.Tensor):
            return f"it is a {type(tensor).__name__}, not a tensor of torch"
        if tensor.device != self.torch_device:
            return f"it lies on {tensor.device}"
        if tensor.dtype != TORCH_DTYPES[dtype]:
            return f"it must be {dtype}, got {tensor.dtype}"
        if tuple(tensor.shape) != tuple(shape) or not tensor.is_contiguous():
            return f"it must be C-contiguous {dtype}{list(shape)}, got {list(tensor.shape)}"
        return ""

    def writable(self, tensor: Tensor) -> bool:
        return not tensor.requires_grad
