"""vectors/language/values.json: every interpreter of values gives these bits.

The file's expectation comes from exact integers (tests/reference/language.py). The table's reader,
numpy's interpreter (a referee's element) and torch's (where nothing is rounded) must agree with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import make_language_vectors as maker
import numpy as np
import pytest
import table_reader as reader
import torch
from language_values import WIDTH

from tallystick.contracts.ordered.torch import pointwise
from tallystick.kernels import elements
from tallystick.numerics.operators.common import constant
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import DTYPES
from tallystick.numerics.values.forms import rounds
from tallystick.numerics.values.graph import INDEX, PRIMITIVES, Condition, Expr, interned, operand

FILE = json.loads((maker.FOLDER / "values.json").read_text())
GROUPS = {f"{g['kind']} {g['dtype']} of {g['of']}": g for g in FILE["primitives"]}
LEAVES = {f"{g['kind']} {g['dtype']}": g for g in FILE["leaves"]}
Array = np.ndarray


def column(texts: Sequence[str], dtype: str) -> Array:
    """An operand's elements, from their bits."""
    unsigned = np.dtype(f"u{WIDTH[dtype] // 8}")
    return np.array([int(text, 16) for text in texts], unsigned).view(DTYPES[dtype])


def texts(x: Array, dtype: str) -> list[str]:
    """Elements as bits; of a float, a NaN as the canonical one (1.5)."""
    x = np.ascontiguousarray(x, DTYPES[dtype])
    if dtype in ("f32", "f64"):
        x = elements.canonical(x)
    unsigned = x.view(np.dtype(f"u{WIDTH[dtype] // 8}"))
    return [f"{bits:0{WIDTH[dtype] // 4}x}" for bits in unsigned.tolist()]


def by_reader(group: dict[str, Any], columns: list[Array]) -> Array:
    if group["kind"] == "pow":
        columns = [columns[0], columns[1].reshape(())]
    return reader.primitive(group["kind"], group["dtype"], columns)


def value_of(group: dict[str, Any]) -> Expr:
    leaves = tuple(operand("abc"[k], dtype) for k, dtype in enumerate(group["of"]))
    return interned(group["kind"], group["dtype"], leaves)


def by_numpy(group: dict[str, Any], columns: list[Array]) -> Array:
    return elements.numpy_primitive(value_of(group), tuple(columns))


def by_torch(group: dict[str, Any], columns: list[Array]) -> Array:
    value = value_of(group)
    operands = {"abc"[k]: torch.from_numpy(x.copy()) for k, x in enumerate(columns)}
    meaning = pointwise.interpreter_of("", {}, operands)
    found = meaning(value, tuple(meaning(leaf, ()) for leaf in value.of))
    return found.numpy()


def torch_takes(group: dict[str, Any]) -> bool:
    """True for what forms have that round nothing, on binary32 and integers."""
    if {"f64", "bf16", "f16"} & {*group["of"], group["dtype"]} or rounds(value_of(group)):
        return False
    return group["kind"] in (*pointwise.PRIMITIVES, "convert")


INTERPRETERS: dict[str, Callable[[dict[str, Any], list[Array]], Array]] = {
    "reader": by_reader,
    "numpy": by_numpy,
    "torch": by_torch,
}


@pytest.mark.parametrize("by", INTERPRETERS)
def test_every_interpreter_gives_the_bits(by: str) -> None:
    wrong = []
    looked = set()
    for name, group in GROUPS.items():
        if by == "torch" and not torch_takes(group):
            continue
        looked.add(group["kind"])
        # A power has one exponent for all elements.
        size = 1 if group["kind"] == "pow" else len(group["rows"])
        for first in range(0, len(group["rows"]), size):
            rows = group["rows"][first : first + size]
            columns = [
                column([row[k] for row in rows], dtype) for k, dtype in enumerate(group["of"])
            ]
            with np.errstate(all="ignore"):
                found = texts(INTERPRETERS[by](group, columns), group["dtype"])
            wrong += [
                f"{name}: {row}, not {one}"
                for row, one in zip(rows, found, strict=True)
                if row[-1] != one
            ]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])
    least = set(PRIMITIVES) - {"over", "rest"}
    assert looked >= (least if by != "torch" else {"add", "max", "select", "convert", "neg"})


def test_every_primitive_is_there_on_every_dtype_that_it_takes() -> None:
    found = {(g["kind"], g["of"][0]) for g in FILE["primitives"]}
    wanted = {(k, dtype) for k, rule in PRIMITIVES.items() for dtype in rule.takes}
    assert wanted - found == {(k, INDEX) for k, rule in PRIMITIVES.items() if INDEX in rule.takes}


def test_what_an_operator_refuses() -> None:
    """The operands for which the primitive has no value are refused before it is asked for."""
    calls = {
        "floor_divide": ("aten.floor_divide", {}),
        "convert": ("aten._to_copy", {"dtype": "i64"}),
    }
    looked = 0
    for group in FILE["primitives"]:
        for row in group.get("refused", ()):
            op, attrs = calls[group["kind"]]
            given = [column([x], dtype) for x, dtype in zip(row, group["of"], strict=True)]
            with pytest.raises(reader.RefusedError):
                reader.evaluated(reader.table()[op], attrs, given)
            with pytest.raises(elements.RefusedOperandsError):
                elements.element_values(all_ops()[op], attrs, given)
            looked += 1
        if group["kind"] in calls and "refused" in group:
            op, attrs = calls[group["kind"]]
            rows = group["rows"]
            given = [column([row[k] for row in rows], dtype) for k, dtype in enumerate(group["of"])]
            (made,) = elements.element_values(all_ops()[op], attrs, given)
            assert texts(made, group["dtype"]) == [row[-1] for row in rows]
    assert looked > 20


@pytest.mark.parametrize("dtype", [g["dtype"] for g in FILE["leaves"] if g["kind"] == "attribute"])
def test_an_attribute_as_a_number(dtype: str) -> None:
    rows = LEAVES[f"attribute {dtype}"]["rows"]
    given = [float.fromhex(row[0]) for row in rows]
    nodes = [{"kind": "attribute", "dtype": dtype, "name": "other"}]
    form = {"dtypes": ["bool"], "nodes": nodes, "outputs": [0]}
    entry = {"operands": ["x"], "forms": [form]}
    for value, (_, wanted) in zip(given, rows, strict=True):
        by_package = constant("", "other", value, dtype)
        (by_table,) = reader.evaluated(entry, {"other": value}, [np.zeros(1, bool)]) or ()
        assert texts(np.atleast_1d(by_package), dtype) == [wanted], value
        assert texts(np.atleast_1d(by_table), dtype) == [wanted], value


def test_a_constant_and_a_size() -> None:
    for group in FILE["leaves"]:
        for number, wanted in group["rows"]:
            dtype = group["dtype"]
            if group["kind"] == "constant":
                value = float.fromhex(number) if isinstance(number, str) else number
                leaf = Expr("constant", dtype, number=value)
                mine = elements.interpreter_of("", {}, {}, {})(leaf, ())
                theirs = reader.literal(number, dtype)
                assert texts(np.atleast_1d(theirs), dtype) == [wanted], number
            elif group["kind"] == "size":
                mine = elements.interpreter_of("", {}, {}, {"x": number})(
                    Expr("size", "f32", name="x"), ()
                )
            else:
                continue
            assert texts(np.atleast_1d(mine), dtype) == [wanted], number


def test_conditions() -> None:
    for row in FILE["conditions"]:
        attrs = {
            name: float.fromhex(value) if row["kinds"][name] == "float" else value
            for name, value in row["attributes"].items()
        }
        held = row["condition"]
        assert reader.holds(held, attrs, set(row["given"])) == row["holds"], row
        if "is" in held:
            wanted = held["equal"]
            if row["kinds"][held["is"]] == "float":
                wanted = float.fromhex(wanted)
            condition = Condition("is", held["is"], wanted)
        else:
            condition = Condition("has", held["has"])
        assert condition.holds(attrs, {*attrs, *row["given"]}) == row["holds"], row


F32, F64 = np.float32, np.float64
MISREADINGS: dict[str, tuple[str, Callable[..., Any]]] = {
    "zeros of both signs are equal to max": ("max f32", lambda a, b: np.where(a > b, a, b)),
    "a NaN loses against a number": ("min f32", np.fmin),
    "a subnormal number is zero": ("mul f32", lambda a, b: _flushed(a) * _flushed(b)),
    "fma rounds the product": ("fma f32", lambda a, b, c: a * b + c),
    "fma rounds to f64 first": (
        "fma f32",
        lambda a, b, c: (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(F32),
    ),
    "rsqrt rounds twice": ("rsqrt f32", lambda x: F32(1) / np.sqrt(x)),
    "an i64 becomes f32 by way of f64": (
        "convert f32 of ['i64']", lambda x: x.astype(F64).astype(F32)
    ),
    "f64 to f32 truncates": ("convert f32 of ['f64']", lambda x: _truncated(x)),
    "a quotient is truncated": (
        "floor_divide i64", lambda a, b: np.trunc(a / b).astype(np.int64)
    ),
    "a shift's count is modulo 64": ("left_shift i64", lambda a, b: a << (b & 63)),
    "a right shift brings in zeros": (
        "right_shift i64",
        lambda a, b: (a.view(np.uint64) >> np.clip(b, 0, 63).view(np.uint64)).view(np.int64),
    ),
    "not of a bool is not of its bits": (
        "not bool", lambda x: (~x.view(np.uint8)).astype(bool)
    ),
    "le is not gt": ("le bool of ['f32', 'f32']", lambda a, b: ~(a > b)),
    "u8 has a sign": (
        "lt bool of ['u8', 'u8']", lambda a, b: a.view(np.int8) < b.view(np.int8)
    ),
    "a NaN is false": ("convert bool of ['f32']", lambda x: (x > 0) | (x < 0)),
    "i64 to u8 saturates": (
        "convert u8 of ['i64']", lambda x: np.clip(x, 0, 255).astype(np.uint8)
    ),
}  # fmt: skip


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-126, F32(0), x)


def _truncated(x: Array) -> Array:
    nearest = x.astype(F32)
    return np.where(np.abs(nearest) > np.abs(x), np.nextafter(nearest, F32(0)), nearest)


@pytest.mark.parametrize("what", MISREADINGS)
def test_a_misreading_gives_other_bits(what: str) -> None:
    name, wrong = MISREADINGS[what]
    (group,) = (g for n, g in GROUPS.items() if n == name or n.startswith(f"{name} of"))
    rows, dtype = group["rows"], group["dtype"]
    columns = [column([row[k] for row in rows], of) for k, of in enumerate(group["of"])]
    with np.errstate(all="ignore"):
        assert texts(wrong(*columns), dtype) != [row[-1] for row in rows]
