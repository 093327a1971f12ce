"""Which loop computes a call of a pointwise operator, and what goes into it.

A device has every loop of `numerics.values.variants`, every function of NUMERICS 5, and `pow`. The
processor has no whole loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tallystick.numerics.operators.common import constant, number
from tallystick.numerics.registry import OpSpec, all_ops, lookup
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.graph import FUNCTIONS, Condition, Expr, values_below
from tallystick.numerics.values.variants import loops, variant_of

POINTWISE, FUNCTION, POWER, WHOLE = "pointwise", "function", "pow", "whole"


@dataclass(frozen=True)
class LoopCall:
    """`family` is where `name` is found. `operands` are positions of a call's operands, or
    attributes that are operands of one number; `parameters` are attributes, or operands' sizes."""

    family: str
    name: str
    operands: tuple[int | Expr, ...]
    parameters: tuple[Expr, ...] = ()
    masks: bool = False  # whether an operand or the result is a bool
    why: str = ""  # of a refusal, where the loop may refuse an element

    def gathered(self, op: str, attrs: Attrs, inputs: Sequence[Any]) -> list[Any]:
        """The loop's operands; 0-d arrays for attributes (NUMERICS 1.9, 10.1)."""
        return [
            inputs[x]
            if isinstance(x, int)
            else constant(op, x.name, number(attrs, x.name), x.dtype)
            for x in self.operands
        ]

    def numbers(self, op: str, attrs: Attrs, inputs: Sequence[Any]) -> list[float]:
        """The loop's parameters, binary64 numbers that the device rounds once."""
        found: list[float] = []
        for leaf in self.parameters:
            if leaf.kind == "attribute":
                found.append(number(attrs, leaf.name))
            else:
                found.append(float(inputs[names_of(lookup(op)).index(leaf.name)].size))
        return found


def names_of(spec: OpSpec) -> list[str]:
    """The operands' names."""
    return [name.rstrip("?*") for name in spec.operands]


@cache
def _names_of_loops() -> dict[str, str]:
    return {structure: loop.name for structure, loop in loops(all_ops().values()).items()}


@lru_cache(maxsize=4096)
def _call(op: str, dtypes: tuple[str, ...], attrs: tuple[tuple[str, Any], ...]) -> LoopCall | None:
    spec, given = lookup(op), dict(attrs)
    form = spec.form(given, dtypes)
    if form is None or len(form.outputs) != 1:
        return None
    (value,) = form.resolved(given, frozenset((*given, *form.operands)))
    places = {name: k for k, name in enumerate(names_of(spec))}
    if value.kind in FUNCTIONS and value.of[0].kind == "operand":
        return LoopCall(FUNCTION, value.kind, (places[value.of[0].name],))
    if value.kind == "pow":
        return LoopCall(POWER, "pow", (places[value.of[0].name], value.of[1]))
    variant = variant_of(form, value)
    name = None if variant is None else _names_of_loops().get(variant.structure)
    if variant is None or name is None:
        return None
    operands = tuple(places.get(leaf.name, leaf) for leaf in variant.operands)
    family = WHOLE if variant.is_whole else POINTWISE
    return LoopCall(family, name, operands, variant.parameters, variant.kind != "f", form.why)


def call_of(op: str, attrs: Attrs, dtypes: Sequence[str]) -> LoopCall | None:
    """The loop of a call with operands of `dtypes`; None where none computes it.

    The numbers of attributes go in at each call: equal keys may differ in a zero's sign.
    """
    return _call(op, tuple(dtypes), tuple(attrs.items()))


def deciding(spec: OpSpec) -> tuple[Condition, ...]:
    """The conditions that decide, with the first operand's dtype, which values a call has.

    No two forms of a pointwise operator differ in the other operands' dtypes alone.
    """
    found = [form.when for form in spec.forms]
    found += [x.condition for form in spec.forms for x in values_below(form.outputs)]
    return tuple(dict.fromkeys(condition for condition in found if condition is not None))


def storage_shared(spec: OpSpec) -> tuple[tuple[int, int], ...]:
    """The (operand, output) pairs that may share storage: those of one dtype in every form."""
    return tuple(
        (k, 0)
        for k in range(len(spec.operands))
        if all(form.dtypes[k] == form.outputs[0].dtype for form in spec.forms)
    )


def pointwise_operators() -> list[OpSpec]:
    """The operators whose kernels follow from their forms: those of one output for every call."""
    return [
        spec
        for spec in all_ops().values()
        if spec.forms
        and all(len(form.outputs) == 1 for form in spec.forms)
        and not any(name.endswith("?") for name in spec.operands)
    ]
