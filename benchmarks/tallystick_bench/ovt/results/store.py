"""Raw results of `bench ovt` and `bench paper`: one JSON file per part and model, entry by entry.

A long measurement is often cut off. Every entry is on disk, whole, as soon as it is made. The same
command later takes up these entries and measures the rest. Two processes never write one file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.cli.output import plain
from tallystick.disk.files import locked, make_directory, write_file
from tallystick.disk.regular import read_file
from tallystick.errors import StorageError, UsageError

FORMAT = 1
_LIMIT = 64 << 20


@dataclass
class PartFile:
    """The entries of one part of one model.

    `about` holds the settings of the measurement. An entry of other settings is never mixed in.
    """

    path: Path
    part: str
    model: str
    about: dict[str, Any]
    entries: dict[str, Any] = field(default_factory=dict)
    bench: str = "ovt"

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """The entry `key`: as it is on disk, or measured now and written at once."""
        if key not in self.entries:
            self.entries[key] = plain(measure())
            self.write()
        return self.entries[key]

    def write(self) -> None:
        """Replace the file, durably and whole. Raises StorageError."""
        content = {
            "format": FORMAT,
            "bench": self.bench,
            "part": self.part,
            "model": self.model,
            "about": self.about,
            "entries": self.entries,
        }
        write_file(self.path, [json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"])


def read_part(path: Path, bench: str = "ovt") -> PartFile:
    """A part's file. Raises StorageError where it is missing, UsageError for another file."""
    try:
        content = json.loads(read_file(path, _LIMIT, "results file"))
        if content["bench"] != bench or content["format"] != FORMAT:
            raise KeyError("bench")
        return PartFile(
            path, content["part"], content["model"], content["about"], content["entries"], bench
        )
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} holds no results of this version's `bench {bench}`.",
            "Choose another --out directory.",
        ) from None


def read_all(directory: Path, bench: str = "ovt") -> dict[tuple[str, str], PartFile]:
    """Every part's file of `bench` in `directory`, by (part, model)."""
    parts = (read_part(path, bench) for path in sorted(directory.glob(f"{bench}-*.json")))
    return {(part.part, part.model): part for part in parts}


@contextmanager
def part_file(
    directory: Path, part: str, model: str, about: Mapping[str, Any], bench: str = "ovt"
) -> Iterator[PartFile]:
    """The part's file. Only this process writes it until the end of the block.

    Raises StorageError where another process has it, UsageError where it was begun with other
    settings.
    """
    make_directory(directory)
    path = directory / f"{bench}-{part}-{model}.json"
    lock = locked(path.with_suffix(".lock"))
    try:
        lock.__enter__()
    except StorageError as error:
        raise StorageError(
            f"{path} cannot be written: {error.message}",
            "Wait for the other process to end, or choose another --out directory.",
        ) from None
    try:
        wanted = plain(dict(about))
        if path.exists():
            found = read_part(path, bench)
            if found.about != wanted:
                raise UsageError(
                    f"{path} was measured with other settings.",
                    "Choose another --out directory, or remove the file.",
                )
        else:
            found = PartFile(path, part, model, wanted, bench=bench)
        yield found
    finally:
        lock.__exit__(None, None, None)
