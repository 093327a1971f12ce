"""Executes vectors/operators.json with the plain primitives of tests/reference, and nothing else.

It imports nothing of the package: what it computes, an interpreter in another language computes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reference.exact import ELEMENTARY, elementary, power
from reference.floats import canonical, fma, maximum, minimum, rn32, rn32_int
from reference.move import DTYPES

PATH = Path(__file__).resolve().parents[2] / "vectors" / "operators.json"
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
_FLOATS = ("f32", "f64")


class RefusedError(Exception):
    """The form refuses an element."""


def table() -> dict[str, dict[str, Any]]:
    """The entries by operator name."""
    return {entry["name"]: entry for entry in json.loads(PATH.read_text())["operators"]}


def literal(text: Any, dtype: str) -> np.ndarray:
    """A constant's number."""
    value = float.fromhex(text) if isinstance(text, str) else text
    return np.array(value, DTYPES[dtype])


def holds(condition: Mapping[str, Any], attrs: Mapping[str, Any], there: set[str]) -> bool:
    """Whether a condition holds of the attributes, and of the operands that are there."""
    if "has" in condition:
        return condition["has"] in there or condition["has"] in attrs
    held, wanted = attrs.get(condition["is"]), condition["equal"]
    if isinstance(held, float):
        wanted = float.fromhex(wanted)
    return bool(held == wanted)


def form_of(
    entry: Mapping[str, Any], dtypes: Sequence[str | None], attrs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The first form of these dtypes whose condition holds."""
    for form in entry.get("forms", ()):
        pairs = zip(dtypes, form["dtypes"], strict=False)
        fits = all(one is None or one == other for one, other in pairs)
        if fits and ("when" not in form or holds(form["when"], attrs, set())):
            return dict(form)
    return None


def _shift(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inside = (b >= 0) & (b <= 63)
    if kind == "left_shift":
        return np.left_shift(np.where(inside, a, 0), np.where(inside, b, 0))
    return np.right_shift(a, np.where(inside, b, 63))


_UFUNCS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "neg": np.negative, "abs": np.absolute, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "floor_divide": np.floor_divide,
    "select": np.where,
}  # fmt: skip


def _extreme(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b))
    if a.dtype == np.float32:
        return maximum(a, b) if kind == "max" else minimum(a, b)
    return np.maximum(a, b) if kind == "max" else np.minimum(a, b)


def primitive(kind: str, dtype: str, parts: Sequence[Any]) -> np.ndarray:
    """One primitive of NUMERICS."""
    if kind in ELEMENTARY:
        return np.asarray(elementary(kind, np.atleast_1d(parts[0]))).reshape(np.shape(parts[0]))
    if kind == "pow":
        return np.asarray(power(np.atleast_1d(parts[0]), parts[1][()])).reshape(np.shape(parts[0]))
    if kind == "fma":
        return np.asarray(fma(*np.broadcast_arrays(*map(np.atleast_1d, parts))))
    if kind in ("max", "min"):
        return _extreme(kind, parts[0], parts[1])
    if kind.endswith("_shift"):
        return _shift(kind, parts[0], parts[1])
    if kind == "convert" and np.asarray(parts[0]).dtype == DTYPES["bf16"]:
        bits = np.asarray(parts[0]).view("<u2").astype(np.uint32)
        return np.asarray(bits << np.uint32(16)).view(np.float32)
    if kind == "convert":
        return parts[0] != 0 if dtype == "bool" else np.asarray(parts[0]).astype(DTYPES[dtype])
    return np.asarray(_UFUNCS[kind](*parts), DTYPES[dtype])


def evaluated(
    entry: Mapping[str, Any], attrs: Mapping[str, Any], operands: Sequence[np.ndarray | None]
) -> list[np.ndarray] | None:
    """The outputs of a call; None where no form takes it. Raises RefusedError."""
    dtypes = [None if x is None else NAMES[x.dtype] for x in operands]
    form = form_of(entry, dtypes, attrs)
    if form is None:
        return None
    names = [name.rstrip("?*") for name in entry["operands"]]
    there = {n: x for n, x in zip(names, operands, strict=False) if x is not None}
    shape = np.broadcast_shapes(*(x.shape for x in there.values()))
    held: dict[int, np.ndarray] = {}

    def value(number: int) -> np.ndarray:
        if number not in held:
            held[number] = np.asarray(computed(form["nodes"][number]))
        return held[number]

    def computed(node: Mapping[str, Any]) -> Any:
        kind, dtype = node["kind"], node["dtype"]
        if kind == "case":  # the other part is not looked at: it may need what is not there
            return value(node["of"][0 if holds(node, attrs, set(there)) else 1])
        if kind == "operand":
            return there[node["name"]]
        if kind == "attribute":
            given = attrs[node["name"]]
            return rn32(given) if dtype == "f32" else np.array(given).astype(DTYPES[dtype])
        if kind == "size":
            return rn32_int(there[node["name"]].size)
        if kind == "constant":
            return literal(node["number"], dtype)
        return primitive(kind, dtype, [value(part) for part in node["of"]])

    with np.errstate(all="ignore"):
        if "refused" in form and 0 not in shape and np.any(value(form["refused"])):
            raise RefusedError(form["why"])
        made = [value(number) for number in form["outputs"]]
    return [canonical(x) if NAMES[x.dtype] in _FLOATS else x for x in made]
