"""Where two lists of operators differ, in lines for a person."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tallystick.comparing.steps import ExecutedOperator, StepApart, only_one
from tallystick.job.numbers import count, decimal
from tallystick.protocol.verdict import PARTIES

_MOST = 12
_SEPARATOR = re.compile(r", (?=[a-z_0-9]+=)")  # between two arguments with names
_HEX = re.compile(r"-?0x[01]\.?[0-9a-f]*p[+-][0-9]+")


class ProgramLines:
    """The places where the programs of two executions differ: the first ones as lines, the others
    as a number."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def add(
        self,
        step: int,
        found: StepApart,
        first: Sequence[ExecutedOperator],
        second: Sequence[ExecutedOperator],
    ) -> None:
        """Take in the operators of one step that only one of the two has, and those with other
        arguments. Operators that make nothing new count only where there are no others."""
        lines = list(_lines(found, first, second, False)) or list(
            _lines(found, first, second, True)
        )
        room = _MOST - len(self._lines)
        self._lines += [f"step {step}: {line}" for line in lines[:room]]
        self._more += len(lines[room:])

    def __bool__(self) -> bool:
        return bool(self._lines)

    def said(self) -> tuple[str, ...]:
        """The lines; the last one counts the places that have none."""
        if not self._more:
            return tuple(self._lines)
        return (*self._lines, f"and {count(self._more, 'more place')}")


def _lines(
    found: StepApart,
    first: Sequence[ExecutedOperator],
    second: Sequence[ExecutedOperator],
    every: bool,
) -> Iterator[str]:
    for gap in found.gaps:
        entry, number, name = only_one(gap, first, second)
        if every or not passes_through(entry):
            yield _alone_said(entry, number, name, first, second)
    for a, b in found.changed:
        if a is not None and b is not None:
            ours, theirs = first[a], second[b]
            where = f"operator {a}" if a == b else f"operator {a} of A and {b} of B"
            yield f"{where}, {ours.operator}: {arguments_apart(ours, theirs)}"


def _alone_said(
    entry: ExecutedOperator,
    number: int,
    name: str,
    first: Sequence[ExecutedOperator],
    second: Sequence[ExecutedOperator],
) -> str:
    """An operator without a partner. In a trace, whose operators have places, the other loop may
    call it in the same place too."""
    other = second if name == PARTIES[0] else first
    is_trace = any(one.place for one in (*first, *second))
    if not is_trace or not calls_of(entry, other):
        return f"only {name} has operator {number}, {said(entry)}"
    times = [calls_of(entry, own) for own in (first, second)]
    begin = f"operator {number} of {name}, {said(entry)}"
    if times[0] == times[1]:
        return f"{begin}: {PARTIES[1 - PARTIES.index(name)]} calls it at another place"
    return f"{begin}: A calls it {count(times[0], 'time')} and B {count(times[1], 'time')}"


def calls_of(entry: ExecutedOperator, entries: Sequence[ExecutedOperator]) -> int:
    """How many of some operators are the same as `entry`, in the same place."""
    return sum((e.operator, e.place) == (entry.operator, entry.place) for e in entries)


def arguments_apart(ours: ExecutedOperator, theirs: ExecutedOperator) -> str:
    """The arguments of two operators: only those that differ, where each has a name."""
    named = [_named(entry.attributes) for entry in (ours, theirs)]
    if named[0] is None or named[1] is None:
        return f"the arguments are ({ours.attributes}) in A and ({theirs.attributes}) in B"
    names = [n for n in named[0] | named[1] if named[0].get(n) != named[1].get(n)]
    return "; ".join(
        f"{n} is {named[0].get(n, 'absent')} in A and {named[1].get(n, 'absent')} in B"
        for n in names
    )


def _named(attributes: str) -> dict[str, str] | None:
    """The arguments of a job's operator by their names, its floats as decimal numbers; None for
    arguments without names."""
    found = dict[str, str]()
    for one in _SEPARATOR.split(attributes) if attributes else ():
        name, equal, value = one.partition("=")
        if not equal or not name.isidentifier():
            return None
        found[name] = _HEX.sub(lambda number: decimal(float.fromhex(number[0])), value)
    return found


def passes_through(entry: ExecutedOperator) -> bool:
    """True for an operator that makes nothing new, such as detach."""
    read = {(operand.digest, operand.type) for operand in entry.inputs}
    return bool(entry.outputs) and all((made.digest, made.type) in read for made in entry.outputs)


def said(entry: ExecutedOperator) -> str:
    """An operator with what it reads from outside of the step."""
    read = [operand.name for operand in entry.inputs if operand.source is None and operand.name]
    place = f" in {entry.place}" if entry.place else ""
    return f"{entry.operator}{place}{f', which reads {read[0]}' if read else ''}"
