"""Freezing: a source's records, once, into a frozen directory, in memory for a few blocks.

Theory of operation. Each block of a source becomes columns (rules.py), is hashed into the data root
(commit/streamed.py) and written (disk/columns.py, on a thread of its own), and is gone. The
manifest is written last, after the records are durable. So a directory without one is unfinished,
whatever else is in it, and the next freeze begins anew: a source may not give the same records
twice, and half of one reading with half of another would be a set that nobody has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.data import DataSchema
from tallystick.commit.encoding import JsonValue
from tallystick.commit.streamed import RecordStream
from tallystick.commit.tensor import Array
from tallystick.data.frozen import (
    FROZEN_DIRECTORY,
    LOCK,
    MANIFEST,
    RECORDS,
    VALIDATION,
    Frozen,
    load_frozen,
)
from tallystick.data.pick import PickOptions, pick
from tallystick.data.rules import Columns, FieldRules, Pad, longest
from tallystick.data.sources.base import DataSource
from tallystick.disk.columns import ColumnWriter, file_bytes, is_left_over
from tallystick.disk.files import (
    free_bytes,
    locked,
    make_directory,
    remove,
    remove_file,
    sync_path,
    write_file,
)
from tallystick.disk.manifest import manifest_bytes, refuse_taken, written_anew
from tallystick.disk.regular import names, os_errors, present
from tallystick.errors import StorageError, UsageError
from tallystick.limits import LIMITS

_MOST_PARTS = 1 << 20


@dataclass(frozen=True)
class Progress:
    """How far a freeze is: its stage ("measuring" or "freezing"), records done and in all (None
    where that is not known), bytes of records done."""

    stage: str
    records: int
    count: int | None
    nbytes: int


OnProgress = Callable[[Progress], None]


def freeze(
    source: Any,
    directory: Path | str,
    *,
    fields: tuple[str, ...] | list[str] | None = None,
    dtype: str | Mapping[str, str] | None = None,
    pad: Mapping[str, Pad] | None = None,
    hold_out: float | Fraction = 0,
    kind: str | None = None,
    tokenizer: Path | str | None = None,
    block: int | None = None,
    end_token: str | None = None,
    size: int | tuple[int, int] | None = None,
    collate: str | None = None,
    allow_random: bool = False,
    on_progress: OnProgress | None = None,
    overwrite: bool = False,
) -> Frozen:
    """Write the records of `source` into `directory`, and return the frozen data set.

    `source` is a mapping of columns (N, ...), an object with a length and items (a torch Dataset, a
    list), an iterable (IterableDataset), a torch DataLoader (its data set is taken), a Hugging Face
    `datasets.Dataset`, or a path or list of Paths: Parquet, .safetensors and .npz files of
    columns, tar shards, text (with `block` tokens a record and a `tokenizer` JSON file), a folder
    of images (with a `size`). `kind` names the kind of files where their names do not.

    `fields` chooses fields, or names the values of items that are tuples (a pair is x and y).
    `dtype` is "f32" for every floating field, or a dtype for each field by name: float64 is never
    narrowed unasked. `pad` has a rule for each ragged field. With `hold_out` that share of the
    records, spread evenly, goes to `directory`/validation. `collate="each"` applies a DataLoader's
    collate_fn to each record alone. `on_progress` is called after each block.

    A frozen set that is there already is refused, or with `overwrite` replaced when the new one is
    whole: both need room on the disk until then.

    A source is read once; twice if a rule pads to the longest record. The memory is that of a few
    blocks of 8 MiB, or of a few records where those are larger. What a killed freeze left is
    removed, and the freeze begins anew.

    Raises UsageError for data that has no place in a record (with the field and the record),
    for a random data set, and where `directory` has a frozen set already; StorageError where the
    disk is full or too small; CorruptFileError for a damaged source; CannotCheckError where a
    package of the extra [data] is missing.
    """
    directory = Path(directory)
    if not overwrite:
        refuse_taken(directory, FROZEN_DIRECTORY)
    options = PickOptions(
        None if fields is None else tuple(fields),
        kind,
        None if tokenizer is None else Path(tokenizer),
        block,
        end_token,
        size,
        collate,
        allow_random,
    )
    share = _share(hold_out)
    found, notes = pick(source, options)
    rules = FieldRules(None, dtype, dict(pad or {}))
    say = on_progress or (lambda _: None)
    with written_anew(directory, FROZEN_DIRECTORY, overwrite) as place:
        # A freeze removes its lock at its end: with one, what lies there is of one that was cut.
        cut = present(place / LOCK)
        if not cut:
            refuse_taken(place / VALIDATION, FROZEN_DIRECTORY)
        make_directory(place)
        with locked(place / LOCK, "freeze"):
            for part in (place, place / VALIDATION) if cut else ():
                _clear(part)
            try:
                if rules.needs_longest:
                    rules = _measured(found, rules, say)
                with _Writing(place, found, rules, share, notes) as writing:
                    writing.all(say)
            finally:
                remove(place / LOCK)
    return load_frozen(directory)


def _share(hold_out: float | Fraction) -> Fraction:
    share = hold_out if isinstance(hold_out, Fraction) else Fraction(str(hold_out))
    if not 0 <= share < 1 or share.denominator > _MOST_PARTS:
        raise UsageError(
            f"hold_out={hold_out} is not a share of the records.",
            "Give a number from 0 to below 1.",
        )
    return share


def _clear(directory: Path) -> None:
    """Drop what a freeze left that did not end."""
    for name in names(directory):
        if is_left_over(name, RECORDS) or name in (RECORDS, MANIFEST):
            remove_file(directory / name)


def _measured(source: DataSource, rules: FieldRules, say: OnProgress) -> FieldRules:
    if not source.again:
        raise UsageError(
            'Pad(to="max") reads the source twice, and an iterator gives its records once.',
            "Give the length as a number.",
        )
    wanted = [name for name, pad in rules.pad.items() if pad.to == "max"]
    found: dict[str, int] = {}
    done = 0
    for block in source.blocks():
        longest(rules.chosen(block), wanted, found)
        done += len(next(iter(block.values())))
        say(Progress("measuring", done, source.count, 0))
    return rules.with_lengths(found)


class _Writing:
    """The two files of a freeze, open."""

    def __init__(
        self,
        directory: Path,
        source: DataSource,
        rules: FieldRules,
        share: Fraction,
        notes: Mapping[str, str],
    ) -> None:
        self._directory, self._source, self._share = directory, source, share
        self._columns = Columns(rules)
        self._notes = notes
        self._sets: list[_Set] = []
        self._done = 0

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for each in self._sets:
            each.writer.discard()
            if kind is not None and each.named:  # the held-out records, whose set was not ended
                _clear(each.directory)

    def all(self, say: OnProgress) -> None:
        """Read, hash and write every record, and then the manifests."""
        size = 0
        for block in self._source.blocks():
            columns = self._columns.take(block)
            rows = len(next(iter(columns.values())))
            if not self._sets:
                self._open()
            self._sort(columns, rows)
            self._done += rows
            if self._done > LIMITS.records:
                raise UsageError(f"There are more than {LIMITS.records} records.", "Split them.")
            size += sum(column.nbytes for column in columns.values())
            say(Progress("freezing", self._done, self._source.count, size))
        if not self._sets:
            raise UsageError("The source has no records.", "Give at least one.")
        for each in self._sets:
            if not each.writer.written:
                raise UsageError(
                    f"{self._done} records are too few to hold out a share of {self._share}.",
                    "Give more records, or another share.",
                )
        for each in reversed(self._sets):  # the held-out ones first: the set's manifest is the last
            each.finish(self._source.words(), self._rules())

    def _open(self) -> None:
        schema, count = self._columns.schema, self._source.count
        assert schema is not None
        held = None if count is None else count * self._share.numerator // self._share.denominator
        types = {f.name: (f.dtype, f.shape) for f in schema.fields}
        kept = None if count is None or held is None else count - held
        if count is not None and kept is not None:
            need = file_bytes(types, kept) + file_bytes(types, count - kept)
            free = free_bytes(self._directory)
            if need > free:
                raise StorageError(
                    f"The records need {need:,} bytes; {self._directory} has {free:,} free.",
                    "Free some space, or choose a directory on another disk.",
                )
        places = [(self._directory, kept)]
        if self._share:
            make_directory(self._directory / VALIDATION)
            places.append((self._directory / VALIDATION, held))
        for place, rows in places:
            self._sets.append(_Set(place, schema, ColumnWriter(place / RECORDS, types, rows)))

    def _sort(self, columns: dict[str, Array], rows: int) -> None:
        """Record i is held out where ⌊(i + 1)·share⌋ > ⌊i·share⌋."""
        if not self._share:
            self._sets[0].add(columns)
            return
        at = np.arange(self._done, self._done + rows + 1, dtype=np.int64)
        # (i·p) div q, without the product, which may not fit: i = k·q + r
        p, q = self._share.numerator, self._share.denominator
        whole = at // q * p + at % q * p // q
        held = np.diff(whole) > 0
        for each, chosen in zip(self._sets, (~held, held), strict=True):
            if chosen.any():
                each.add({name: column[chosen] for name, column in columns.items()})

    def _rules(self) -> dict[str, JsonValue]:
        rules: dict[str, JsonValue] = dict(self._notes)
        if self._columns.rules.pad:
            rules["pad"] = {name: pad.words() for name, pad in self._columns.rules.pad.items()}
        if self._columns.notes:
            rules["dtype"] = dict(self._columns.notes)
        if self._share:
            rules["hold_out"] = str(self._share)
        return rules


@dataclass
class _Set:
    """One frozen set that is being written."""

    directory: Path
    schema: DataSchema
    writer: ColumnWriter

    def __post_init__(self) -> None:
        self._stream = RecordStream(self.schema)
        self._ranges: dict[str, tuple[int, int]] = {}
        self.named = False

    def add(self, columns: dict[str, Array]) -> None:
        self.writer.add(columns)
        self._stream.add(columns)
        for field in self.schema.fields:
            if field.dtype in ("i64", "i32") and columns[field.name].size:
                column = columns[field.name]
                low, high = int(column.min()), int(column.max())
                before = self._ranges.get(field.name, (low, high))
                self._ranges[field.name] = min(low, before[0]), max(high, before[1])

    def finish(self, source: dict[str, JsonValue], rules: dict[str, JsonValue]) -> None:
        """Make the records durable and read-only; then write the manifest."""
        self.named = True
        self.writer.finish()
        with os_errors(self.directory / RECORDS):
            os.chmod(self.directory / RECORDS, 0o444)
        made = Frozen(
            self.directory,
            self.schema,
            self._stream.count,
            self._stream.root(),
            source,
            rules,
            self._ranges,
        )
        write_file(self.directory / MANIFEST, [manifest_bytes(made.manifest())])
        sync_path(self.directory)
