"""The typed door from this room to the native core's hashing (native/src/sha256.hpp)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

_core: Any = import_module("tallystick._core")

Buffer = bytes | bytearray | memoryview | npt.NDArray[np.generic]


def leaves_root(data: Buffer, leaf: int) -> bytes:
    """RFC 9162 root over `leaf`-byte leaves of a C-contiguous buffer, on all threads."""
    result: bytes = _core.tensor_leaves_root(data, leaf)
    return result


def leaf_hashes(data: Buffer, leaf: int) -> bytes:
    """All leaf hashes in order, 32 bytes each, of a C-contiguous buffer, on all threads."""
    result: bytes = _core.tensor_leaf_hashes(data, leaf)
    return result


def root_of_hashes(hashes: bytes) -> bytes:
    """RFC 9162 root over leaf hashes already computed."""
    result: bytes = _core.merkle_root_of_hashes(hashes)
    return result
