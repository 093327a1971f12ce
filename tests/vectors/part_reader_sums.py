"""What `rounded/1` and `exact/1` make of the parts of vectors/operators.json (NUMERICS 13, 17).

As `part_reader`, it imports nothing of the package and knows no operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from part_reader import Opened
from reference.exact_blocks import dot, segments_of
from reference.rounded import patterns, products, rounded_sum


class Rounded(Opened):
    """An element that is a sum, or a local part over one, is made of R(v*) (13.3)."""

    def __init__(self, bits: int, *call: Any) -> None:
        super().__init__(*call)
        self.bits = bits

    def value(self, out: int, element: int) -> np.ndarray:
        self.element, self._known = element, {}
        number = self.outputs[out]
        while (part := self.table["parts"][number])["kind"] == "case":
            number = self._chosen(part)
        if part["kind"] == "local":
            added = self._decided(part["value"])
            of = [self._decided(node) for node in added.get("of", ())]
            # An operand's element that is added, and nothing else, is the last term.
            kinds = [node["kind"] for node in of]
            if added["kind"] == "add" and sorted(kinds) == ["part", "read"]:
                last = float(self._node(added["of"][kinds.index("read")], None))
                return self._rounded(self.table["parts"][of[0]["part"]], [last])
        return np.asarray(self._part(number))

    def _decided(self, number: int) -> Mapping[str, Any]:
        node: Mapping[str, Any] = self.table["nodes"][number]
        return self._decided(self._chosen(node)) if node["kind"] == "case" else node

    def _made(self, part: Mapping[str, Any]) -> Any:
        is_sum = part["kind"] in ("dot", "tree") and part["dtype"] == "f32"
        return self._rounded(part) if is_sum else super()._made(part)

    def _rounded(self, part: Mapping[str, Any], last: Sequence[float] = ()) -> np.float32:
        if part["kind"] == "dot":
            terms = products(*self._factors(part))
        else:
            index = np.arange(self._node(part["count"], None), dtype=np.int64)
            terms = self._terms(part["value"], index).tolist()
        return np.float32(patterns([rounded_sum([*terms, *last], self.bits)])[0])


class Exact(Opened):
    """A DOT is one of integers, block by block (17.2 to 17.7)."""

    def __init__(self, width: int, *call: Any) -> None:
        super().__init__(*call)
        self.width = width

    def _dot(self, part: Mapping[str, Any]) -> np.float32:
        (a, b), inner = self._factors(part), self._node(part["inner"], None)
        terms, outer = list(zip(a, b, strict=True)), len(a) // inner
        each = [self._node(factor["each"], None) for factor in part["factors"]]
        groups = [
            self._terms(factor["member"], np.arange(outer * count, dtype=np.int64))
            for factor, count in zip(part["factors"], each, strict=True)
        ]
        segments = []
        for s in segments_of(outer, inner, self.width):
            left, right = (
                group[s.start * n : s.stop * n] for group, n in zip(groups, each, strict=True)
            )
            segments.append((left, right, terms[s.start * inner : s.stop * inner]))
        with np.errstate(over="ignore"):
            return dot(segments, self.width)
