"""What every source of records has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import Array
from tallystick.data.rules import Block
from tallystick.data.values import as_array
from tallystick.errors import CannotCheckError, UsageError

# Bytes of records that are made, hashed and written together.
BLOCK_BYTES = 16 << 20
_BLOCK_RECORDS = 1 << 16


class DataSource(Protocol):
    """Records in a fixed order."""

    def words(self) -> dict[str, JsonValue]:
        """What the manifest says about the source: its kind, its rules, no path."""

    @property
    def count(self) -> int | None:
        """The number of records, if it is known before they are read."""

    @property
    def again(self) -> bool:
        """True if the records can be read a second time."""

    def blocks(self) -> Iterator[Block]:
        """The records, in blocks of about BLOCK_BYTES. Raises UsageError, StorageError."""


def rows_per_block(record_bytes: int) -> int:
    """Records of `record_bytes` bytes in a block."""
    return max(1, min(_BLOCK_RECORDS, BLOCK_BYTES // max(1, record_bytes)))


def record_of(item: Any, fields: tuple[str, ...] | None) -> dict[str, Array]:
    """The fields of one item of a data set: a mapping, a tuple, or a single value.

    `fields` chooses from a mapping, and names the places of a tuple. Without it a pair is x and y,
    and a single value is x. Raises UsageError.
    """
    if isinstance(item, Mapping):
        names = fields if fields is not None else tuple(map(str, item))
        for name in names:
            if name not in item:
                raise UsageError(
                    f"An item has no field {name!r}.", f"It has {', '.join(map(str, item))}."
                )
        return {name: as_array(item[name], name) for name in names}
    if isinstance(item, tuple) or (isinstance(item, list) and not _is_numbers(item)):
        pair = ("x", "y") if len(item) == 2 else ()
        names = fields or getattr(item, "_fields", None) or pair
        if len(names) != len(item):
            raise UsageError(
                f"An item is a tuple of {len(item)} values without names.",
                f"Name all {len(item)}: fields=[...].",
            )
        pairs = zip(names, item, strict=True)
        return {name: as_array(value, name) for name, value in pairs}
    if fields is not None and len(fields) != 1:
        raise UsageError(
            f"An item is one value of type {type(item).__name__}, and {len(fields)} fields are "
            "asked for.",
            "Name one field, or give items that are mappings or tuples.",
        )
    name = fields[0] if fields else "x"
    return {name: as_array(item, name)}


def _is_numbers(item: list[Any]) -> bool:
    """True for a list of numbers (or of such lists), which is one value and no tuple of fields."""
    first = item[0] if item else 0
    return _is_numbers(first) if isinstance(first, list) else isinstance(first, (int, float, bool))


def collected(items: Iterable[Any], fields: tuple[str, ...] | None) -> Iterator[Block]:
    """Blocks of the items' records."""
    block: dict[str, list[Array]] = {}
    size = rows = 0
    for number, item in enumerate(items):
        record = record_of(item, fields)
        if rows and set(record) != set(block):
            raise UsageError(
                f"Item {number} has the fields {sorted(record)}, an earlier one {sorted(block)}.",
                "Give items of one form.",
            )
        for name, value in record.items():
            block.setdefault(name, []).append(value)
        rows += 1
        size += sum(value.nbytes for value in record.values())
        if size >= BLOCK_BYTES or rows >= _BLOCK_RECORDS:
            yield block
            block, size, rows = {}, 0, 0
    if rows:
        yield block


def missing(package: str, what: str) -> CannotCheckError:
    """The error for a package of the extra [data] that is not installed."""
    return CannotCheckError(f"{what} needs {package}.", "pip install 'tallystick[data]'.")
