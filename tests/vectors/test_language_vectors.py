"""vectors/language: positions and quantities by the package and by the reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import language_calls as calls
import make_language_vectors as maker
import numpy as np
import pytest
from language_calls import REFUSED, Call

SCHEMA = json.loads((maker.FOLDER.parent / "operators.schema.json").read_text())
FILES = {name: json.loads((maker.FOLDER / f"{name}.json").read_text()) for name in maker.DOCUMENTS}
PARTS = [graph for group in FILES["quantities"]["groups"] for graph in [group["parts"]]]


def test_the_files_are_what_the_script_writes() -> None:
    assert not maker.stale()


def whole(found: Any, terms: int | None) -> Any:
    """A whole number, or those of the terms."""
    if isinstance(found, str):
        return found
    if terms is None:
        return int(np.asarray(found).reshape(-1)[0])
    return [int(x) for x in np.broadcast_to(found, (terms,))]


@pytest.mark.parametrize("by", [calls.position_by_package, calls.position_by_reader])
def test_positions(by: Callable[..., Any]) -> None:
    wrong = []
    for group in FILES["positions"]["groups"]:
        for call in group["calls"]:
            terms = call.get("terms")
            for element, wanted in enumerate(call["gives"]):
                found = whole(calls.or_refused(by, Call(group, call), element, terms), terms)
                if found != wanted:
                    wrong.append(f"{group['what']} {call}: {found} at {element}, not {wanted}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("by", [calls.quantity_by_package, calls.quantity_by_reader])
def test_quantities(by: Callable[..., Any]) -> None:
    wrong = []
    for group in FILES["quantities"]["groups"]:
        for call in group["calls"]:
            given = Call(group, call)
            for out, gives in enumerate(call["gives"]):
                dtype = call["outputs"][out][0]
                for element, wanted in enumerate(gives):
                    with np.errstate(all="ignore"):
                        found = calls.or_refused(by, given, out, element)
                    found = found if found == REFUSED else calls.bits(found, dtype)
                    if found != wanted:
                        wrong.append(f"{group['what']} {call}: {found} at {element}, not {wanted}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


def kinds_of(definition: str) -> set[str]:
    """The kinds that the table's schema lists."""
    found = set()
    held = SCHEMA["$defs"][definition]
    for rule in held.get("oneOf", [held]):
        if "$ref" in rule:
            found |= kinds_of(rule["$ref"].removeprefix("#/$defs/"))
        else:
            kind = rule["properties"]["kind"]
            found |= set(kind.get("enum", [kind.get("const")]))
    return found


def test_every_word_of_the_languages_has_vectors() -> None:
    values, positions = FILES["values"], FILES["positions"]["groups"]
    met = {g["kind"] for member in ("primitives", "leaves") for g in values[member]}
    met |= {node["kind"] for group in positions for node in group["nodes"]}
    met |= {node["kind"] for graph in PARTS for node in graph["nodes"]}
    assert kinds_of("form-node") | kinds_of("part-node") == met | {"operand"}
    assert kinds_of("part") == {part["kind"] for graph in PARTS for part in graph["parts"]}


@pytest.mark.parametrize("name", ["positions", "quantities"])
def test_the_graphs_fit_the_schema(name: str) -> None:
    jsonschema = pytest.importorskip(
        "jsonschema", reason="jsonschema is missing (constraints.txt): the schema is not looked at"
    )
    node, parts = (
        jsonschema.Draft202012Validator({"$ref": f"#/$defs/{of}", "$defs": SCHEMA["$defs"]})
        for of in ("part-node", "parts")
    )
    for group in FILES[name]["groups"]:
        for one in group.get("nodes", ()):
            assert not [*node.iter_errors(one)], one
        if "parts" in group:
            assert not [*parts.iter_errors(group["parts"])], group["what"]
