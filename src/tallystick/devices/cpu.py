"""This machine's processor as a device: its tensors are numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallystick.devices.device import ALIGNMENT, Device, copy
from tallystick.numerics.operators.quantised import BLOCK_DTYPES
from tallystick.numerics.types import DTYPES

_LAID = {**DTYPES, **BLOCK_DTYPES}


class Processor(Device):
    """The processor."""

    kind = name = "cpu"
    architecture = ""
    takes_blocks = True
    hashes_beside = True

    def allocate(self, nbytes: int) -> np.ndarray:
        raw = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def view(
        self,
        base: np.ndarray,
        offset: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> np.ndarray:
        if 0 in shape:
            return np.empty(tuple(shape), _LAID[dtype])
        made: np.ndarray = np.ndarray(tuple(shape), _LAID[dtype], base, offset, tuple(strides))
        return made

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        copy(source, target)

    def write(self, host: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, host)

    def host(self, tensor: np.ndarray) -> np.ndarray:
        return tensor

    def problem(self, tensor: object, dtype: str, shape: Sequence[int]) -> str:
        if not isinstance(tensor, np.ndarray) or tensor.dtype != DTYPES[dtype]:
            return f"it must be a numpy array of {dtype}"
        if tensor.shape != tuple(shape) or not tensor.flags.c_contiguous:
            return f"it must be C-contiguous {dtype}{list(shape)}, got {tensor.shape}"
        return ""

    def writable(self, tensor: np.ndarray) -> bool:
        return bool(tensor.flags.writeable)


CPU: Device = Processor()
