"""Large files past the page cache, where the system allows that.

The trainer does not read a stored state again while the run goes on. A copy through the page cache
cost 3.5 processor seconds for 1.5 GB and stalled the trainer behind the disk. A direct write costs
one copy into an aligned buffer (benchmarks/NOTES.md, Step).
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterable
from typing import Any

# A multiple of every disk's block, large enough that one request keeps the disk busy.
BLOCK = 8 << 20
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)


def _set_direct(descriptor: int, on: bool) -> bool:
    """Switch direct writing; False where nothing changes or the system has no direct writing."""
    if not _O_DIRECT:
        return False
    import fcntl

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    wanted = flags | _O_DIRECT if on else flags & ~_O_DIRECT
    if wanted == flags:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, wanted)
    except OSError:
        return False
    return True


def write_chunks(
    descriptor: int,
    chunks: Iterable[Any],
    write: Callable[[int, memoryview], int],
) -> None:
    """Write `chunks`, bytes or C-contiguous arrays, in blocks of `BLOCK`, the last one shorter.

    `write` is the system's write. Whole blocks go to the disk directly. Where the system refuses
    that, the rest goes through the page cache. Raises OSError.
    """
    # Here: the command line loads this module before numpy may be loaded (cli/main.py).
    import numpy as np

    # Not closed by hand: an exception still holds parts of it.
    block = memoryview(mmap.mmap(-1, BLOCK))
    place = np.frombuffer(block, np.uint8)
    filled = 0
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        while view.nbytes:
            part = view[: BLOCK - filled]
            # numpy copies without holding the interpreter: another thread may execute a step.
            place[filled : filled + part.nbytes] = np.frombuffer(part, np.uint8)
            filled += part.nbytes
            view = view[part.nbytes :]
            if filled == BLOCK:
                _set_direct(descriptor, True)
                _write_block(descriptor, block, write)
                filled = 0
    _set_direct(descriptor, False)
    _write_block(descriptor, block[:filled], write)


def _write_block(
    descriptor: int, block: memoryview, write: Callable[[int, memoryview], int]
) -> None:
    while block.nbytes:
        try:
            written = write(descriptor, block)
        except OSError as error:
            # After a short write the rest need not be aligned any more.
            if error.errno != errno.EINVAL or not _set_direct(descriptor, False):
                raise
            continue
        block = block[written:]
