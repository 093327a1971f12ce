"""Standard output and error that may be closed, full, or without a reader.

A command's exit code is its verdict, and a verdict does not depend on who reads the text. So after
the first failed write a stream takes what is written and drops it: no exception reaches a command,
click, rich, or the interpreter's own flush at its end, whose code for a failure (1, 120) would mean
something else here. `fault` says what was lost.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import TextIO


class _Outlet(io.FileIO):
    """The raw end of a stream. `fault` is the error of the first write that failed."""

    def __init__(self, descriptor: int, fault: OSError | None) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.fault = fault

    def write(self, data: object) -> int:
        """Write all of `data`, or drop the rest of it; its length."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        done = 0
        while self.fault is None and done < view.nbytes:
            try:
                count: int | None = super().write(view[done:])
                if count is None:  # another process has made the pipe non-blocking
                    select.select([], [self], [])
                done += count or 0
            except OSError as error:
                self.fault = error
        return view.nbytes


def guard() -> None:
    """Make standard output and error streams that never fail. Descriptors 0 to 2 that are closed
    become the null device, so that no file of a run gets such a number and what libraries write."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = _guarded(sys.stdout, 1)
    sys.stderr = _guarded(sys.stderr, 2)


def _guarded(stream: TextIO | None, descriptor: int) -> TextIO:
    outlet = _Outlet(descriptor, OSError(errno.EBADF, "it is closed") if stream is None else None)
    direct = isinstance(stream, io.TextIOWrapper) and stream.write_through
    return io.TextIOWrapper(
        outlet if direct else io.BufferedWriter(outlet),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace" if stream is None else stream.errors,
        line_buffering=descriptor == 2 or (stream is not None and stream.isatty()),
        write_through=direct,
    )


def fault(stream: TextIO) -> OSError | None:
    """Why something that was written to a guarded stream is lost; None where nothing is."""
    stream.flush()
    buffer = getattr(stream, "buffer", None)
    outlet = getattr(buffer, "raw", buffer)
    return outlet.fault if isinstance(outlet, _Outlet) else None


def is_unread(error: OSError) -> bool:
    """True if whoever started the command wants no more of the stream: no need to tell."""
    return error.errno in (errno.EPIPE, errno.EBADF)
