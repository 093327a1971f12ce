"""The file of a stored state, written while the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from tallystick.disk.files import Replacement, sync_path
from tallystick.disk.snapshot import Snapshot
from tallystick.disk.tensorfile import tensor_chunks

STATE_FORMAT = "tallystick-state/1"


class StateFile:
    """state[`step`] at `path`: `write`, and once its root is in the journal, `finish`.

    Until then it has a temporary name, and is no stored state. One thread calls all methods. They
    raise StorageError; then no file is left.
    """

    def __init__(self, path: Path, step: int) -> None:
        self._path, self._step = path, step
        self._file: Replacement | None = None

    def write(self, snapshot: Snapshot, dropped: Callable[[], bool]) -> None:
        """Write the state's bytes, and flush them. Once `dropped()`, stop: the file is not to be
        finished."""
        self._file = Replacement(self._path)
        chunks = tensor_chunks(snapshot, state_metadata(self._step))
        self._file.write_chunks(takewhile(lambda _: not dropped(), chunks))
        snapshot.forget()
        if not dropped():
            self._file.sync()

    def finish(self) -> None:
        """Give the file its name."""
        assert self._file is not None
        self._file.finish(durable=False)
        sync_path(self._path.parent)

    def discard(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            self._file.discard()


def state_metadata(step: int) -> dict[str, str]:
    """The metadata of the file of state[`step`]."""
    return {"format": STATE_FORMAT, "step": str(step)}
