"""A model as plain data: nodes, names and arrays, with nothing of the `onnx` package in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# By TensorProto.DataType: the dtypes of values. binary64 serves in computations of shapes only.
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    11: np.dtype(np.float64),
}
# The dtypes of inputs, outputs and weights.
CONTRACT_DTYPES = frozenset({1, 2, 6, 7, 9})


@dataclass(frozen=True)
class GraphNode:
    """One operator of the file. An absent input or output has the name "".

    `version` is the operator's own (its schema's since_version). `attributes` has the schema's
    defaults too; `given` names those that the file states.
    """

    name: str
    op: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"ONNX node {self.name!r} ({self.op} of version {self.version})"


@dataclass(frozen=True)
class Port:
    """An input or output of the graph: dtype, and sizes where the file fixes them."""

    name: str
    dtype: int
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Graph:
    """A whole model: every node's inputs come from what stands before it."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    initializers: Mapping[str, np.ndarray]
    constants: Mapping[str, np.ndarray]
    nodes: tuple[GraphNode, ...]
