"""The records that the steps of two traces read: how many, which, and in which order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import OperandRecord
from tallystick.comparing.trace_loading import moves_records
from tallystick.comparing.traced_pair import TracedPair
from tallystick.comparing.tracefile import TracedStep, TraceReader
from tallystick.comparing.values import signs_said
from tallystick.job.numbers import count
from tallystick.protocol.verdict import PARTIES

_PHASE = re.compile(r"(backward|optimizer), ")
_FIRST = re.compile(r"\[([0-9]+)")  # the first size of a type such as f32[8,6]
_ROW = 8  # digits of a record's digest


# -- how many --------------------------------------------------------------------------------------
def batch_size(step: TracedStep) -> int | None:
    """The records of a step's batch: what the first module was given, else the first data."""
    given = step.calls[0] if step.calls else next((o.type for o in _data(step)), None)
    return None if given is None else _size(given)


def _data(step: TracedStep) -> Iterator[OperandRecord]:
    for entry in step.operators:
        for operand in entry.inputs:
            if operand.kind == "data" and operand.source is None and "[" in operand.type:
                yield operand


def _size(form: str) -> int:
    """The first size of a type such as f32[8,6]."""
    inner = form.partition("[")[2].rstrip("]")
    first = inner.partition(",")[0]
    return int(first) if first.isdecimal() else 1


def cause_of_batches(pair: TracedPair) -> Cause | None:
    """Batches of two sizes in one step: of other records, or of the same ones in parts."""
    step, calls = pair.steps[0].number, _apart(pair)
    parts = [
        [_size(own.calls[n]) for n in numbers]
        for own, numbers in zip(pair.steps, calls, strict=True)
    ]
    in_parts = parts[0] != parts[1] and all(parts) and sum(parts[0]) == sum(parts[1])
    if in_parts and _same_records(pair, calls):
        return Cause("program", _parts_said(step, parts))
    sizes = batch_size(pair.steps[0]), batch_size(pair.steps[1])
    if in_parts and sizes[0] == sizes[1]:
        sizes = parts[0][0], parts[1][0]  # behind calls that are equal, such as a validation
    if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
        return None
    said = f"The batch of step {step} has {count(sizes[0], 'record')} in A and {sizes[1]:,} in B."
    return Cause("last batch" if step and pair.usual in sizes else "batch size", said)


def causes_of_end(pair: TracedPair, longer: TracedStep, name: str) -> list[Cause]:
    """Why one loop goes on: its last batch is a short one, or it has more steps."""
    size = batch_size(longer)
    if size is not None and pair.usual is not None and size < pair.usual:
        said = (
            f"{name} has a step more, whose batch has {count(size, 'record')}; a whole batch has "
            f"{pair.usual:,}."
        )
        return [Cause("last batch", said)]
    side = 1 - PARTIES.index(name)
    said = f"{name} goes on after step {pair.steps[side].number}, where {PARTIES[side]} ends."
    return [Cause("steps", said)]


# -- the same records in parts ---------------------------------------------------------------------
def _parts_said(step: int, sizes: Sequence[Sequence[int]]) -> str:
    total = f"{sum(sizes[0]):,}"
    if min(map(len, sizes)) > 1:
        both = " and ".join(
            f"{_split(own)} in {name}" for own, name in zip(sizes, PARTIES, strict=True)
        )
        return f"The {total} records of step {step} are split into {both}."
    name = PARTIES[0] if len(sizes[0]) > 1 else PARTIES[1]
    return f"{name} splits the {total} records of step {step} into {_split(max(sizes, key=len))}."


def _apart(pair: TracedPair) -> tuple[list[int], list[int]]:
    """The calls of the module that is called first, without those at the beginning and at the
    end that are equal in both loops."""
    calls = _calls(pair.steps[0]), _calls(pair.steps[1])
    for at in (0, -1):
        while calls[0] and calls[1]:
            ours, theirs = (
                (step.calls[own[at]], step.given[own[at]])
                for step, own in zip(pair.steps, calls, strict=True)
            )
            if ours != theirs:
                break
            calls[0].pop(at)
            calls[1].pop(at)
    return calls


def _calls(step: TracedStep) -> list[int]:
    return [n for n, caller in enumerate(step.callers) if caller == step.callers[0]]


def _split(sizes: Sequence[int]) -> str:
    each = f"{sizes[0]:,}" if len(set(sizes)) == 1 else ", ".join(f"{size:,}" for size in sizes[:8])
    return f"{len(sizes):,} micro-batches of {each}"


def _same_records(pair: TracedPair, calls: Sequence[Sequence[int]]) -> bool:
    rows = [[step.given[n] for n in own] for own, step in zip(calls, pair.steps, strict=True)]
    if all(text for own in rows for text in own):
        return "".join(rows[0]) == "".join(rows[1])
    values = [
        _values(reader, step, own)
        for reader, step, own in zip(pair.readers, pair.steps, calls, strict=True)
    ]
    if values[0] is None or values[1] is None:
        return False
    return np.concatenate(values[0]).tobytes() == np.concatenate(values[1]).tobytes()


def _values(reader: TraceReader, step: TracedStep, calls: Sequence[int]) -> list[Array] | None:
    """What each of some calls was given, in a trace that does not say it: of the operands of
    modules that no module has made, those of the call's type, in their order."""
    given = dict.fromkeys(
        (operand.type, operand.digest, operand.source, operand.out)
        for entry in step.operators
        if entry.place and not _PHASE.match(entry.place)
        for operand in entry.inputs
        if operand.kind != "parameter"
        and (operand.source is None or not step.operators[operand.source].place)
    )
    found = []
    for call in _calls(step):
        key = next((key for key in given if key[0] == step.calls[call]), None)
        if key is None:
            return None
        del given[key]
        if call in calls:
            value = reader.value(OperandRecord(key[1], key[0]))
            if value is None or not value.ndim:
                return None
            found.append(value)
    return found


# -- which, and in which order ---------------------------------------------------------------------
def cause_of_records(
    pair: TracedPair,
    operands: tuple[OperandRecord, OperandRecord],
    values: tuple[Array | None, Array | None],
    where: str,
) -> Cause | None:
    """What differs in two tensors that the loops were given; None where their records are not
    known one by one."""
    step = pair.steps[0].number
    signs = "" if values[0] is None or values[1] is None else signs_said(values[0], values[1])
    if signs:
        said = f"In step {step} {where} differs in the sign of zero alone: {signs}."
        return Cause("data", said)
    rows = [rows_of(reader.all_rows().values()) for reader in pair.readers]
    if not rows[0] or not rows[1]:
        return None
    batches = [
        rows_of([reader.rows.get(operand.digest) or _given(own, operand)])
        for reader, own, operand in zip(pair.readers, pair.steps, operands, strict=True)
    ]
    sizes = {int(first) for form in pair.steps[0].calls for first in _FIRST.findall(form)}
    cause = _of_records(step, rows, batches, sizes)
    if cause.kind == "data order" and pair.shuffled:
        return Cause("data order", pair.shuffled)
    return cause


def _given(step: TracedStep, operand: OperandRecord) -> str:
    """The records of a batch that operators have gathered, as the first module was given it."""
    same = operand.source is not None and step.calls and step.calls[0] == operand.type
    return step.given[0] if same else ""


def is_handed_over(pair: TracedPair, operands: tuple[OperandRecord, OperandRecord]) -> bool:
    """True for a batch that one loop has gathered, and that the other was given as it is."""
    kinds = [
        operand.kind == "data"
        if operand.source is None
        else operand.source in moves_records(step.operators) and "moved"
        for operand, step in zip(operands, pair.steps, strict=True)
    ]
    return True in kinds and "moved" in kinds


def _of_records(
    step: int, rows: list[list[str]], batches: list[list[str]], sizes: set[int]
) -> Cause:
    """What differs in two batches, by the digests of their records; `rows` are those of the whole
    loops. `sizes` are those of the step's batches: a tensor with another number of records may be
    a whole data set, from which the step takes some."""
    every = set(rows[0]), set(rows[1])
    share = len(every[0] & every[1]) / min(len(every[0]), len(every[1]))
    same = sum(1 for ours, theirs in zip(*batches, strict=False) if ours == theirs)
    most = max(len(batch) for batch in batches)
    known = most and set(batches[0]) <= every[1] and set(batches[1]) <= every[0]
    if known and Counter(rows[0]) == Counter(rows[1]):
        said = (
            f"Step {step} reads records that the other loop reads in another step or at another "
            "place."
        )
        return Cause("data order", said)
    # What the other loop never reads, such as another constant, is in no other order.
    shared = not every[0].isdisjoint(batches[1]) and not every[1].isdisjoint(batches[0])
    if share >= 0.5 and 2 * same <= most and shared:
        said = f"Step {step} reads other records; {share:.0%} of all records are in both loops."
        return Cause("data order", said)
    if 0 < same < most:
        places = [n for n, pair in enumerate(zip(*batches, strict=False)) if pair[0] != pair[1]]
        of = f" of the batch of step {step}" if most in sizes else ""
        said = f"{most - same:,} of the {most:,} records{of}"
        if most - same == 1 and places:
            return Cause("data", f"{said} differs (record {places[0]}).")
        where = f" (the first is record {places[0]})" if places else ""
        return Cause("data", f"{said} differ{where}.")
    if share < 1:
        return Cause("data", f"Step {step} reads records that the other loop does not read.")
    return Cause("data", f"Step {step} reads other records, or the same ones in another order.")


def rows_of(texts: Iterable[str]) -> list[str]:
    """The digests of records, 8 digits each."""
    return [text[n : n + _ROW] for text in texts for n in range(0, len(text), _ROW)]
