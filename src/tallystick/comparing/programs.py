"""Where two lists of operators differ, in lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.comparing.steps import ExecutedOperator, StepApart, only_one

_MOST = 12


def program_lines(
    found: StepApart, first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> list[str]:
    """The operators that only one of the two has, and those with other arguments. Operators that
    make nothing new are named only where there are no others."""
    lines = list(_lines(found, first, second, False)) or list(_lines(found, first, second, True))
    more = len(lines) - _MOST
    return lines if more <= 0 else [*lines[:_MOST], f"and {more:,} more places"]


def _lines(
    found: StepApart,
    first: Sequence[ExecutedOperator],
    second: Sequence[ExecutedOperator],
    every: bool,
) -> Iterator[str]:
    for gap in found.gaps:
        entry, number, name = only_one(gap, first, second)
        if every or not passes_through(entry):
            yield f"only {name} has operator {number}, {said(entry)}"
    for a, b in found.changed:
        if a is not None and b is not None:
            ours, theirs = first[a], second[b]
            where = f"operator {a}" if a == b else f"operator {a} of A and {b} of B"
            pair = f"({ours.attributes}) in A, ({theirs.attributes}) in B"
            yield f"{where}, {ours.operator}: the arguments are {pair}"


def passes_through(entry: ExecutedOperator) -> bool:
    """True for an operator that makes nothing new, such as detach."""
    read = {(operand.digest, operand.type) for operand in entry.inputs}
    return bool(entry.outputs) and all((made.digest, made.type) in read for made in entry.outputs)


def said(entry: ExecutedOperator) -> str:
    """An operator with what it reads from outside of the step."""
    read = [operand.name for operand in entry.inputs if operand.source is None and operand.name]
    place = f" in {entry.place}" if entry.place else ""
    return f"{entry.operator}{place}{f', which reads {read[0]}' if read else ''}"
