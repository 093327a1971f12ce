"""Executes the parts of vectors/operators.json (OPENING 2) with the primitives of tests/reference.

As `table_reader`, it imports nothing of the package and knows no operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from reference.dot import dot
from reference.floats import canonical, rn32_int
from reference.move import DTYPES, constant
from reference.rand import philox
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
        self.names = names = [name.rstrip("?*") for name in entry["operands"]]
        self.operands = list(operands)
        self.there = {n: x for n, x in zip(names, operands, strict=False) if x is not None}
        first = next(iter(self.there.values()), outputs[0])
        dtype = next(name for name, kind in DTYPES.items() if np.dtype(kind) == first.dtype)
        parts = entry["parts"]
        self.first, self.attrs = first, attrs
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
            return self._part(self._chosen(part))
        if kind == "local":
            found = np.asarray(self._node(part["value"], None)).reshape(-1)[0]
            return found if dtype == "moved" else _canonical(found)
        count = self._node(part["count"], None)
        if kind == "fold":
            return self._folded(part, count)
        index = np.arange(count, dtype=np.int64)
        if kind == "dot":
            return _canonical(self._dot(part))
        if kind == "terms":
            return _sum(np.array([self._of(part["of"][0], i) for i in index], DTYPES[dtype]))
        if kind in ("chain", "latest"):
            return self._chained(kind, part, index)
        terms = self._terms(part["value"], index)
        return _extreme(part["extreme"], terms) if kind == "extremum" else _sum(terms)

    def _chosen(self, case: Mapping[str, Any]) -> int:
        """Which of its two parts a case has, or a node of that kind."""
        there = holds(case, self.attrs, set(self.there))
        return int(case["of"][0 if there else 1])

    def _factors(self, part: Mapping[str, Any]) -> list[np.ndarray]:
        index = np.arange(self._node(part["count"], None), dtype=np.int64)
        return [self._terms(factor["value"], index) for factor in part["factors"]]

    def _dot(self, part: Mapping[str, Any]) -> np.float32:
        """NUMERICS 2.1, 2.2."""
        with np.errstate(all="ignore"):
            return np.float32(dot(*self._factors(part)))

    def _chained(self, kind: str, part: Mapping[str, Any], index: np.ndarray) -> Any:
        if "kept" in part and len(index):
            index = index[self._terms(part["kept"], index)]
        state = np.asarray(self._node(part["start"], None)).reshape(-1)[0]
        links = self._terms(part["value"], index) if len(index) else []
        if kind == "latest":
            return links[-1] if len(links) else state
        with np.errstate(all="ignore"):
            for x in links:
                state = state + x
        return _canonical(state)

    def _folded(self, part: Mapping[str, Any], count: int) -> Any:
        """NUMERICS 10.12: the values are those of one part, for each term."""
        node = self.table["parts"][part["of"][0]]["value"]
        xs = [np.asarray(self._node(node, np.array(i))).reshape(-1)[0] for i in range(count)]
        with np.errstate(all="ignore"):
            return _canonical(_split(xs) / self._node(part["divisor"], None))

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
            return value(self._chosen(node))
        if kind == "part":
            return self._part(node["part"])
        if kind == "in reals":
            return value(of[0])
        if kind == "choice":
            return self._choice(value(of[0]), of[1], of[2], value, index)
        if kind == "joined":
            own = self.operands[self.names.index(node["name"]) :]
            return np.concatenate(own, value(of[0])).reshape(-1)[self.element]
        if kind == "word":
            return _word(self.there[node["name"]], *map(value, of))
        if kind == "read":
            number = self.names.index(node["name"]) + sum(value(part) for part in of[1:])
            operand = self.operands[number]
            assert operand is not None
            return operand.reshape(-1)[np.asarray(value(of[0]))]
        if dtype == "index":
            return self._whole(node, value, index)
        if kind == "attribute":
            return constant(self.attrs[node["name"]], self._dtype(dtype))
        if kind == "constant":
            return np.asarray(literal(node["number"], "f64" if dtype == "moved" else dtype)).astype(
                self._dtype(dtype)
            )
        parts = [value(part) for part in of]
        if kind == "convert" and isinstance(parts[0], int) and dtype != "index":
            return rn32_int(parts[0]) if dtype == "f32" else np.array(parts[0], DTYPES[dtype])
        return primitive(kind, dtype, [np.asarray(part) for part in parts])

    def _choice(
        self, where: Any, node: int, rest: int, value: Any, index: np.ndarray | None
    ) -> Any:
        if index is None:
            return value(node if where else rest)
        found = np.empty(index.shape, DTYPES[self.table["nodes"][node]["dtype"]])
        for chosen, at in ((node, where), (rest, ~where)):
            if at.any():
                found[at] = self._terms(chosen, index[at])
        return found

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
        if kind == "entry":
            held = np.atleast_1d(self.attrs[name])
            return int(held[min(value(node["of"][0]), len(held) - 1)])
        if kind == "given":
            return len(self.operands) - self.names.index(name)
        if kind == "inside":
            x, end = (value(part) for part in node["of"])
            if np.any((x < 0) | (x >= end)):
                raise RefusedError(f"{name} is outside")
            return x if np.ndim(x) else int(x)
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


def _split(xs: Sequence[Any]) -> Any:
    """S of NUMERICS 10.12: the left part is the largest power of two below their number."""
    if len(xs) == 1:
        return xs[0]
    left = 1
    while 2 * left < len(xs):
        left *= 2
    return _split(xs[:left]) + _split(xs[left:])


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
