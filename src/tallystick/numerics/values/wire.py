"""Forms as JSON (vectors/operators.json): for an interpreter in another language.

A form's values are a list of nodes, parts before what is made of them. A node is an object:

- `kind` and `dtype` as in `graph.Value`, `of`: the numbers of its parts;
- `name` of an operand, attribute or size; `number` of a constant, `real` if it stands for another;
- `is` or `has` of a case: the attribute or operand that decides, with `equal` for `is`.

A float is a string in C99 hexadecimal, as in vectors/kernels; a member without content is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.numerics.registry import AttrSpec, OpSpec
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.graph import Condition, Value, values_below


def _plain(value: Any) -> Any:
    """A number or text as JSON has it."""
    return value.hex() if isinstance(value, float) else value


def _condition(condition: Condition) -> dict[str, Any]:
    if condition.test == "has":
        return {"has": condition.name}
    return {"is": condition.name, "equal": _plain(condition.value)}


def nodes(roots: Sequence[Value]) -> tuple[list[dict[str, Any]], list[int]]:
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
    return entry
