"""What two jobs' programs and files show beyond their digests: operators, weights, records.

A file is compared only after it was hashed: a damaged one would show a difference that the jobs do
not have. Where a file is missing, damaged or too large, nothing is said of its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.comparing.causes import differing
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import (
    OPERATOR,
    ExecutedOperator,
    OperandRecord,
    StepApart,
    align,
    only_one,
)
from tallystick.comparing.values import ElementApart, elements_apart, is_float
from tallystick.errors import CannotCheckError, CounterpartyError, StorageError
from tallystick.job.job import Job
from tallystick.job.numbers import count, decimal, listed
from tallystick.program.ir import COMMIT, Program, Value

# Bytes of a job's files that a comparison of two jobs reads and hashes.
_MOST_BYTES = 2 << 30
_WEIGHTS = ("param.", "buffer.")


# -- programs --------------------------------------------------------------------------------------
def operator_apart(first: Job, second: Job) -> str | None:
    """The first operator in which two jobs' programs differ, with both arguments."""
    for ours, theirs in zip(first.texts, second.texts, strict=False):
        if ours == theirs:
            continue
        try:
            return _first_operator(_entries(ours), _entries(theirs))
        except CannotCheckError:  # too many operators alike
            return None
    return None


def _entries(program: Program) -> list[ExecutedOperator]:
    return [
        ExecutedOperator(
            node.op,
            "; ".join(f"{name} {_argument(value)}" for name, value in node.attrs.items()),
            tuple(_operand(program, value) for value in node.inputs if value is not None),
            tuple(OperandRecord("", str(kind)) for kind in node.out_types),
            number=number,
        )
        for number, node in enumerate(program.nodes)
        if node.op != COMMIT
    ]


def _operand(program: Program, value: Value) -> OperandRecord:
    kind = str(program.type_of(value))
    if value.is_input:
        given = program.inputs[value.out]
        return OperandRecord("", kind, given.kind, given.name)
    name = f"output {value.out} of operator {value.node}"
    return OperandRecord("", kind, OPERATOR, name, value.node, value.out)


def _argument(value: object) -> str:
    if isinstance(value, float):
        return decimal(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value)


def _first_operator(
    first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> str | None:
    pairs = tuple(align(first, second))
    gaps = tuple((a, b) for a, b in pairs if a is None or b is None)
    for a, b in pairs:
        if a is None or b is None:
            return _alone(StepApart((a, b), "", 0, (), pairs, gaps, ()), first, second)
        ours, theirs = first[a], second[b]
        if ours.operator != theirs.operator:
            where = f"Operator {a}" if a == b else f"Operator {a} of A, {b} of B,"
            return f"{where} is {ours.operator} in A and {theirs.operator} in B."
        if ours.attributes != theirs.attributes:
            sides = [entry.attributes.split("; ") for entry in (ours, theirs)]
            only = [[x for x in sides[n] if x not in sides[1 - n]] for n in (0, 1)]
            pair = [", ".join(one) or "nothing more" for one in only]
            return f"{_numbered(ours, a, b)} has {pair[0]} in A and {pair[1]} in B."
    for a, b in pairs:
        if a is not None and b is not None:
            named = [[operand.name for operand in entry.inputs] for entry in (first[a], second[b])]
            if named[0] != named[1]:
                pair = [", ".join(names) or "nothing" for names in named]
                return f"{_numbered(first[a], a, b)} reads {pair[0]} in A and {pair[1]} in B."
    return None


def _numbered(entry: ExecutedOperator, a: int, b: int) -> str:
    number = f"operator {a}" if a == b else f"operator {a} of A and {b} of B"
    return f"{entry.operator} ({number})"


def _alone(
    found: StepApart, first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> str:
    """The operators that only one program has, by the first of each."""
    alone: dict[str, list[tuple[ExecutedOperator, int]]] = {}
    for gap in found.gaps:
        entry, number, name = only_one(gap, first, second)
        alone.setdefault(name, []).append((entry, number))
    said = []
    for name, entries in sorted(alone.items()):
        entry, number = entries[0]
        more = f" and {len(entries) - 1:,} more" if len(entries) > 1 else ""
        said.append(f"only {name} has {entry.operator} (operator {number}){more}")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


# -- the initial state -----------------------------------------------------------------------------
def weights_apart(first: Job, second: Job) -> Cause | None:
    """The first tensor of weights that differs at the start, with its first element. The cause's
    sentence is "" where both have equal weights; None where the files do not show it."""
    try:
        if max(job.disk_bytes for job in (first, second)) > _MOST_BYTES:
            return None
        states = [job.genesis().slots for job in (first, second)]
    except (StorageError, CounterpartyError):
        return None
    apart: list[tuple[str, Array, ElementApart]] = []
    for name, ours in states[0].items():
        theirs = states[1].get(name)
        if theirs is None or (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            continue
        found = elements_apart(ours, theirs) if name.startswith(_WEIGHTS) else None
        if found is not None:
            apart.append((name, ours, found))
    if not apart:
        return Cause("weights", "")
    name, tensor, found = apart[0]
    index = ", ".join(map(str, found.index))
    pair = f"{_value(found.first)} in A and {_value(found.second)} in B"
    if len(apart) == 1 and found.flipped is not None and is_float(tensor):
        said = f"Only element [{index}] of {name} differs, in bit {found.flipped} alone: {pair}."
        return Cause("flipped bit", said)
    more = f"; {len(apart):,} tensors differ" if len(apart) > 1 else ""
    said = f"{differing(found, name)}, the first of them [{index}]: {pair}{more}."
    if found.different == 1:
        said = f"{differing(found, name)}, [{index}]: {pair}{more}."
    return Cause("weights", said)


def _value(value: float | int | bool | complex) -> str:
    return decimal(value) if isinstance(value, float) else str(value)


# -- the records -----------------------------------------------------------------------------------
def records_apart(first: Job, second: Job, name: str) -> Cause | None:
    """How the records of a data set differ; None where the files do not show it."""
    try:
        if max(job.disk_bytes for job in (first, second)) > _MOST_BYTES:
            return None
        for job in (first, second):
            job.verify_data()
        ours, theirs = (_columns(job, name) for job in (first, second))
    except (StorageError, CounterpartyError):
        return None
    if [(n, c.dtype, c.shape[1:]) for n, c in sorted(ours.items())] != [
        (n, c.dtype, c.shape[1:]) for n, c in sorted(theirs.items())
    ]:
        return None
    counts = [len(next(iter(columns.values()))) for columns in (ours, theirs)]
    if counts[0] != counts[1]:
        said = f"The data set {name} has {count(counts[0], 'record')} in A and {counts[1]:,} in B."
        return Cause("data", said)
    differ = {field: _rows_apart(ours[field], theirs[field]) for field in sorted(ours)}
    rows = sorted({int(row) for found in differ.values() for row in found})
    if not rows:
        return None
    contents = [
        Counter(b"".join(columns[f][row].tobytes() for f in sorted(columns)) for row in rows)
        for columns in (ours, theirs)
    ]
    if contents[0] == contents[1]:
        said = (
            f"The data set {name} has the same records in both jobs, {len(rows):,} of them in "
            f"other places; the first is record {rows[0]}."
        )
        return Cause("data order", said)
    fields = listed([field for field, found in differ.items() if rows[0] in found])
    if len(rows) == 1:
        said = f"1 of the {counts[0]:,} records of {name} differs: record {rows[0]}, in {fields}."
        return Cause("data", said)
    said = f"{len(rows):,} of the {counts[0]:,} records of {name} differ"
    return Cause("data", f"{said}; the first is record {rows[0]}, in {fields}.")


def _columns(job: Job, name: str) -> dict[str, Array]:
    names = [data.name for data in job.commitment.timetable.data]
    return job.columns_of[names.index(name)]


def _rows_apart(ours: Array, theirs: Array) -> np.ndarray:
    """The records whose bytes differ in one field."""
    return np.concatenate([np.empty(0, np.int64), *_blocks_apart(ours, theirs)])


def _blocks_apart(ours: Array, theirs: Array) -> Iterator[np.ndarray]:
    rows = max(1, (16 << 20) // max(1, ours[:1].nbytes))
    for at in range(0, len(ours), rows):
        pair = [
            np.ascontiguousarray(a[at : at + rows]).reshape(len(a[at : at + rows]), -1)
            for a in (ours, theirs)
        ]
        unlike = (pair[0].view(np.uint8) != pair[1].view(np.uint8)).any(axis=1)
        yield at + np.flatnonzero(unlike)
