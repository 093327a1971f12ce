"""Reading and writing vectors/answers (see its README.md for the format)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = "tallystick-answer-vectors/1"
ROOT = Path(__file__).resolve().parents[2] / "vectors" / "answers"
INDEX, DATA = ROOT / "answers.json", ROOT / "answers.bin"
LISTS = (
    "models", "requests", "answers", "strangers", "shown", "convictions", "pairs", "refused",
    "draws", "samples",
)  # fmt: skip
Object = dict[str, Any]
Place = list[int]


class Pool:
    """The data: bytes that are equal stand in it once."""

    def __init__(self) -> None:
        self._data, self._places = bytearray(), dict[bytes, Place]()

    def place(self, part: bytes) -> Place:
        if part not in self._places:
            self._places[part] = [len(self._data), len(part)]
            self._data.extend(part)
        return self._places[part]

    @property
    def data(self) -> bytes:
        return bytes(self._data)


def splice(honest: bytes, other: bytes) -> tuple[int, int, bytes]:
    """(offset, number of bytes left out there, bytes put there) that make `other` of `honest`."""
    least = min(len(honest), len(other))
    head = next((n for n in range(least) if honest[n] != other[n]), least)
    room = least - head
    tail = next((n for n in range(room) if honest[-1 - n] != other[-1 - n]), room)
    return head, len(honest) - head - tail, other[head : len(other) - tail]


def text_of(lists: dict[str, list[Object]]) -> str:
    """The index: a line for each entry."""
    head = f'{{"format":"{FORMAT}","data":"{DATA.name}"'
    for name in LISTS:
        lines = [json.dumps(entry, separators=(",", ":")) for entry in lists[name]]
        head += f',"{name}":[\n' + ",\n".join(lines) + "\n]"
    return head + "}\n"


class Stored:
    """The frozen vectors."""

    def __init__(self) -> None:
        self.lists: dict[str, Any] = json.loads(INDEX.read_text())
        assert self.lists["format"] == FORMAT
        self._data = (ROOT / self.lists["data"]).read_bytes()

    def part(self, place: Place) -> bytes:
        return self._data[place[0] : place[0] + place[1]]

    def altered(self, entry: Object) -> bytes:
        """The file of a refusal."""
        honest, (at, drop) = self.part(entry["honest"]), entry["cut"]
        return honest[:at] + self.part(entry["put"]) + honest[at + drop :]

    def named(self, name: str) -> list[Object]:
        found: list[Object] = self.lists[name]
        return found
