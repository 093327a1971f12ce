"""Make the n-th call that reaches the operating system fail, or end the process there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallystick.disk import files


class KilledError(BaseException):
    """Stands for kill -9: no handler in the package catches it, nothing is cleaned up."""


class Faults(files.OsCalls):  # type: ignore[misc]
    """Counts calls; at call number `at`, does half of a write and then what `kind` says."""

    def __init__(self, at: int, kind: str) -> None:
        self.at = at
        self.kind = kind
        self.calls = 0
        self.tripped = False

    def _fault(self) -> bool:
        self.calls += 1
        # A full disk stays full, a killed process stays dead.
        self.tripped = self.tripped or self.calls == self.at
        return self.tripped

    def _raise(self) -> None:
        if self.kind == "kill":
            raise KilledError
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, descriptor: int, data: memoryview) -> int:  # type: ignore[override]
        if self._fault():
            if len(data) > 1:
                os.write(descriptor, data[: len(data) // 2])
            self._raise()
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:  # type: ignore[override]
        if self._fault():
            self._raise()
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:  # type: ignore[override]
        if self._fault():
            self._raise()
        os.replace(source, target)


@contextmanager
def faults(at: int, kind: str) -> Iterator[Faults]:
    """Install faults in every module that holds the door's name."""
    from tallystick.run.store import journal

    installed = Faults(at, kind)
    before = files.OS
    files.OS = journal.OS = installed  # type: ignore[assignment,misc]
    try:
        yield installed
    finally:
        files.OS = journal.OS = before  # type: ignore[misc]
