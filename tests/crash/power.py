"""A loss of power between two calls: the directories that a disk may show afterwards.

The model. A file's bytes are safe once the file was flushed, a directory's names once the directory
was. Of what was not flushed since, a disk may have kept any part: of a file, its first bytes; of a
directory, its names as they were at the last flush or as they are. A file that was renamed has one
of its names at least, which is what a file system that renames atomically promises.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallystick.disk import files

Names = dict[str, int]  # name: inode
World = "dict[str, bytes | None]"  # path: bytes of a file, None for a directory


class Disk(files.OsCalls):  # type: ignore[misc]
    """Passes every call on, and calls `crash` before and after each with the worlds there are."""

    def __init__(self, root: Path, crash: Callable[[Disk], None]) -> None:
        self.root, self.crash = root, crash
        self.calls = 0
        self.flushed: dict[int, bytes] = {}  # bytes of files at their last flush
        self.listed: dict[int, Names] = {}  # names of directories at their last flush

    def _around(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        self.crash(self)
        result = call()
        self.crash(self)
        return result

    def write(self, descriptor: int, data: memoryview) -> int:  # type: ignore[override]
        return int(self._around(lambda: os.write(descriptor, data)))

    def fsync(self, descriptor: int) -> None:  # type: ignore[override]
        def flush() -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            inode = os.fstat(descriptor).st_ino
            if path.is_dir():
                self.listed[inode] = _names(path)
            else:
                self.flushed[inode] = path.read_bytes()

        self._around(flush)

    def replace(self, source: Path, target: Path) -> None:  # type: ignore[override]
        self._around(lambda: os.replace(source, target))

    def worlds(self) -> Iterator[World]:
        """What may be below `root` after the loss."""
        now, inodes, bytes_now = self._now()
        directories = [inode for inode in now if now[inode] != self.listed.get(inode, {})]
        unsafe = [i for i in bytes_now if self.flushed.get(i) != bytes_now[i]]
        kept = {self._root} | {i for names in self.listed.values() for i in names.values()}
        for chosen in itertools.product((True, False), repeat=len(directories)):
            stale = {d for d, old in zip(directories, chosen, strict=True) if old}
            names = {d: self.listed.get(d, {}) if d in stale else now[d] for d in now}
            shown = {i for listed in names.values() for i in listed.values()}
            if (kept & inodes) - shown - {self._root}:
                continue  # neither name of a renamed file
            for sizes in itertools.product((0, 1, 2), repeat=len(unsafe)):
                content = {**bytes_now}
                for inode, parts in zip(unsafe, sizes, strict=True):
                    whole = bytes_now[inode]
                    safe = len(self.flushed.get(inode, b""))
                    content[inode] = whole[: max(safe, len(whole) * parts // 2)]
                yield dict(_tree(names, content, self._root, ""))

    @property
    def _root(self) -> int:
        return self.root.stat().st_ino

    def _now(self) -> tuple[dict[int, Names], set[int], dict[int, bytes]]:
        now, inodes, content = {self._root: _names(self.root)}, set(), {}
        for path in self.root.rglob("*"):
            inode = path.stat().st_ino
            inodes.add(inode)
            if path.is_dir():
                now[inode] = _names(path)
            else:
                content[inode] = path.read_bytes()
        return now, inodes, content


def _names(directory: Path) -> Names:
    return {entry.name: entry.stat().st_ino for entry in os.scandir(directory)}


def _tree(
    names: dict[int, Names], content: dict[int, bytes], at: int, path: str
) -> Iterator[tuple[str, bytes | None]]:
    for name, inode in names[at].items():
        if inode in content:
            yield path + name, content[inode]
        elif inode in names:
            yield path + name, None
            yield from _tree(names, content, inode, path + name + "/")


def build(world: World, directory: Path) -> None:
    """Make the files of a world."""
    directory.mkdir()
    for name, data in world.items():
        if data is None:
            (directory / name).mkdir()
        else:
            (directory / name).write_bytes(data)


@contextmanager
def on_disk(root: Path, crash: Callable[[Disk], None]) -> Iterator[Disk]:
    """Every call of the door goes to such a disk."""
    disk, before = Disk(root, crash), files.OS
    files.OS = disk  # type: ignore[misc]
    try:
        yield disk
    finally:
        files.OS = before  # type: ignore[misc]
