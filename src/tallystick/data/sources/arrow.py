"""Arrow columns: Parquet files and Hugging Face's `datasets.Dataset`, in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import Array
from tallystick.data.rules import Block
from tallystick.data.sources.base import missing, rows_per_block
from tallystick.disk.regular import open_file
from tallystick.errors import CorruptFileError, UsageError

_FIRST_ROWS = 256


def values(name: str, column: Any) -> Array | list[Array]:
    """A column as an array (n, ...), or a list of arrays where its lists have several lengths.

    Raises UsageError for missing values, text, and types that are no numbers or lists of them.
    """
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of none
        array = pa.concat_arrays(array.chunks)
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    type_ = array.type
    if array.null_count:
        raise UsageError(
            f"Column {name!r} has missing values.", "Fill them, or drop their records, first."
        )
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if pa.types.is_fixed_size_list(type_):
        inner = _inner(name, array)
        return inner.reshape(len(array), type_.list_size, *inner.shape[1:])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        inner = _inner(name, array)
        offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
        lengths = np.diff(offsets)
        if (lengths == lengths[:1]).all() and len(lengths):
            return inner.reshape(len(array), int(lengths[0]), *inner.shape[1:])
        offsets = offsets - offsets[0]
        return [inner[a:b] for a, b in itertools.pairwise(offsets)]
    raise UsageError(
        f"Column {name!r} is {type_}; a record holds numbers.",
        "Turn it into numbers first (a text with a tokenizers file), or leave the column out: "
        "fields=[...].",
    )


def _inner(name: str, array: Any) -> Array:
    found = values(name, array.flatten())
    if isinstance(found, list):
        raise UsageError(
            f"Column {name!r} has lists of lists of different lengths.",
            "Pad its inner lists, and leave one ragged axis.",
        )
    return found


def _block(batch: Any, names: Sequence[str]) -> Block:
    return {name: values(name, batch.column(name)) for name in names}


class ParquetSource:
    """Parquet files, read in the order given, row group by row group."""

    again = True

    def __init__(self, files: Sequence[Path], fields: tuple[str, ...] | None) -> None:
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise missing("pyarrow", "Reading Parquet files") from None
        self._files, self._fields = list(files), fields
        self.count, self._record_bytes = 0, 1
        for path in self._files:
            with self._open(path) as found:
                meta = found.metadata
                self.count += meta.num_rows
                size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
                self._record_bytes = max(self._record_bytes, size // max(1, meta.num_rows))
                names = tuple(found.schema_arrow.names)
            if self._fields is None:
                self._fields = names
            absent = [name for name in self._fields if name not in names]
            if absent:
                raise UsageError(
                    f"{path.name} has no column {absent[0]!r}.", f"It has {', '.join(names)}."
                )

    def words(self) -> dict[str, JsonValue]:
        return {"kind": "parquet", "files": len(self._files)}

    def _open(self, path: Path) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file, _ = open_file(path, "Parquet file")
        try:
            return pq.ParquetFile(file, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            file.close()
            raise _unreadable(path, error) from None

    def blocks(self) -> Iterator[Block]:
        import pyarrow as pa

        names = list(self._fields or ())
        rows = rows_per_block(self._record_bytes)
        for path in self._files:
            with self._open(path) as found:
                batches = found.iter_batches(batch_size=rows, columns=names, use_threads=False)
                while True:
                    try:
                        batch = next(batches, None)
                    except (pa.ArrowException, OSError) as error:
                        raise _unreadable(path, error) from None
                    if batch is None:
                        break
                    if batch.num_rows:
                        yield _block(batch, names)


def _unreadable(path: Path, error: Exception) -> CorruptFileError:
    why = str(error).split("\n")[0][:120].rstrip(".")
    return CorruptFileError(f"{path} cannot be read as Parquet: {why}.", "Make the file again.")


def is_hugging_face(source: Any) -> bool:
    """True for a `datasets.Dataset`, which lies in Arrow tables."""
    return any(
        c.__module__ == "datasets.arrow_dataset" and c.__name__ == "Dataset"
        for c in type(source).__mro__
    )


class HuggingFaceSource:
    """A `datasets.Dataset` of numbers and lists of numbers, in its own order."""

    again = True

    def __init__(self, dataset: Any, fields: tuple[str, ...] | None) -> None:
        self._dataset = dataset.with_format("arrow")
        self._fields = fields if fields is not None else tuple(dataset.column_names)
        absent = [name for name in self._fields if name not in dataset.column_names]
        if absent:
            raise UsageError(
                f"The data set has no column {absent[0]!r}.",
                f"It has {', '.join(dataset.column_names)}.",
            )
        self.count: int = len(dataset)

    def words(self) -> dict[str, JsonValue]:
        return {"kind": "datasets.Dataset"}

    def blocks(self) -> Iterator[Block]:
        table = self._dataset[: min(self.count, _FIRST_ROWS)]
        rows = rows_per_block(table.nbytes // max(1, table.num_rows))
        for start in range(0, self.count, rows):
            yield _block(self._dataset[start : start + rows], self._fields)


def has_plain_columns(dataset: Any, fields: tuple[str, ...] | None) -> bool:
    """True if the Arrow tables hold what an item of the data set shows: no image to be decoded, no
    transform of the user's."""
    if dataset.format["type"] == "custom":
        return False
    names = dataset.column_names if fields is None else fields
    features = [repr(dataset.features[n]) for n in names if n in dataset.features]
    return not any(word in text for text in features for word in ("Image(", "Audio(", "Video("))
