"""Operators of torch and their arguments, in words.

A trace has the arguments of an operator as text, and, in a line of its own, their names and
defaults. Older traces lack that line: there an argument is known by its place alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Schema = Sequence[tuple[str, str]]

# Numbers that stand for words in torch's own sources.
_REDUCTION = {"0": "none", "1": "mean", "2": "sum"}
# Names that say no more than that there is an argument.
_PLAIN = frozenset({"other", "self", "scalar", "scalars", "input", "value", "exponent", ""})


def short(operator: str) -> str:
    """An operator without its overload: aten.add of aten.add.Tensor."""
    parts = operator.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else operator


def parts_of(attributes: str) -> list[str]:
    """The arguments of an operator, one by one."""
    found, depth, begin = [], 0, 0
    for at, char in enumerate(attributes):
        depth += (char in "[(") - (char in ")]")
        if char == "," and depth == 0:
            found.append(attributes[begin:at].strip())
            begin = at + 1
    last = attributes[begin:].strip()
    return [*found, last] if last else found


def arguments_of(attributes: str, schema: Schema) -> dict[str, str]:
    """The arguments of an operator by their names, with the defaults of those that were left
    out."""
    found = {name: default for name, default in schema if default}
    names = {name for name, _ in schema}
    for place, part in enumerate(parts_of(attributes)):
        name, equal, value = part.partition("=")
        if equal and name in names:
            found[name] = value
        elif place < len(schema):
            found[schema[place][0]] = part
    return found


def arguments_apart(attributes: tuple[str, str], schema: Schema) -> Iterator[tuple[str, str, str]]:
    """The arguments that differ: the name, and both values."""
    if not schema:
        return
    ours, theirs = (arguments_of(one, schema) for one in attributes)
    for name in dict.fromkeys([*ours, *theirs]):
        pair = ours.get(name, "nothing"), theirs.get(name, "nothing")
        if pair[0] != pair[1]:
            if name == "reduction":
                pair = _REDUCTION.get(pair[0], pair[0]), _REDUCTION.get(pair[1], pair[1])
            yield name, *pair


def has_said(attributes: tuple[str, str], schema: Schema) -> str:
    """Says which arguments differ, by their names; empty where the names would say nothing."""
    apart = list(arguments_apart(attributes, schema))
    if not apart or any(name in _PLAIN for name, _, _ in apart):
        return ""
    return "; ".join(
        f"{name} {ours[:80]} in A and {theirs[:80]} in B" for name, ours, theirs in apart
    )


def argument(
    operator: str, attributes: str, schemas: Mapping[str, Schema], name: str, place: int
) -> str:
    """One argument of an operator by its name, and by its place where the names are unknown;
    empty where it has none."""
    schema = schemas.get(operator)
    if schema:
        return arguments_of(attributes, schema).get(name, "")
    parts = parts_of(attributes)
    return parts[place] if place < len(parts) else ""
