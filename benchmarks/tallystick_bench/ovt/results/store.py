"""Raw results of `bench ovt`: one JSON file per part and model, written as the entries come.

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
            "bench": "ovt",
            "part": self.part,
            "model": self.model,
            "about": self.about,
            "entries": self.entries,
        }
        write_file(self.path, [json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"])


def read_part(path: Path) -> PartFile:
    """A part's file. Raises StorageError where it is missing, UsageError for another file."""
    try:
        content = json.loads(read_file(path, _LIMIT, "results file"))
        if content["bench"] != "ovt" or content["format"] != FORMAT:
            raise KeyError("bench")
        return PartFile(
            path, content["part"], content["model"], content["about"], content["entries"]
        )
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} holds no results of this version's `bench ovt`.",
            "Choose another --out directory.",
        ) from None


def read_all(directory: Path) -> dict[tuple[str, str], PartFile]:
    """Every part's file in `directory`, by (part, model)."""
    parts = (read_part(path) for path in sorted(directory.glob("ovt-*.json")))
    return {(part.part, part.model): part for part in parts}


@contextmanager
def part_file(
    directory: Path, part: str, model: str, about: Mapping[str, Any]
) -> Iterator[PartFile]:
    """The part's file. Only this process writes it until the end of the block.

    Raises StorageError where another process has it, UsageError where it was begun with other
    settings.
    """
    make_directory(directory)
    path = directory / f"ovt-{part}-{model}.json"
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
            found = read_part(path)
            if found.about != wanted:
                raise UsageError(
                    f"{path} was measured with other settings.",
                    "Choose another --out directory, or remove the file.",
                )
        else:
            found = PartFile(path, part, model, wanted)
        yield found
    finally:
        lock.__exit__(None, None, None)
