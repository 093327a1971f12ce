"""The tables of spec/ say what the code does: attributes, operands, limits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.limits import LIMITS, LOCAL, OF_ANSWERS
from tallystick.numerics.registry import OpSpec, all_ops, complete_attrs
from tallystick.numerics.types import AttrValue, TensorType

SPEC = Path(__file__).resolve().parents[2] / "spec"
OPS = all_ops()

# A value of each kind, for the attributes that a call must be given.
_SOME: dict[str, object] = {
    "int": 0, "ints": (1,), "float": 0.5, "bool": True, "bools": (True,), "str": "x",
    "dtype": "f32",
}  # fmt: skip


def section(document: str, number: str) -> str:
    """The text of one clause with dots, up to the next clause or heading."""
    text = (SPEC / f"{document}.md").read_text()
    found = re.search(rf"^{re.escape(number)} .*?(?=^\d+\.\d|^## |\Z)", text, re.M | re.S)
    assert found, f"{document} {number}"
    return found[0]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of every row of the tables in `text`, headings left out."""
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def read(text: str, kind: str) -> object:
    """A default as §15 writes it; None for one that the caller gives."""
    if text in ("—", "*optional*", "the axis's size"):
        return None
    if kind == "float":
        return float(text)
    value = ast.literal_eval(text.replace("true", "True").replace("false", "False"))
    return tuple(value) if isinstance(value, list) else value


def stated_attributes() -> dict[str, dict[str, tuple[str, str]]]:
    """Operator -> attribute -> (kind, default as written), by NUMERICS 15.4."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    op = ""
    for name, attribute, kind, default, _ in rows(section("NUMERICS", "15.4")):
        op = name.strip("`") or op
        assert attribute not in found.setdefault(op, {}), (op, attribute)
        found[op][attribute] = (kind, default)
    return found


def default_of(spec: OpSpec, name: str) -> AttrValue | None:
    """What a call that leaves `name` out gets; None where it is refused or stays absent."""
    given = {k: _SOME[a.kind] for k, a in spec.attrs.items() if k != name and a.required}
    try:
        return complete_attrs(spec, given, ()).get(name)
    except UsageError:
        return None


def test_every_attribute_is_in_the_table() -> None:
    """NUMERICS 15.4: operators, attributes, kinds, and which are optional."""
    stated = stated_attributes()
    assert set(stated) == {name for name, spec in OPS.items() if spec.attrs}
    for op, attributes in stated.items():
        assert {k: kind for k, (kind, _) in attributes.items()} == {
            k: a.kind for k, a in OPS[op].attrs.items()
        }, op
        for name, (_, default) in attributes.items():
            assert (default == "*optional*") != OPS[op].attrs[name].required, (op, name)


@pytest.mark.parametrize("op", sorted(stated_attributes()))
def test_defaults_are_the_tables(op: str) -> None:
    for name, (kind, default) in stated_attributes()[op].items():
        assert default_of(OPS[op], name) == read(default, kind), (op, name)


def test_a_slice_ends_at_the_axis_where_nothing_is_said() -> None:
    """NUMERICS 15.4: the default of `end` is the one that depends on an operand."""
    x = TensorType("f32", (3, 7))
    for op, types in (("aten.slice", (x,)), ("aten.slice_scatter", (x, x))):
        assert complete_attrs(OPS[op], {"dim": 1}, types)["end"] == 7


def test_every_operator_has_its_operands_in_a_table() -> None:
    """NUMERICS 16: each operator is in one row, those of §5 as a family."""
    named: list[str] = []
    for number in range(2, 11):
        for row in rows(section("NUMERICS", f"16.{number}")):
            named += re.findall(r"`([a-z_]+\.[A-Za-z0-9_.]+)`", row[0])
    family = {name for name, spec in OPS.items() if spec.clause == "5"}
    assert len(named) == len(set(named))
    assert set(named) == (set(OPS) - family) | {"tallystick.commit"}


@pytest.mark.parametrize("changed", ["height", "stride", "padding", "dilation", "groups"])
def test_a_convolutions_sizes_are_bounded(changed: str) -> None:
    """NUMERICS 16.2: 2^28 - 1 fits, 2^28 does not. Types only: nothing is allocated."""
    infer = OPS["aten.convolution"].infer
    for size, fits in ((2**28 - 1, True), (2**28, False)):
        height, channels, kernel = 4, 1, 1
        attrs: dict[str, AttrValue] = {
            "stride": (1,), "padding": (0,), "dilation": (1,), "transposed": False,
            "output_padding": (0,), "groups": 1,
        }  # fmt: skip
        if changed == "height":
            height = size
        elif changed == "groups":
            attrs["groups"] = channels = size
        else:
            attrs[changed] = (size,)
        x = TensorType("f32", (1, channels, height, 4))
        w = TensorType("f32", (channels, 1, kernel, 1))
        if fits:
            assert len(infer(attrs, (x, w))) == 1
        else:
            with pytest.raises(UsageError):
                infer(attrs, (x, w))


def test_the_limits_are_the_protocols() -> None:
    """COMMITMENTS 11.1: one number for every implementation of this version; 11.3: the others."""
    stated = {name: int(value) for name, value, _ in rows(section("COMMITMENTS", "11.1"))}
    assert stated == {
        field.name: getattr(LIMITS, field.name)
        for field in fields(LIMITS)
        if field.name not in LOCAL | OF_ANSWERS
    }
    assert set(LOCAL) <= {field.name for field in fields(LIMITS)}


def test_the_limits_of_answers_are_the_specifications() -> None:
    """ANSWERS 10.1: those of the files of an answer."""
    stated = {name: int(value) for name, value, _ in rows(section("ANSWERS", "10.1"))}
    assert stated == {name: getattr(LIMITS, name) for name in OF_ANSWERS}
