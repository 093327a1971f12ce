"""Records read back from their file in blocks, to be hashed: a data set larger than the memory.

The bytes are read and not mapped. A map's pages would count as the process's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tallystick.commit.data import DataSchema
from tallystick.commit.streamed import RecordStream
from tallystick.commit.tensor import Array
from tallystick.data.sources.base import rows_per_block
from tallystick.disk.tensorfile import Check, TensorFile, open_tensors


def stream_file(
    path: Path, schema: DataSchema, count: int, check: Check, inside: Path, keep: bool = False
) -> RecordStream:
    """All `count` records of the file at `path`, hashed. `check` must refuse any file that does
    not have exactly the schema's columns of `count` rows. With `keep`, `tree` may follow.

    Raises StorageError, CorruptFileError.
    """
    stream = RecordStream(schema, keep)
    with open_tensors(path, "data file", check=check, inside=inside) as file:
        for block in _blocks(file, schema, count):
            stream.add(block)
    return stream


def _blocks(file: TensorFile, schema: DataSchema, count: int) -> Iterator[dict[str, Array]]:
    """The records, read one block ahead. A block is good until the next is asked for."""
    rows = min(count, rows_per_block(schema.record_size))
    buffers = [
        {f.name: np.empty(rows * f.header.nbytes, np.uint8) for f in schema.fields}
        for _ in range(2)
    ]

    def read(number: int) -> dict[str, Array]:
        start = number * rows
        stop = min(count, start + rows)
        own = buffers[number % 2]
        return {name: file.read_rows(name, start, stop, out) for name, out in own.items()}

    with ThreadPoolExecutor(1, "tallystick-reading") as thread:
        total = -(-count // rows)
        ahead = thread.submit(read, 0)
        for number in range(total):
            block = ahead.result()
            if number + 1 < total:
                ahead = thread.submit(read, number + 1)
            yield block
