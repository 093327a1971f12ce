"""vectors/operators.schema.json: the table fits it, and a damaged table does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tallystick.numerics.values.graph import MOVED, PRIMITIVES

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
SCHEMA = json.loads((VECTORS / "operators.schema.json").read_text())
TABLE = json.loads((VECTORS / "operators.json").read_text())
Damage = Callable[[dict[str, Any]], None]


def faults(table: Any) -> list[str]:
    """What a validator of JSON Schema finds."""
    jsonschema = pytest.importorskip(
        "jsonschema", reason="jsonschema is missing (constraints.txt): the schema is not looked at"
    )
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(table)
    return [f"{list(fault.path)}: {fault.message[:200]}" for fault in found]


def some(*names: str) -> dict[str, Any]:
    """A table of these operators alone."""
    rows = [entry for entry in TABLE["operators"] if entry["name"] in names]
    return deepcopy({**TABLE, "operators": rows})


def graphs(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything of an operator that has nodes."""
    yield from entry.get("forms", ())
    yield from entry.get("terms", ())
    yield from entry.get("parts", {}).values()


def first(table: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """The first node or part of these facts."""
    for entry in table["operators"]:
        for graph in graphs(entry):
            for one in (*graph["nodes"], *graph.get("parts", ())):
                if facts.items() <= one.items():
                    found: dict[str, Any] = one
                    return found
    raise AssertionError(facts)


def test_the_table_fits_the_schema() -> None:
    assert faults(TABLE) == []


def on(op: str, change: Damage, **facts: Any) -> tuple[str, Damage]:
    """The change of the operator's first node or part of these facts."""
    return op, lambda table: change(first(table, **facts))


def entry_of(op: str, change: Damage) -> tuple[str, Damage]:
    """The change of the operator's entry."""
    return op, lambda table: change(table["operators"][0])


NODES_OF_A_PART = ("value", "count", "inner", "start", "kept", "divisor")
DAMAGES: dict[str, tuple[str, Damage]] = {
    "a format of another name": ("aten.neg", lambda t: t.update(format="tallystick-operators/9")),
    "no operators": ("aten.neg", lambda t: t.pop("operators")),
    "a member of its own": ("aten.neg", lambda t: t.update(note="")),
    "an operator without a clause": entry_of("aten.neg", lambda e: e.pop("clause")),
    "an operator of no contract": entry_of("aten.neg", lambda e: e.update(contracts=[])),
    "a contract twice": entry_of("aten.neg", lambda e: e.update(contracts=["ordered/1"] * 2)),
    "a contract with its draft": entry_of(
        "aten.neg", lambda e: e.update(contracts=["ordered/1-draft.1"])
    ),
    "a contract that stands alone": entry_of("aten.neg", lambda e: e.update(contracts="ordered/1")),
    "an operator with a member of its own": entry_of("aten.neg", lambda e: e.update(note="")),
    "an unknown class": entry_of("aten.neg", lambda e: e.update({"class": "other"})),
    "an operator without values": entry_of("aten.neg", lambda e: e.pop("forms")),
    "an unknown kind of attribute": entry_of(
        "aten.cumsum", lambda e: e["attributes"]["dim"].update(kind="axis")
    ),
    "a default of another kind": entry_of(
        "aten.addmm", lambda e: e["attributes"]["beta"].update(default=1)
    ),
    "an attribute that has a default and is optional": entry_of(
        "aten.addmm", lambda e: e["attributes"]["beta"].update(optional=True)
    ),
    "a dot of one factor": (
        "aten.mm",
        lambda t: first(t, kind="dot")["factors"].pop(),
    ),
    "a factor without a group": (
        "aten.convolution",
        lambda t: first(t, kind="dot")["factors"][0].pop("member"),
    ),
    "a form without outputs": entry_of("aten.neg", lambda e: e["forms"][0].pop("outputs")),
    "a form of an unknown dtype": entry_of(
        "aten.neg", lambda e: e["forms"][0].update(dtypes=["f8"])
    ),
    "a refusal without words": entry_of(
        "aten.floor_divide", lambda e: e["forms"][0].pop("why")
    ),
    "parts of an unknown dtype": entry_of(
        "aten.sum", lambda e: e["parts"].update(f16=e["parts"]["f32"])
    ),
    "an unknown kind of node": on("aten.neg", lambda n: n.update(kind="minus"), kind="neg"),
    "a primitive of a wrong dtype": on("aten.neg", lambda n: n.update(dtype="u8"), kind="neg"),
    "a primitive of one more part": on("aten.neg", lambda n: n["of"].append(0), kind="neg"),
    "a primitive of nothing": on("aten.neg", lambda n: n.pop("of"), kind="neg"),
    "a primitive with a name": on("aten.neg", lambda n: n.update(name="x"), kind="neg"),
    "a number below 0": on("aten.neg", lambda n: n.update(of=[-1]), kind="neg"),
    "an operand without a name": on("aten.neg", lambda n: n.pop("name"), kind="operand"),
    "a constant that is written in decimal": on(
        "aten.reciprocal", lambda n: n.update(number=1.0), kind="constant"
    ),
    "a whole constant that is a text": on(
        "aten.cumsum", lambda n: n.update(number="0x1.0p+0"), kind="constant", dtype="index"
    ),
    "a position in a form": on(
        "aten.neg", lambda n: (n.clear(), n.update(kind="element", dtype="index")), kind="operand"
    ),
    "a position of a number's dtype": on(
        "aten.gather", lambda n: n.update(dtype="i64"), kind="placed"
    ),
    "a place without its axis": on("aten.gather", lambda n: n["of"].pop(), kind="placed"),
    "a refusal of nothing": on("aten.gather", lambda n: n.pop("name"), kind="inside"),
    "a case of two tests": on("aten.add.Tensor", lambda n: n.update(has="alpha"), kind="case"),
    "a case of no test": on("aten.add.Tensor", lambda n: n.pop("is"), kind="case"),
    "an operand in a part": on(
        "aten.gather", lambda n: n.update(kind="operand"), kind="read", dtype="moved"
    ),
    "an unknown kind of part": on("aten.sum", lambda p: p.update(kind="sum"), kind="tree"),
    "a tree without a count": on("aten.sum", lambda p: p.pop("count"), kind="tree"),
    "a tree with a start": on("aten.sum", lambda p: p.update(start=0), kind="tree"),
    "a chain without a start": on("aten.cumsum", lambda p: p.pop("start"), kind="chain"),
    "an unknown extreme": on("aten.amax", lambda p: p.update(extreme="most"), kind="extremum"),
    "a fold without its values": on("tallystick.fold", lambda p: p.pop("of"), kind="fold"),
    "a fold of no divisor": on("tallystick.fold", lambda p: p.pop("divisor"), kind="fold"),
    "an argmax that is no i64": on(
        "aten.argmax", lambda p: p.update(dtype="f32"), kind="extremum"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_table_does_not_fit(what: str) -> None:
    op, damage = DAMAGES[what]
    table = some(op)
    assert faults(table) == []
    damage(table)
    assert faults(table), what


def test_the_schema_has_every_primitive_of_the_language() -> None:
    """Kinds, numbers of parts and dtypes of the results, from the language's own list."""
    listed = {}
    for rule in SCHEMA["$defs"]["primitive"]["oneOf"]:
        facts = rule["properties"]
        kinds, dtypes = (
            facts[of].get("enum", [facts[of].get("const")]) for of in ("kind", "dtype")
        )
        for kind in kinds:
            listed[kind] = (facts["of"]["minItems"], facts["of"]["maxItems"], set(dtypes))
    for kind, rule in PRIMITIVES.items():
        gives = {rule.gives} if rule.gives else set(rule.takes)
        assert listed.pop(kind) == (rule.arity, rule.arity, gives), kind
    assert set(listed) == {"convert", "select"}


def test_what_a_schema_cannot_say() -> None:
    """Nodes and parts come after those that they are made of, and names are an operator's."""
    for entry in TABLE["operators"]:
        operands = {name.rstrip("?*") for name in entry["operands"]}
        for graph in graphs(entry):
            nodes, parts = graph["nodes"], graph.get("parts", [])
            for at, node in enumerate(nodes):
                assert all(k < at for k in node.get("of", ())), (entry["name"], node)
                if node["kind"] in ("operand", "read", "joined", "placed", "numel", "given"):
                    assert node["name"] in operands, (entry["name"], node)
                if node["kind"] in ("attribute", "axis", "product", "entry"):
                    assert node["name"] in entry["attributes"], (entry["name"], node)
                if node["kind"] == "part":
                    assert parts[node["part"]]["dtype"] == node["dtype"]
                if node["dtype"] == MOVED:
                    assert parts
            for at, part in enumerate(parts):
                assert all(k < at for k in (*part.get("of", ()), *part.get("first", ())))
                held = (
                    part.get(k) for k in ("value", "count", "inner", "start", "kept", "divisor")
                )
                assert all(k is None or k < len(nodes) for k in held)
                factors = part.get("factors", ())
                assert all(k < len(nodes) for factor in factors for k in factor.values())
            ends = graph["outputs"]
            assert all(k < len(parts or nodes) for k in ends)
