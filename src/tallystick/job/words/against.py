"""Two jobs compared: what differs between them, in words."""

from __future__ import annotations

from typing import NamedTuple

from tallystick.devices.environment import exact_environment
from tallystick.job.numbers import decimal
from tallystick.job.words.layers import layer_lines
from tallystick.job.words.parts import JobInWords, TableWords
from tallystick.job.words.sentences import layer_rows, rows


class Apart(NamedTuple):
    """A sentence by its label, as each of two jobs has it; None where a job has no such one."""

    label: str
    first: str | None
    second: str | None


@exact_environment()
def against(first: JobInWords, second: JobInWords) -> list[Apart]:
    """What differs between two jobs, in the order of their sentences. Two jobs with one digest are
    one job, and others differ in at least one sentence."""
    ours, theirs = _rows(first, second), _rows(second, first)
    labels = [*ours, *(label for label in theirs if label not in ours)]
    found = [
        Apart(label, ours.get(label), theirs.get(label))
        for label in labels
        if ours.get(label) != theirs.get(label)
    ]
    return [*_tables(first, second), *found]


def _rows(words: JobInWords, other: JobInWords) -> dict[str, str]:
    """The sentences of a job by their labels. Layers share a sentence only where they do in both
    jobs: else a label that one job alone has would say that the other has no such layer."""
    alone, common = (layer_rows(layer_lines(words.layers, o)) for o in ((), other.layers))
    labels = {label for label, _ in alone}
    found = dict[str, str]()
    for label, sentence in rows(words):
        if label not in labels:
            found[label] = sentence
        elif common:
            found |= common
            common = []
    return found


def _tables(first: JobInWords, second: JobInWords) -> list[Apart]:
    """The first row in which two tables of one name differ: their shapes may be said alike."""
    theirs, found = {t.name: t for t in second.tables}, []
    for ours in first.tables:
        other = theirs.get(ours.name)
        row = None if other is None else _first_row(ours, other)
        if other is not None and row is not None:
            where = f"step {row:,} of the steps that read it"
            pair = (f"{decimal(t.at(row))} in {where}" for t in (ours, other))
            found.append(Apart(f"numbers {ours.name}", *pair))
    return found


def _first_row(ours: TableWords, other: TableWords) -> int | None:
    if isinstance(ours.values, float) and isinstance(other.values, float):
        return None
    lengths = [len(t.values) for t in (ours, other) if not isinstance(t.values, float)]
    return next((row for row in range(min(lengths)) if ours.at(row) != other.at(row)), None)
