"""Writes small graphs as the table's file has them, for vectors/language. Imports nothing of the
package."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.language import WIDTH

INDEX, MOVED = "index", "moved"
Shape = tuple[int, ...]


@dataclass
class Graph:
    """Nodes, each after its parts; equal ones are one."""

    nodes: list[dict[str, Any]] = field(default_factory=list)

    def node(self, kind: str, dtype: str, *of: int, **members: Any) -> int:
        """The number of a node."""
        made = {"kind": kind, "dtype": dtype, **({"of": list(of)} if of else {}), **members}
        if made not in self.nodes:
            self.nodes.append(made)
        return self.nodes.index(made)

    def index(self, kind: str, *of: int, **members: Any) -> int:
        """A whole number."""
        return self.node(kind, INDEX, *of, **members)

    def whole(self, number: int) -> int:
        """A constant one."""
        return self.index("constant", number=number)

    def axis(self, dim: str | int) -> int:
        """An axis, by its attribute or its number."""
        return self.index("axis", name=dim) if isinstance(dim, str) else self.whole(dim)


def tensor(dtype: str, shape: Shape, bits: Sequence[int] | None = None) -> list[Any]:
    """An operand, with its elements' bits where they are read."""
    if bits is None:
        return [dtype, list(shape)]
    digits, mask = WIDTH[dtype] // 4, (1 << WIDTH[dtype]) - 1
    assert len(bits) == math.prod(shape)
    return [dtype, list(shape), [f"{x & mask:0{digits}x}" for x in bits]]


def coordinates(element: int, shape: Shape) -> list[int]:
    """Those of a row-major position."""
    found = []
    for size in reversed(shape):
        found.insert(0, element % size)
        element //= size
    return found


def place(here: Sequence[int], shape: Shape) -> int:
    """The row-major position of coordinates."""
    found = 0
    for k, size in zip(here, shape, strict=True):
        found = found * size + k
    return found


def elements(shape: Shape) -> Iterator[list[int]]:
    """The coordinates of every element, in row-major order."""
    return (coordinates(k, shape) for k in range(math.prod(shape)))
