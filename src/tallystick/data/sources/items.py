"""Sources in memory: columns, objects with a length and items (a torch Dataset, a list), iterables.

torch is never imported here: its classes are known by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import Array
from tallystick.data.rules import Block
from tallystick.data.sources.base import DataSource, collected, record_of, rows_per_block
from tallystick.data.values import as_array
from tallystick.errors import UsageError

# Items that are read twice before anything is written.
_LOOKED_TWICE = 8


class ColumnsSource:
    """A mapping from names to arrays (N, ...), memory-mapped or not."""

    again = True

    def __init__(self, columns: Mapping[str, Any], fields: tuple[str, ...] | None) -> None:
        names = fields if fields is not None else tuple(columns)
        for name in names:
            if name not in columns:
                raise UsageError(f"There is no column {name!r}.", f"There are {sorted(columns)}.")
        self._columns = {name: as_array(columns[name], name) for name in names}
        lengths = {len(c) if c.ndim else -1 for c in self._columns.values()}
        if len(lengths) != 1 or lengths & {-1, 0}:
            raise UsageError(
                f"The columns have {sorted(lengths)} records.",
                "Every field needs the same number of records, at least one.",
            )
        self.count: int = lengths.pop()

    def words(self) -> dict[str, JsonValue]:
        return {"kind": "columns"}

    def blocks(self) -> Iterator[Block]:
        size = sum(c.nbytes // self.count for c in self._columns.values())
        rows = rows_per_block(size)
        for start in range(0, self.count, rows):
            yield {name: np.array(c[start : start + rows]) for name, c in self._columns.items()}


class ItemsSource:
    """An object with `__len__` and `__getitem__`: a list, a torch Dataset.

    Some items are read twice first. If they differ, the object draws random numbers, and a frozen
    set would hold one draw for ever: refused unless `allow_random`.
    """

    again = True

    def __init__(
        self,
        items: Any,
        fields: tuple[str, ...] | None,
        allow_random: bool = False,
        kind: str = "items",
        each: Any = None,
    ) -> None:
        self._items, self._fields, self._kind, self._each = items, fields, kind, each
        self.count: int = len(items)
        if not allow_random:
            self._look_twice()

    def words(self) -> dict[str, JsonValue]:
        return {"kind": self._kind, "class": type(self._items).__name__}

    def _item(self, index: int) -> Any:
        item = self._items[index]
        return item if self._each is None else self._each(item)

    def _look_twice(self) -> None:
        step = max(1, self.count // _LOOKED_TWICE)
        for index in range(0, self.count, step):
            once, twice = (_bits(record_of(self._item(index), self._fields)) for _ in range(2))
            if once != twice:
                raise UsageError(
                    f"Item {index} of the data set is not the same when it is read again.",
                    "Frozen records hold one draw. Take random transforms out of the data set and "
                    "into the step (tallystick.augment), or pass allow_random=True.",
                )

    def blocks(self) -> Iterator[Block]:
        return collected((self._item(index) for index in range(self.count)), self._fields)


def _bits(record: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in record.items()}


class IterableSource:
    """An iterable of items. It is read once, or again if it gives a new iterator."""

    count = None

    def __init__(self, items: Iterable[Any], fields: tuple[str, ...] | None) -> None:
        self._items, self._fields = items, fields
        self.again = not hasattr(items, "__next__")

    def words(self) -> dict[str, JsonValue]:
        return {"kind": "iterable", "class": type(self._items).__name__}

    def blocks(self) -> Iterator[Block]:
        return collected(iter(self._items), self._fields)


def is_loader(source: Any) -> bool:
    """True for a torch DataLoader."""
    return _is_a(source, "torch.utils.data.dataloader", "DataLoader")


def _is_a(value: Any, module: str, name: str) -> bool:
    return any(c.__module__ == module and c.__name__ == name for c in type(value).__mro__)


def from_loader(
    loader: Any, fields: tuple[str, ...] | None, collate: str | None, allow_random: bool
) -> tuple[DataSource, dict[str, str]]:
    """The data set of a torch DataLoader, and what becomes of the loader's own settings.

    Order and batches are the job's, so `shuffle`, `batch_size`, `drop_last` and the workers change
    no record; that is noted. A sampler of another kind, a `worker_init_fn` and a collate function
    are refused by name. With collate="each" the function collates each record alone, and the batch
    of one is taken apart again.
    """
    sampler = type(loader.sampler).__name__ if loader.sampler is not None else "none"
    if not _is_iterable(loader.dataset) and (
        sampler not in ("SequentialSampler", "RandomSampler")
        or getattr(loader.sampler, "replacement", False)
        or len(loader.sampler) != len(loader.dataset)
    ):
        raise UsageError(
            f"The DataLoader draws with its own sampler ({sampler}).",
            "The job has its own order, in which each epoch takes every record once. Freeze the "
            "data set that you want to be seen: repeat or leave out records in it.",
        )
    if loader.batch_sampler is not None and type(loader.batch_sampler).__name__ != "BatchSampler":
        raise UsageError(
            f"The DataLoader has its own batch sampler ({type(loader.batch_sampler).__name__}).",
            "The job makes the batches: give the data set itself.",
        )
    if loader.worker_init_fn is not None:
        raise UsageError(
            "The DataLoader has a worker_init_fn, which can change the data set in its workers.",
            "Freeze the data set itself, after what that function does.",
        )
    own = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
    default = own in ("default_collate", "default_convert")
    if not default and collate != "each":
        raise UsageError(
            f"The DataLoader has its own collate_fn ({own}).",
            'It makes batches, and a frozen set has records. Pass collate="each" to apply it to '
            "each record alone, or give the data set itself.",
        )
    notes = {
        "loader": f"batch_size {loader.batch_size}, {sampler} and drop_last {loader.drop_last} "
        "are not used: order and batches are the job's"
    }
    each = None
    if not default:
        notes["collate_fn"] = f"{own}, on each record alone"

        def each(item: Any) -> Any:
            return _apart(loader.collate_fn([item]))

    if _is_iterable(loader.dataset):
        items = loader.dataset if each is None else _Mapped(loader.dataset, each)
        return IterableSource(items, fields), notes
    return ItemsSource(loader.dataset, fields, allow_random, "DataLoader", each), notes


def _is_iterable(dataset: Any) -> bool:
    return not hasattr(dataset, "__len__") or _is_a(
        dataset, "torch.utils.data.dataset", "IterableDataset"
    )


class _Mapped:
    """An iterable with a function on each item."""

    def __init__(self, items: Iterable[Any], function: Any) -> None:
        self._items, self._function = items, function

    def __iter__(self) -> Iterator[Any]:
        return map(self._function, self._items)


def _apart(batch: Any) -> Any:
    """The record of a batch of one."""
    if isinstance(batch, Mapping):
        return {name: _only(value, str(name)) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_only(value, f"value {at}") for at, value in enumerate(batch))
    return _only(batch, "batch")


def _only(value: Any, name: str) -> Any:
    if not hasattr(value, "__len__") or len(value) != 1:
        raise UsageError(
            f"The collate_fn made no batch of one record: {name} has another first axis.",
            "Freeze the data set itself.",
        )
    return value[0]
