"""The loops that forms need: a name, and what goes into each.

A form whose cases are decided is a *variant*. Its operands are the first arguments of the loop that
computes it, and so is the attribute `other`, a second operand that is one number. The attributes
and sizes that remain are the loop's parameters. Two operators of one structure share a loop. Loops
on integers and bools, and conversions, are *whole*: only a GPU has them, every attribute is an
operand of theirs, and they read a bool as a u8 (0 or 1). The renderer
(native/tools/render_pointwise.py) writes the loops' text, and the kernels find them here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tallystick.numerics.registry import OpSpec
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.graph import (
    FUNCTIONS,
    Condition,
    Expr,
    interpreted,
    resolved,
    values_below,
)

MOST_PARAMETERS = 2
_OPERAND_ATTRIBUTE = "other"
_TAKEN = ("f32", "i64", "i32", "u8", "bool")


@dataclass(frozen=True)
class Variant:
    """`structure` tells loops apart; `operands` and `parameters` are leaves of `value` in the
    order of the loop's arguments. `refused`: as of the form."""

    value: Expr
    structure: str
    operands: tuple[Expr, ...]
    parameters: tuple[Expr, ...]
    refused: Expr | None = None
    is_whole: bool = False

    @property
    def kind(self) -> str:
        """f: binary32 in and out; c: binary32 to bool; m: binary32 and a bool to binary32."""
        if self.value.dtype == "bool":
            return "c"
        return "m" if any(leaf.dtype == "bool" for leaf in self.operands) else "f"


def variant_of(form: Form, value: Expr) -> Variant | None:
    """The variant of an output without a case; None where no loop computes it: on binary64, a
    function by itself, a power."""
    roots = [value] if form.refused is None else [form.refused, value]
    below = values_below(roots)
    if value.kind in FUNCTIONS and value.of[0].kind == "operand":
        return None
    if any(x.kind == "pow" or x.dtype not in _TAKEN for x in below):
        return None
    leaves = [x for x in below if x.kind in ("operand", "attribute", "size")]
    is_whole = not _is_binary32(form, below)
    places = {name: k for k, name in enumerate((*form.operands, _OPERAND_ATTRIBUTE))}
    operands = sorted((x for x in leaves if x.kind != "size" and (is_whole or x.name in places)),
                      key=lambda x: places.get(x.name, len(places)))  # fmt: skip
    parameters = [x for x in leaves if x not in operands]
    names = {id(x): "abc"[k] for k, x in enumerate(operands)}
    names |= {id(x): f"p{k}" for k, x in enumerate(parameters)}
    dtypes = [x.dtype for x in operands]
    if is_whole:
        dtypes = ["u8" if dtype == "bool" else dtype for dtype in dtypes]
    structure = f"{' else '.join(structure_of(x, names) for x in roots)} of {','.join(dtypes)}"
    return Variant(value, structure, tuple(operands), tuple(parameters), form.refused, is_whole)


def _is_binary32(form: Form, below: list[Expr]) -> bool:
    """True if a loop on binary32 and bools computes it, with binary32 among its operands."""
    if form.refused is not None or any(x.kind == "convert" for x in below):
        return False
    return {x.dtype for x in below} <= {"f32", "bool"} and "f32" in form.dtypes


def structure_of(value: Expr, names: dict[int, str]) -> str:
    """The value as text, its leaves by `names`."""

    def meaning(x: Expr, parts: tuple[str, ...]) -> str:
        if x.kind == "constant":
            return struct.pack(">f", x.number).hex() if x.dtype == "f32" else repr(x.number)
        kind = f"{x.of[0].dtype}_{x.dtype}" if x.kind == "convert" else x.kind
        return names[id(x)] if id(x) in names else f"{kind}({','.join(parts)})"

    return interpreted([value], meaning)[0]


def decided(value: Expr) -> Iterator[tuple[Expr, dict[Condition, bool]]]:
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
    name = spec.name.split(".")[1] + "".join(parts)
    return f"{variant.operands[0].dtype}_{name.strip('_')}" if variant.is_whole else name


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
            if len(form.outputs) != 1:
                continue
            for value, decisions in decided(form.outputs[0]):
                if form.when is not None:
                    decisions[form.when] = True
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


# -- steps -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class OptimizerForm:
    """A form of an optimizer. Its operands on binary32 are `elements`; every other leaf is one of
    `numbers`, operands first. What is made of these alone is a factor, computed before the loop.
    A kernel is one way to decide `conditions`."""

    name: str
    operator: str
    clause: str
    form: Form
    elements: tuple[Expr, ...]
    numbers: tuple[Expr, ...]
    factors: tuple[Expr, ...]
    conditions: tuple[Condition, ...]

    def kernel(self, holds: Iterable[bool]) -> str:
        """The name of the kernel for which these conditions hold."""
        names = map(condition_name, self.conditions)
        return "_".join([self.name, *(name for name, it in zip(names, holds, strict=True) if it)])


def condition_name(condition: Condition) -> str:
    """`has_coefficient`, `weight_decay_is_0`, `nesterov`."""
    if condition.test == "has":
        return f"has_{condition.name}"
    value = condition.value
    return condition.name if value is True else f"{condition.name}_is_{value:g}"


def steps(specs: Iterable[OpSpec]) -> list[OptimizerForm]:
    """The steps of those of these operators that are an optimizer's on tensors."""
    return [
        _step(spec, form)
        for spec in sorted(specs, key=lambda spec: spec.name)
        for form in spec.forms
        if spec.op_class == "optimizer" and "f32" in form.dtypes
    ]


def _step(spec: OpSpec, form: Form) -> OptimizerForm:
    below = values_below(form.outputs)
    places = [name.rstrip("?") for name in spec.operands]
    operands = sorted((x for x in below if x.kind == "operand"), key=lambda x: places.index(x.name))
    elements = [x for x in operands if x.dtype == "f32" and x.name in form.operands]
    numbers = [x for x in (*operands, *below) if x.kind == "attribute" or x in operands]
    factors: dict[Expr, None] = {}

    def find(value: Expr) -> None:
        if any(x.kind == "case" or x in elements for x in values_below([value])):
            for part in value.of:
                find(part)
        elif value.kind != "constant":
            factors[value] = None

    for output in form.outputs:
        find(output)
    name = spec.name.split(".")[1] + ("" if form.when is None else f"_{condition_name(form.when)}")
    conditions = dict.fromkeys(x.condition for x in below if x.condition is not None)
    numbers = [x for x in dict.fromkeys(numbers) if x not in elements]
    return OptimizerForm(name, spec.name, spec.clause, form, tuple(elements), tuple(numbers),
                tuple(factors), tuple(conditions))  # fmt: skip
