"""The opened part of a node's operands, which phase 3 reads (PROTOCOL 6.5)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tallystick.commit.tensor import LEAF_BYTES, TensorHeader, TensorOpening
from tallystick.numerics.types import DTYPES
from tallystick.opening.quantity import Array, Index, MissingElements


class OutsideOperandError(Exception):
    """A rule reads elements that the operand does not have."""

    def __init__(self, operand: int, element: int) -> None:
        super().__init__(f"operand {operand} has no element {element}")


class SparseSource:
    """Elements of operands in verified leaves; asks for the others by MissingElements.

    `headers` are the program's, by operand number.
    """

    def __init__(self, headers: Mapping[int, TensorHeader]) -> None:
        self._headers = headers
        self._leaves: dict[tuple[int, int], Array] = {}

    def add(self, operand: int, opening: TensorOpening) -> None:
        """Take in an opening that was verified against the agreed digest."""
        dtype = DTYPES[self._headers[operand].dtype]
        for leaf, data in opening.leaves.items():
            self._leaves[operand, leaf] = np.frombuffer(data, dtype=dtype)

    def leaves_of(self, operand: int, flat: Index) -> list[int]:
        """The leaves with elements `flat`, ascending, each once. Raises OutsideOperandError."""
        header = self._headers[operand]
        for element in flat.reshape(-1):
            if not 0 <= element < header.elements:
                raise OutsideOperandError(operand, int(element))
        return sorted({header.leaf_of(int(e)) for e in flat.reshape(-1)})

    def read(self, operand: int, flat: Index) -> Array:
        """Elements `flat` of an operand (quantity.Source.read)."""
        header = self._headers[operand]
        flat = np.asarray(flat, dtype=np.int64)
        missing = [
            leaf for leaf in self.leaves_of(operand, flat) if (operand, leaf) not in self._leaves
        ]
        if missing:
            raise MissingElements(operand, flat)
        out = np.empty(flat.shape, DTYPES[header.dtype])
        per_leaf = LEAF_BYTES // header.itemsize
        for at, element in enumerate(flat.reshape(-1)):
            leaf, inside = divmod(int(element), per_leaf)
            out.reshape(-1)[at] = self._leaves[operand, leaf][inside]
        return out

    def missing(self, operand: int, flat: Index) -> list[int]:
        """The leaves with elements `flat` that were not opened yet."""
        return [n for n in self.leaves_of(operand, flat) if (operand, n) not in self._leaves]
