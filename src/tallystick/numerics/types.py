"""Tensor types: a program's knowledge of a value without its bits (NUMERICS 1.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tallystick.commit.tensor import COMPUTED as COMPUTED
from tallystick.commit.tensor import DTYPES as DTYPES  # only dtypes that can be committed to
from tallystick.commit.tensor import STORED as STORED
from tallystick.commit.tensor import widened as widened

DTYPE_NAMES: dict[np.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

# Attribute values as programs hold them; floats are binary64 (NUMERICS 1.9).
AttrValue = int | float | bool | str | tuple[int, ...] | tuple[bool, ...]
Attrs = dict[str, AttrValue]


@dataclass(frozen=True)
class TensorType:
    """dtype name (a key of `DTYPES`) and shape of a value."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def type_of(array: np.ndarray) -> TensorType:
    """The type of a numpy array; KeyError for a dtype outside `DTYPES`."""
    return TensorType(DTYPE_NAMES[array.dtype], tuple(array.shape))
