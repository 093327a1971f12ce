"""Executes the parts of vectors/operators.json (OPENING 2) with the primitives of tests/reference.

As `table_reader`, it imports nothing of the package and knows no operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from reference.floats import canonical, rn32_int
from reference.move import DTYPES, constant
from reference.rand import philox
from reference.sums import axes_of, rows_of, sum_columns
from table_reader import RefusedError, holds, literal, primitive

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
        first = next(iter(self.there.values()), outputs[0])
        dtype = next(name for name, kind in DTYPES.items() if np.dtype(kind) == first.dtype)
        parts = entry["parts"]
        self.first, self.attrs = first, attrs
        # The last operand "x*" stands for any number.
        self.of_any_number = [x for x in operands[max(len(names) - 1, 0) :] if x is not None]
        self.table = parts[dtype if dtype in parts else "moved"]
        self.of_output, self.moved = outputs[0].shape, outputs[0].dtype
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
            found = np.asarray(self._node(part["value"], None)).reshape(-1)[0]
            return found if dtype == "moved" else _canonical(found)
        count = self._node(part["count"], None)
        if kind == "latest":
            kept = self._terms(part["kept"], count).nonzero()[0] if count else np.array([])
            if not kept.size:
                return np.asarray(self._node(part["start"], None)).reshape(-1)[0]
            return self._terms(part["value"], count)[kept[-1]]
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
        if kind == "choice":
            return value(of[1 if np.all(value(of[0])) else 2])
        if kind == "inside":
            if np.any((value(of[0]) < 0) | (value(of[0]) >= value(of[1]))):
                raise RefusedError("an index is outside")
            return value(of[0])
        if kind == "joined":
            return np.concatenate(self.of_any_number, value(of[0])).reshape(-1)[self.element]
        if kind == "word":
            return _word(self.there[node["name"]], *map(value, of))
        if kind == "read":
            return self.there[node["name"]].reshape(-1)[np.asarray(value(of[0]))]
        if dtype == "index":
            return self._whole(node, value, index)
        if kind == "attribute":
            return constant(self.attrs[node["name"]], self._dtype(dtype))
        if kind == "constant":
            return np.asarray(literal(node["number"], "f64" if dtype == "moved" else dtype)).astype(
                self._dtype(dtype)
            )
        parts = [value(part) for part in of]
        if kind == "convert" and isinstance(parts[0], int):
            return rn32_int(parts[0]) if dtype == "f32" else np.array(parts[0], DTYPES[dtype])
        return primitive(kind, dtype, [np.asarray(part) for part in parts])

    def _whole(self, node: Mapping[str, Any], value: Any, index: np.ndarray | None) -> Any:
        kind, name = node["kind"], node.get("name")
        if kind == "element":
            return self.element
        if kind == "term":
            return index
        if kind == "constant":
            return node["number"]
        if kind in ("axis", "attribute"):
            return self.attrs[name]
        if kind in ("placed", "reaches", "permuted", "broadcast"):
            return self._placed(kind, name, [value(part) for part in node.get("of", ())])
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

    def _placed(self, kind: str, name: str | None, of: Sequence[Any]) -> Any:
        x = self.there[str(name)]
        places = np.arange(x.size).reshape(x.shape)
        here = np.unravel_index(self.element, self.of_output)
        if kind == "broadcast":
            return int(np.broadcast_to(places, self.of_output)[here])
        if kind == "permuted":
            return int(places.transpose(of[0])[here])
        axis = of[0] % max(x.ndim, 1)
        others = [b for b in range(x.ndim) if b != axis]
        if kind == "reaches":
            return int(all(here[b] < x.shape[b] for b in others))
        row = places[tuple(here[b] if b in others else slice(None) for b in range(x.ndim))]
        return row.reshape(-1)[of[1]]

    def _dtype(self, name: str) -> Any:
        return self.moved if name == "moved" else DTYPES[name]


def _word(key: np.ndarray, draw: int, block: int, number: int) -> int:
    """NUMERICS 8.1."""
    seed, step = int(key[0]), int(key[1])
    if seed < 0 or not 0 <= step < 1 << 32:
        raise RefusedError("the key is out of range")
    mask = (1 << 32) - 1
    return philox((block & mask, block >> 32, draw, step), (seed & mask, seed >> 32))[number]


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
