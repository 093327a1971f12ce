"""The loops that forms need on binary32: a name, and what goes into each.

A form whose cases are decided is a *variant*. Its operands are the first arguments of the loop that
computes it, and so is the attribute `other`, a second operand that is one number. The attributes
and sizes that remain are the loop's parameters. Two operators of one structure share a loop. The
renderer (native/tools/render_pointwise.py) writes the loops' text, and the kernels find them here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tallystick.numerics.registry import OpSpec
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.graph import Condition, Value, interpreted, resolved, values_below
from tallystick.numerics.values.primitives import FUNCTIONS

MOST_PARAMETERS = 2
_OPERAND_ATTRIBUTE = "other"


@dataclass(frozen=True)
class Variant:
    """`structure` tells loops apart; `operands` and `parameters` are leaves of `value` in the
    order of the loop's arguments."""

    value: Value
    structure: str
    operands: tuple[Value, ...]
    parameters: tuple[Value, ...]

    @property
    def kind(self) -> str:
        """f: binary32 in and out; c: binary32 to bool; m: binary32 and a bool to binary32."""
        if self.value.dtype == "bool":
            return "c"
        return "m" if any(leaf.dtype == "bool" for leaf in self.operands) else "f"


def variant_of(form: Form, value: Value) -> Variant | None:
    """The variant of an output without a case; None where no loop on binary32 computes it: other
    dtypes, a function by itself, a power."""
    below = values_below([value])
    if value.kind in FUNCTIONS and value.of[0].kind == "operand":
        return None
    if form.refused is not None or any(_is_foreign(x) for x in below):
        return None
    places = {name: k for k, name in enumerate((*form.operands, _OPERAND_ATTRIBUTE))}
    leaves = [x for x in below if x.kind in ("operand", "attribute", "size")]
    operands = sorted((x for x in leaves if x.name in places and x.kind != "size"),
                      key=lambda x: places[x.name])  # fmt: skip
    parameters = [x for x in leaves if x not in operands]
    names = {id(x): "abc"[k] for k, x in enumerate(operands)}
    names |= {id(x): f"p{k}" for k, x in enumerate(parameters)}
    if not any(x.dtype == "f32" for x in operands):
        return None
    dtypes = ",".join(x.dtype for x in operands)
    structure = f"{structure_of(value, names)} of {dtypes}"
    return Variant(value, structure, tuple(operands), tuple(parameters))


def _is_foreign(value: Value) -> bool:
    if value.kind in ("pow", "convert"):
        return True
    return value.dtype not in ("f32", "bool")


def structure_of(value: Value, names: dict[int, str]) -> str:
    """The value as text, its leaves by `names`."""

    def meaning(x: Value, parts: tuple[str, ...]) -> str:
        if x.kind == "constant":
            return struct.pack(">f", x.number).hex()
        return names[id(x)] if id(x) in names else f"{x.kind}({','.join(parts)})"

    return interpreted([value], meaning)[0]


def decided(value: Value) -> Iterator[tuple[Value, dict[Condition, bool]]]:
    """The value for every way to decide its cases, with the decisions in their order."""
    waiting: list[dict[Condition, bool]] = [{}]
    while waiting:
        known = waiting.pop()
        try:
            yield resolved([value], known.__getitem__)[0], known
        except KeyError as missing:
            condition = missing.args[0]
            waiting += [{**known, condition: False}, {**known, condition: True}]


def _suffix(spec: OpSpec, condition: Condition, holds: bool) -> str:
    """What a decision adds to a loop's name: nothing for an attribute's default."""
    if condition.test == "has":
        return f"_{condition.name}" if holds else ""
    value = condition.value
    if spec.attrs[condition.name].default == value:
        return "" if holds else f"_{condition.name}"
    if not holds:
        return ""
    return f"_{value}" if isinstance(value, str) else f"_{value:g}".replace(".", "_")


def _name(spec: OpSpec, variant: Variant, decisions: Mapping[Condition, bool]) -> str:
    decided_by = {condition.name for condition in decisions}
    parts = [_suffix(spec, condition, holds) for condition, holds in decisions.items()]
    parts += [
        f"_{leaf.name}"
        for leaf in variant.parameters
        if leaf.name in spec.attrs
        and not spec.attrs[leaf.name].required
        and leaf.name not in decided_by
    ]
    return spec.name.split(".")[1] + "".join(parts)


@dataclass(frozen=True)
class Loop:
    """A loop by name, with the operator whose variant it was first."""

    name: str
    operator: str
    clause: str
    variant: Variant


def loops(specs: Iterable[OpSpec]) -> dict[str, Loop]:
    """Every loop that these operators need, by structure."""
    found: dict[str, Loop] = {}
    # Those without cases first: they have the shortest names.
    for spec in sorted(specs, key=lambda s: (len(s.attrs), s.name)):
        for form in (*spec.forms, *spec.terms):
            if len(form.outputs) != 1 or not set(form.dtypes) <= {"f32", "bool"}:
                continue
            for value, decisions in decided(form.outputs[0]):
                variant = variant_of(form, value)
                if variant is None:
                    continue
                if len(variant.parameters) > MOST_PARAMETERS:
                    raise ValueError(f"{spec.name} has more than {MOST_PARAMETERS} parameters")
                loop = Loop(_name(spec, variant, decisions), spec.name, spec.clause, variant)
                found.setdefault(variant.structure, loop)
    names = [loop.name for loop in found.values()]
    if len(set(names)) != len(names):
        raise ValueError(f"two loops of one name: {sorted(names)}")
    return found
