"""Runs the calls of vectors/language by the package's interpreter and by the table's reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from part_reader import Opened
from reference.language import WIDTH
from table_reader import RefusedError

from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.numerics.values.graph import Condition, Expr, interned
from tallystick.numerics.values.positions import Factor, Part
from tallystick.opening.parts import OpenedElement
from tallystick.opening.quantity import RefusedOperandsError, Site
from tallystick.opening.values import WholeSource, value_of

REFUSED = "refused"


def array(tensor: list[Any]) -> np.ndarray:
    """An operand; without bits one whose elements nobody reads."""
    dtype, shape, *bits = tensor
    if not bits:
        return np.zeros(shape, DTYPES[dtype])
    unsigned = np.dtype(f"u{WIDTH[dtype] // 8}")
    flat = np.array([int(x, 16) for x in bits[0]], unsigned)
    return flat.view(DTYPES[dtype]).reshape(shape)


def bits(x: Any, dtype: str) -> str:
    """An element's bits, as they are."""
    raw = np.asarray(x, DTYPES[dtype]).reshape(1).view(np.dtype(f"u{WIDTH[dtype] // 8}"))
    return f"{int(raw[0]):0{WIDTH[dtype] // 4}x}"


class Graphs:
    """Nodes and parts of the file as the package has them, each made when it is asked for."""

    def __init__(self, table: dict[str, Any], kinds: dict[str, Any]) -> None:
        self._table, self._kinds = table, kinds
        self._values: dict[int, Expr] = {}
        self._parts: dict[int, Part] = {}

    def value(self, number: int) -> Expr:
        """The node of this number."""
        if number not in self._values:
            node = self._table["nodes"][number]
            of = tuple(map(self.value, node.get("of", ())))
            facts: dict[str, Any] = {"name": node.get("name", "")}
            for k in ("number", "real"):
                x = node.get(k)
                facts[k] = float.fromhex(x) if isinstance(x, str) else x
            if "part" in node:
                facts["part"] = self.part(node["part"])
            facts["condition"] = self._condition(node)
            self._values[number] = interned(node["kind"], node["dtype"], of, **facts)
        return self._values[number]

    def part(self, number: int) -> Part:
        """The part of this number."""
        if number not in self._parts:
            held = self._table["parts"][number]
            facts: dict[str, Any] = {"extreme": held.get("extreme", "")}
            for name in ("value", "count", "inner", "start", "kept", "divisor"):
                facts[name] = self.value(held[name]) if name in held else None
            facts["reads"] = tuple(map(self.value, held.get("reads", ())))
            for name in ("of", "first"):
                facts[name] = tuple(map(self.part, held.get(name, ())))
            facts["condition"] = self._condition(held)
            facts["factors"] = tuple(
                Factor(*(self.value(factor[name]) for name in ("value", "member", "each")))
                for factor in held.get("factors", ())
            )
            made = Part(held["kind"], held["name"], held["dtype"], **facts)
            self._parts[number] = made
        return self._parts[number]

    def _condition(self, held: dict[str, Any]) -> Condition | None:
        if "has" in held:
            return Condition("has", held["has"])
        if "is" not in held:
            return None
        equal = held["equal"]
        if self._kinds[held["is"]]["kind"] == "float":
            equal = float.fromhex(equal)
        return Condition("is", held["is"], equal)


@dataclass
class Call:
    """One call of a group."""

    group: dict[str, Any]
    call: dict[str, Any]

    def __post_init__(self) -> None:
        kinds = self.group["attributes"]
        self.attrs: dict[str, Any] = {}
        for name, x in self.call["attributes"].items():
            held = float.fromhex(x) if kinds[name]["kind"] == "float" else x
            self.attrs[name] = tuple(held) if isinstance(held, list) else held
        self.operands = [None if x is None else array(x) for x in self.call["inputs"]]
        given = self.call.get("outputs") or [self.call["output"]]
        self.outputs = [np.zeros(shape, DTYPES[dtype]) for dtype, shape in given]
        self.types = tuple(TensorType(dtype, tuple(shape)) for dtype, shape in given)

    def opened(self, out: int, element: int) -> OpenedElement:
        """The package's interpreter."""
        group = self.group
        spec = OpSpec("example", lambda *_: (), "", tuple(group["operands"]), "composite")
        types = tuple(
            None if x is None else TensorType(t[0], x.shape)
            for x, t in zip(self.operands, self.call["inputs"], strict=True)
        )
        return OpenedElement(Site("example", self.attrs, types, self.types, out, element), spec)

    def read(self) -> Opened:
        """The table's reader."""
        group = self.group
        parts = group.get("parts", {"nodes": group.get("nodes"), "parts": [], "outputs": []})
        entry = {"operands": group["operands"], "parts": {"moved": parts}}
        return Opened(entry, self.attrs, self.operands, self.outputs)


def position_by_package(call: Call, element: int, terms: int | None) -> Any:
    """The group's root, a whole number or as many as there are terms."""
    opened = call.opened(0, element)
    (root,) = opened._decided(
        [Graphs(call.group, call.group["attributes"]).value(call.group["root"])]
    )
    index = None if terms is None else np.arange(terms, dtype=np.int64)
    return opened._computed(root, [])(WholeSource(call.operands), [], index)


def position_by_reader(call: Call, element: int, terms: int | None) -> Any:
    """The same by the table's reader."""
    opened = call.read()
    opened.element, opened._known = element, {}
    index = None if terms is None else np.arange(terms, dtype=np.int64)
    return opened._node(call.group["root"], index)


def quantity_by_package(call: Call, out: int, element: int) -> Any:
    """The value of an output's element."""
    table = call.group["parts"]
    part = Graphs(table, call.group["attributes"]).part(table["outputs"][out])
    return value_of(call.opened(out, element).quantity(part), WholeSource(call.operands))


def quantity_by_reader(call: Call, out: int, element: int) -> Any:
    """The same by the table's reader."""
    return call.read().value(out, element)


def or_refused(of: Callable[..., Any], *given: Any) -> Any:
    """What it gives, or the word for a call that is refused."""
    try:
        return of(*given)
    except (RefusedError, RefusedOperandsError):
        return REFUSED
