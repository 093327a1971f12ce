"""Forms as JSON (vectors/operators.json): for an interpreter in another language.

A form's values are a list of nodes, parts before what is made of them. A node is an object:

- `kind` and `dtype` as in `graph.Value`, `of`: the numbers of its parts;
- `name` of an operand, attribute or size; `number` of a constant, `real` if it stands for another;
- `is` or `has` of a case: the attribute or operand that decides, with `equal` for `is`;
- `part`: the number of the part that it is the value of.

A float is a string in C99 hexadecimal, as in vectors/kernels; a member without content is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.numerics.registry import AttrSpec, OpSpec
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.graph import Condition, Expr, values_below
from tallystick.numerics.values.positions import Part, parts_below

# Clauses of OPENING that write a form's real numbers down, where they are not the form's lifting.
REAL_CLAUSES = {
    "aten.pow.Tensor_Scalar": "10.9.2",
    "tallystick.adam_step": "10.9.3",
    "tallystick.adamw_step": "10.9.3",
    "tallystick.sgd_step": "10.9.4",
}


def _plain(value: Any) -> Any:
    """A number or text as JSON has it."""
    return value.hex() if isinstance(value, float) else value


def _condition(condition: Condition) -> dict[str, Any]:
    if condition.test == "has":
        return {"has": condition.name}
    return {"is": condition.name, "equal": _plain(condition.value)}


def nodes(
    roots: Sequence[Expr], parts: Sequence[Part] = ()
) -> tuple[list[dict[str, Any]], list[int]]:
    """The nodes of a graph, and the numbers of its roots among them."""
    below = values_below(roots)
    at = {id(value): k for k, value in enumerate(below)}
    found = []
    for value in below:
        node: dict[str, Any] = {"kind": value.kind, "dtype": value.dtype}
        if value.of:
            node["of"] = [at[id(part)] for part in value.of]
        if value.name:
            node["name"] = value.name
        if value.number is not None:
            node["number"] = _plain(value.number)
        if value.real is not None:
            node["real"] = _plain(value.real)
        if value.condition is not None:
            node |= _condition(value.condition)
        if value.part is not None:
            node["part"] = parts.index(value.part)
        found.append(node)
    return found, [at[id(root)] for root in roots]


def form_entry(form: Form) -> dict[str, Any]:
    """One form."""
    roots = [*form.outputs, *([] if form.refused is None else [form.refused])]
    made, numbers = nodes(roots)
    entry: dict[str, Any] = {
        "dtypes": list(form.dtypes),
        "nodes": made,
        "outputs": numbers[: len(form.outputs)],
    }
    if form.when is not None:
        entry["when"] = _condition(form.when)
    if form.refused is not None:
        entry |= {"refused": numbers[-1], "why": form.why}
    return entry


def part_entries(outputs: Sequence[Part]) -> dict[str, Any]:
    """The parts of an operator's outputs: the nodes of all of them, a list of parts, each after
    those that it is made of, and the outputs' numbers in it.

    A part's `value`, `count`, `inner`, `start`, `kept` and `divisor` are numbers of nodes, and so
    are those of a factor; `reads` are those of elements that are read first. `of` and `first` are
    numbers of parts, as is `part` of a node. `alone` only saves a prover time, and is left out.
    """
    listed: list[Part] = []

    def visit(part: Part) -> None:
        if part in listed:
            return
        for below in (*part.of, *parts_below(_roots(part), part.first)):
            visit(below)
        listed.append(part)

    for output in outputs:
        visit(output)
    roots = [root for part in listed for root in _roots(part)]
    made, _ = nodes(roots, listed)
    at = {id(value): k for k, value in enumerate(values_below(roots))}
    entries = [_part(part, at, listed) for part in listed]
    return {"nodes": made, "parts": entries, "outputs": [listed.index(part) for part in outputs]}


def _roots(part: Part) -> list[Expr]:
    of_factors = [x for f in part.factors for x in (f.value, f.member, f.each)]
    own = (part.value, part.count, part.inner, part.start, part.kept, part.divisor)
    held = (*part.reads, *own, *of_factors)
    return [value for value in held if value is not None]


def _part(part: Part, at: dict[int, int], listed: list[Part]) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": part.kind, "name": part.name, "dtype": part.dtype}
    for name in ("value", "count", "inner", "start", "kept", "divisor"):
        value = getattr(part, name)
        if value is not None:
            entry[name] = at[id(value)]
    if part.reads:
        entry["reads"] = [at[id(value)] for value in part.reads]
    if part.factors:
        entry["factors"] = [
            {name: at[id(getattr(factor, name))] for name in ("value", "member", "each")}
            for factor in part.factors
        ]
    if part.extreme:
        entry["extreme"] = part.extreme
    for name in ("of", "first"):
        if getattr(part, name):
            entry[name] = [listed.index(below) for below in getattr(part, name)]
    if part.condition is not None:
        entry |= _condition(part.condition)
    return entry


def _attribute(spec: AttrSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": spec.kind}
    if not spec.required:
        entry["optional"] = True
    if spec.default is not None and not callable(spec.default):
        default = spec.default
        entry["default"] = list(default) if isinstance(default, tuple) else _plain(default)
    return entry


def operator_entry(spec: OpSpec) -> dict[str, Any]:
    """One operator. `operands` are names; "w?" may be absent, a last "x*" stands for any number."""
    entry: dict[str, Any] = {
        "name": spec.name,
        "clause": spec.clause,
        "class": spec.op_class,
        "operands": list(spec.operands),
        "attributes": {name: _attribute(rule) for name, rule in spec.attrs.items()},
    }
    if spec.forms:
        entry["forms"] = [form_entry(form) for form in spec.forms]
    if spec.terms:
        entry["terms"] = [form_entry(form) for form in spec.terms]
    if spec.parts:
        entry["parts"] = {dtype: part_entries(parts) for dtype, parts in spec.parts.items()}
    if spec.masked_by:
        entry["masked_by"] = spec.masked_by
    if spec.rounded:
        entry["rounded"] = spec.rounded
    if spec.only_under:
        entry["contracts"] = list(spec.only_under)
    if spec.name in REAL_CLAUSES:
        entry["real_clause"] = REAL_CLAUSES[spec.name]
    return entry
