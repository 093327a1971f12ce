"""Executes the parts of vectors/operators.json (OPENING 2) with the primitives of tests/reference.

As `table_reader`, it imports nothing of the package and knows no operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from reference.floats import canonical, rn32, rn32_int
from reference.move import DTYPES
from reference.sums import axes_of, rows_of, sum_columns
from table_reader import holds, literal, primitive

_WHOLE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "over": lambda a, b: a // b, "rest": lambda a, b: a % b, "max": max,
}  # fmt: skip


class Opened:
    """The parts of one element of one output of a call."""

    def __init__(
        self,
        entry: Mapping[str, Any],
        attrs: Mapping[str, Any],
        operands: Sequence[np.ndarray | None],
        outputs: Sequence[np.ndarray],
    ) -> None:
        names = [name.rstrip("?*") for name in entry["operands"]]
        self.there = {n: x for n, x in zip(names, operands, strict=False) if x is not None}
        first = next(iter(self.there.values()))
        dtype = next(name for name, kind in DTYPES.items() if np.dtype(kind) == first.dtype)
        self.first, self.attrs, self.table = first, attrs, entry["parts"][dtype]
        self.of_output = outputs[0].shape
        mask = attrs.get(entry.get("masked_by", ""))
        self.outputs = [
            number for k, number in enumerate(self.table["outputs"]) if mask is None or mask[k]
        ]

    def value(self, out: int, element: int) -> np.ndarray:
        """The element of an output."""
        self.element, self._known = element, dict[int, Any]()
        return self._part(self.outputs[out])

    def _part(self, number: int) -> Any:
        if number not in self._known:
            self._known[number] = self._made(self.table["parts"][number])
        return self._known[number]

    def _made(self, part: Mapping[str, Any]) -> Any:
        kind, dtype = part["kind"], part["dtype"]
        if kind == "case":
            chosen = 0 if holds(part, self.attrs, set(self.there)) else 1
            return self._part(part["of"][chosen])
        if kind == "local":
            return _canonical(np.asarray(self._node(part["value"], None)).reshape(-1)[0])
        count = self._node(part["count"], None)
        terms = self._terms(part["value"], count)
        if kind == "tree":
            return _canonical(sum_columns(terms.reshape(-1, 1))[0]) if count else DTYPES[dtype](0)
        if kind == "extremum":
            return _extreme(part["extreme"], terms)
        state = np.asarray(self._node(part["start"], None))
        for x in terms:
            state = state + x
        return _canonical(state)

    def _terms(self, node: int, count: int) -> np.ndarray:
        index = np.arange(count, dtype=np.int64)
        return np.broadcast_to(self._node(node, index), (count,))

    def _node(self, number: int, index: np.ndarray | None) -> Any:
        known: dict[int, Any] = {}

        def value(at: int) -> Any:
            if at not in known:
                known[at] = self._computed(self.table["nodes"][at], value, index)
            return known[at]

        with np.errstate(all="ignore"):
            return value(number)

    def _computed(self, node: Mapping[str, Any], value: Any, index: np.ndarray | None) -> Any:
        kind, dtype, of = node["kind"], node["dtype"], node.get("of", [])
        if kind == "case":
            return value(of[0 if holds(node, self.attrs, set(self.there)) else 1])
        if kind == "part":
            return self._part(node["part"])
        if kind == "in reals":
            return value(of[0])
        if kind == "read":
            return self.there[node["name"]].reshape(-1)[np.asarray(value(of[0]))]
        if kind == "attribute":
            given = self.attrs[node["name"]]
            return rn32(given) if dtype == "f32" else np.float64(given)
        if dtype == "index":
            return self._whole(node, value, index)
        if kind == "constant":
            return literal(node["number"], dtype)
        parts = [value(part) for part in of]
        if kind == "convert" and isinstance(parts[0], int):
            return rn32_int(parts[0]) if dtype == "f32" else np.float64(parts[0])
        return primitive(kind, dtype, [np.asarray(part) for part in parts])

    def _whole(self, node: Mapping[str, Any], value: Any, index: np.ndarray | None) -> Any:
        kind, name = node["kind"], node.get("name")
        if kind == "element":
            return self.element
        if kind == "term":
            return index
        if kind == "constant":
            return node["number"]
        if kind == "axis":
            return self.attrs[name]
        if kind == "product":
            return math.prod(self.attrs[name])
        if kind == "numel":
            return self.there[name].size
        if kind in ("extent", "inner"):
            shape = (self.there[name].shape if name else self.of_output) or (1,)
            axis = value(node["of"][0]) % len(shape)
            return shape[axis] if kind == "extent" else math.prod(shape[axis + 1 :])
        if kind in ("reduced", "reduced place"):
            places = np.arange(self.first.size).reshape(self.first.shape)
            rows = rows_of(places, axes_of(dict(self.attrs), self.first.ndim))
            return rows.shape[1] if kind == "reduced" else rows[self.element][index]
        return _WHOLE[kind](*(value(part) for part in node["of"]))


def _canonical(x: Any) -> Any:
    return canonical(np.asarray(x))[()] if np.asarray(x).dtype.kind == "f" else x


def _extreme(kind: str, terms: np.ndarray) -> Any:
    """NUMERICS 1.11, 3.5: the lowest index of a NaN, else of the extreme one."""
    if terms.dtype == np.float32 and np.isnan(terms).any():
        at = int(np.flatnonzero(np.isnan(terms))[0])
        return np.int64(at) if kind == "argmax" else np.float32(np.nan)
    if kind == "argmax":
        return np.int64(terms.argmax())
    best = terms.max() if kind == "max" else terms.min()
    if terms.dtype == np.float32 and best == 0:
        signs = np.signbit(terms[terms == 0])
        negative = signs.all() if kind == "max" else signs.any()
        return np.float32(-0.0 if negative else 0.0)
    return best
