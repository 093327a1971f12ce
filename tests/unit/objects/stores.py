"""Stores in memory for the tests: filled from a directory, with faults on demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallystick.disk.objects.address import Address
from tallystick.disk.objects.store import Found, Objects

ADDRESS = Address("s3", "bucket", "run")


def memory() -> Any:
    from obstore.store import MemoryStore

    return MemoryStore()


def filled(directory: Path) -> Objects:
    """A store in memory with the files of `directory`."""
    objects = Objects(ADDRESS, memory())
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            objects.put(path.relative_to(directory).as_posix(), path.read_bytes())
    objects.counts.requests.clear()
    return objects


def names(objects: Objects) -> set[str]:
    return set(objects.listing())


class Lying(Objects):
    """Its listing goes through `lie` first."""

    def __init__(self, other: Objects, lie: Callable[[dict[str, Found]], None]) -> None:
        super().__init__(other.address, other._store)
        self._lie = lie

    def listing(self) -> dict[str, Found]:
        found = super().listing()
        self._lie(found)
        return found
