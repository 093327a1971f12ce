"""The journal of a run that a trainer is writing, followed record by record."""

from __future__ import annotations

from pathlib import Path

from tallystick.disk.regular import open_file, os_errors, present
from tallystick.run.store.journal import (
    _LARGEST_RECORD,
    MAGIC,
    JournalContent,
    _Chain,
    _take,
)


class JournalTail:
    """What a journal holds so far; `advance` reads what was appended since.

    `length` is the bytes up to the last checkpoint, pause or end, whose logs are all written
    before it; `steps` and `logs` are the numbers of losses and of log digests there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._chain: _Chain | None = None
        self._content = JournalContent(b"")
        self.length = self.steps = self.logs = 0
        self.roots: dict[int, bytes] = {}
        self.finished = False

    def advance(self) -> None:
        """Read the whole records that were appended. Raises StorageError, CorruptFileError."""
        if not present(self._path):
            return
        file, size = open_file(self._path, "journal", self._path.parent)
        with os_errors(self._path), file:
            if self._chain is None:
                start = file.read(len(MAGIC) + 32)
                if len(start) < len(MAGIC) + 32:
                    return
                self._content = JournalContent(start[len(MAGIC) :])
                self._chain, self._at = _Chain(self._content.job_digest), len(start)
            file.seek(self._at)
            content = self._content
            marks = len(content.checkpoints), len(content.pauses), content.finished
            while self._at < size:
                before = self._chain.value
                room = min(size - self._at, _LARGEST_RECORD)
                why, count = _take(file, room, self._chain, content)
                if why:  # being written: the next call reads it whole
                    self._chain.value = before
                    break
                self._at += count
                now = len(content.checkpoints), len(content.pauses), content.finished
                if now != marks:
                    marks = now
                    self.length, self.steps = self._at, len(content.losses)
                    self.logs, self.finished = len(content.logs), content.finished
        self.roots = {s: r for s, r in content.roots.items() if s <= self.steps}
