"""Where two lists of operators differ, in lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.comparing.steps import ExecutedOperator, StepApart

_MOST = 12


def program_lines(
    found: StepApart, first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> list[str]:
    """The operators that only one of the two has, and those with other attributes."""
    lines = list(_lines(found, first, second))
    more = len(lines) - _MOST
    return lines if more <= 0 else [*lines[:_MOST], f"and {more:,} more places"]


def _lines(
    found: StepApart, first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> Iterator[str]:
    for a, b in found.gaps:
        entry, name, other = (first[a], "A", "B") if a is not None else (second[b or 0], "B", "A")
        number = a if a is not None else b
        yield f"{other} has no partner of node {number} of {name}: {said(entry)}"
    for a, b in found.changed:
        if a is not None and b is not None:
            ours, theirs = first[a], second[b]
            where = f"node {a}" if a == b else f"node {a} of A and {b} of B"
            pair = f"{{{ours.attributes}}} in A, {{{theirs.attributes}}} in B"
            yield f"{where} ({ours.operator}): {pair}"


def said(entry: ExecutedOperator) -> str:
    """An operator with what it reads from outside of the step."""
    read = [operand.name for operand in entry.inputs if operand.source is None and operand.name]
    place = f" in {entry.place}" if entry.place else ""
    return f"{entry.operator}{place}{f', which reads {read[0]}' if read else ''}"
