"""Rules from a source's blocks to columns of records: names, dtypes, padding.

A block has, for each field, either an array (n, ...) or a list of n arrays. Lists are stacked where
all have one shape. Where they do not, a `Pad` says what a record holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.tensor import DTYPES, Array
from tallystick.data.values import check_asked, committed_dtype, convert
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

Block = Mapping[str, Array | list[Array]]
MASK, LENGTH = "_mask", "_length"


@dataclass(frozen=True)
class Pad:
    """A ragged field's rule: its first axis gets the length `to`, filled up behind with `value`.

    `to` is a number, or "max": the longest record, which a first pass over the source finds.
    `mask` adds a field NAME_mask, bool[to], True where the source has a value; `length` adds
    NAME_length, i64. A longer record is refused, or cut where `truncate` is set.
    """

    to: int | str
    value: float = 0
    mask: bool = False
    length: bool = False
    truncate: bool = False

    def __post_init__(self) -> None:
        good = self.to == "max" or (isinstance(self.to, int) and 0 < self.to <= LIMITS.tensor_bytes)
        if not good or isinstance(self.to, bool):
            raise UsageError(f"Pad(to={self.to!r}) is not a length.", 'Give a number, or "max".')

    def words(self) -> dict[str, Any]:
        """The rule for a manifest."""
        return {
            "to": self.to,
            "value": str(self.value),
            "mask": self.mask,
            "length": self.length,
            "truncate": self.truncate,
        }


@dataclass(frozen=True)
class FieldRules:
    """What a source's fields become. `dtype` is one name for all floating fields, or one each."""

    fields: tuple[str, ...] | None = None
    dtype: str | Mapping[str, str] | None = None
    pad: Mapping[str, Pad] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {} if self.dtype is None else {"": self.dtype}
        for name, asked in (self.dtype if isinstance(self.dtype, Mapping) else named).items():
            check_asked(name, str(asked))

    def asked(self, name: str, dtype: np.dtype[Any]) -> str | None:
        if isinstance(self.dtype, str):
            return self.dtype if dtype.kind == "f" else None
        return (self.dtype or {}).get(name)

    def with_lengths(self, longest: Mapping[str, int]) -> FieldRules:
        """The rules with each "max" replaced by what was found."""
        pads = {n: replace(p, to=longest.get(n, 0) or 1) if p.to == "max" else p
                for n, p in self.pad.items()}  # fmt: skip
        return replace(self, pad=pads)

    @property
    def needs_longest(self) -> bool:
        """True if a first pass must find the longest record."""
        return any(pad.to == "max" for pad in self.pad.values())

    def chosen(self, block: Block) -> Block:
        """The block's fields that are asked for. Raises UsageError for one that is not there."""
        for name in (*(self.fields or ()), *self.pad, *self._named()):
            if name not in block:
                raise UsageError(
                    f"The source has no field {name!r}.", f"It has {', '.join(sorted(block))}."
                )
        if self.fields is None:
            return block
        return {name: block[name] for name in self.fields}

    def _named(self) -> Sequence[str]:
        return tuple(self.dtype) if isinstance(self.dtype, Mapping) else ()


class Columns:
    """Turns blocks into columns of one schema, which the first block fixes."""

    def __init__(self, rules: FieldRules) -> None:
        self.rules = rules
        self.schema: DataSchema | None = None
        self.notes: dict[str, str] = {}
        self._count = 0

    def take(self, block: Block) -> dict[str, Array]:
        """The columns (n, *field shape) of a block's n records. Raises UsageError, which names the
        field and the record."""
        columns: dict[str, Array] = {}
        for name, values in self.rules.chosen(block).items():
            pad = self.rules.pad.get(name)
            if pad is not None:
                columns |= self._padded(name, values, pad)
            else:
                columns[name] = self._stacked(name, values)
        columns = {name: self._typed(name, array) for name, array in columns.items()}
        if self.schema is None:
            self.schema = _schema(columns)
        self._check(columns)
        self._count += len(next(iter(columns.values())))
        return columns

    def _typed(self, name: str, array: Array) -> Array:
        to = committed_dtype(array.dtype, name, self.rules.asked(name, array.dtype))
        if DTYPES[to] != array.dtype.newbyteorder("<"):
            self.notes[name] = f"{array.dtype} to {to}"
        return convert(array, name, to)

    def _stacked(self, name: str, values: Array | list[Array]) -> Array:
        if isinstance(values, np.ndarray):
            return values
        shapes = [value.shape for value in values]
        for at, shape in enumerate(shapes):
            if shape != shapes[0]:
                self._ragged(name, self._count + at, shape, shapes[0])
        dtypes = {value.dtype for value in values}
        if len(dtypes) > 1:
            raise UsageError(
                f"Field {name!r} is {' and '.join(sorted(map(str, dtypes)))} in one source.",
                f'Pass dtype={{"{name}": ...}}, after making it one.',
            )
        return np.stack(values)

    def _ragged(self, name: str, record: int, found: object, first: object) -> None:
        raise UsageError(
            f"Field {name!r} of record {record} has the shape {found}, an earlier one {first}.",
            f'Pass a rule for it: pad={{"{name}": Pad(to="max", value=0, mask=True)}}.',
        )

    def _padded(self, name: str, values: Array | list[Array], pad: Pad) -> dict[str, Array]:
        assert isinstance(pad.to, int)
        rest = {value.shape[1:] for value in values}
        if any(value.ndim == 0 for value in values) or len(rest) != 1:
            raise UsageError(
                f"Field {name!r} is not ragged along its first axis alone.",
                "Give lists, or arrays that differ in their first axis only.",
            )
        lengths = np.array([len(value) for value in values], dtype=np.int64)
        if not pad.truncate and lengths.max(initial=0) > pad.to:
            at = int(np.argmax(lengths > pad.to))
            raise UsageError(
                f"Field {name!r} of record {self._count + at} has the length {lengths[at]}, "
                f"and the rule pads to {pad.to}.",
                "Pad to a greater length, or set truncate.",
            )
        lengths = np.minimum(lengths, pad.to)
        dtype = np.result_type(*{value.dtype for value in values})
        filler = np.asarray(pad.value)
        fill = filler.astype(dtype)
        if fill != filler and not np.isnan(filler):
            raise UsageError(
                f"Field {name!r} is {dtype}, which has no {pad.value}.", "Pad with another value."
            )
        shape = (len(values), pad.to, *rest.pop())
        out = np.full(shape, fill, dtype=dtype)
        for at, value in enumerate(values):
            out[at, : lengths[at]] = value[: pad.to]
        found: dict[str, Array] = {name: out}
        if pad.mask:
            found[name + MASK] = np.arange(pad.to) < lengths[:, None]
        if pad.length:
            found[name + LENGTH] = lengths
        return found

    def _check(self, columns: Mapping[str, Array]) -> None:
        assert self.schema is not None
        wanted = {f.name: f for f in self.schema.fields}
        if set(columns) != set(wanted):
            raise UsageError(
                f"Record {self._count} has the fields {sorted(columns)}, the first one has "
                f"{sorted(wanted)}.",
                "Give records of one form.",
            )
        for name, array in columns.items():
            if array.shape[1:] != wanted[name].shape:
                self._ragged(name, self._count, array.shape[1:], wanted[name].shape)
            if DTYPES[wanted[name].dtype] != array.dtype.newbyteorder("<"):
                raise UsageError(
                    f"Field {name!r} of record {self._count} is {array.dtype}, of the first one "
                    f"{wanted[name].dtype}.",
                    f'Pass dtype={{"{name}": "{wanted[name].dtype}"}}.',
                )


def _schema(columns: Mapping[str, Array]) -> DataSchema:
    from tallystick.commit.tensor import dtype_name

    fields = tuple(
        Field(name, dtype_name(array.dtype), tuple(map(int, array.shape[1:])))
        for name, array in columns.items()
    )
    return DataSchema(fields, LIMITS.long_record_bytes)


def longest(block: Block, names: Sequence[str], found: dict[str, int]) -> None:
    """Raise the lengths in `found` to those of the block's longest values."""
    for name in names:
        for value in block[name]:
            if np.ndim(value):
                found[name] = max(found.get(name, 0), len(value))
