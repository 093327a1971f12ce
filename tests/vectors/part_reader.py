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
from table_reader import RefusedError, holds, literal, primitive

_WHOLE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "over": lambda a, b: a // b, "rest": lambda a, b: a % b, "max": max, "min": min,
    "select": lambda where, a, b: a if where else b, "convert": lambda x: x,
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
        self.names = [name.rstrip("?*") for name in entry["operands"]]
        self.operands = list(operands)
        self.there = {n: x for n, x in zip(self.names, operands, strict=False) if x is not None}
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
        index = np.arange(count, dtype=np.int64)
        if kind == "terms":
            return _sum(np.array([self._of(part["of"][0], i) for i in index], DTYPES[dtype]))
        if kind == "chain":
            if "kept" in part:
                index = index[self._terms(part["kept"], index)]
            state = np.asarray(self._node(part["start"], None)).reshape(-1)[0]
            with np.errstate(all="ignore"):
                for x in self._terms(part["value"], index):
                    state = state + x
            return _canonical(state)
        terms = self._terms(part["value"], index)
        return _extreme(part["extreme"], terms) if kind == "extremum" else _sum(terms)

    def _of(self, part: int, element: int) -> Any:
        """A part for another element."""
        own = self.element, self._known
        self.element, self._known = element, {}
        found = self._part(part)
        self.element, self._known = own
        return found

    def _terms(self, node: int, index: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self._node(node, index), index.shape)

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
            number = self.names.index(node["name"]) + sum(value(part) for part in of[1:])
            operand = self.operands[number]
            assert operand is not None
            return operand.reshape(-1)[np.asarray(value(of[0]))]
        if kind == "only where":
            return self._only_where(value(of[0]), of[1], of[2], value, index)
        if kind == "attribute":
            given = self.attrs[node["name"]]
            return rn32(given) if dtype == "f32" else np.float64(given)
        if dtype == "index":
            return self._whole(node, value, index)
        if kind == "constant":
            return literal(node["number"], dtype)
        parts = [value(part) for part in of]
        if kind == "convert" and isinstance(parts[0], int) and dtype in ("f32", "f64"):
            return rn32_int(parts[0]) if dtype == "f32" else np.float64(parts[0])
        return primitive(kind, dtype, [np.asarray(part) for part in parts])

    def _only_where(
        self, where: Any, node: int, rest: int, value: Any, index: np.ndarray | None
    ) -> Any:
        if index is None:
            return value(node if where else rest)
        each = [(node if held else rest, index[[k]]) for k, held in enumerate(where)]
        dtype = DTYPES[self.table["nodes"][node]["dtype"]]
        return np.array([self._terms(at, one)[0] for at, one in each], dtype)

    def _whole(self, node: Mapping[str, Any], value: Any, index: np.ndarray | None) -> Any:
        kind, name = node["kind"], node.get("name")
        if kind == "element":
            return self.element
        if kind == "term":
            return index
        if kind == "constant":
            return node["number"]
        if kind == "entry":
            held = np.atleast_1d(self.attrs[name])
            return int(held[min(value(node["of"][0]), len(held) - 1)])
        if kind == "given":
            return len(self.operands) - self.names.index(name)
        if kind == "inside":
            x, end = (value(part) for part in node["of"])
            if np.any((x < 0) | (x >= end)):
                raise RefusedError(f"{name} is outside")
            return x
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


def _sum(terms: np.ndarray) -> Any:
    """NUMERICS 3.1."""
    if not len(terms):
        return terms.dtype.type(0)
    return _canonical(sum_columns(terms.reshape(-1, 1))[0])


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
