"""Reading and writing vectors/protocol/sessions.json (see the README.md there for the format)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from evidence_format import ROOT

FORMAT = "tallystick-session-vectors/1"
NAME = "sessions"
# The files of a job of format 1 that a judge needs.
TERMS = ("job.json", "program.txt")


@dataclass(frozen=True)
class Message:
    """A signed message, and the seed of the key that signed it as `payload_type`."""

    name: str
    seed: str
    payload_type: str
    data: bytes
    signed: bytes


@dataclass(frozen=True)
class Log:
    """The signed entries of a log, and what a reader has to say of it."""

    name: str
    entries: list[bytes]
    outcome: dict[str, Any]


@dataclass
class Vectors:
    job: dict[str, bytes]
    messages: list[Message] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)


def encode(vectors: Vectors) -> tuple[str, bytes]:
    """(index text, data)."""
    data, places = bytearray(), dict[bytes, list[int]]()

    def place(part: bytes) -> list[int]:
        """Equal bytes lie in one place: the logs begin alike."""
        if part not in places:
            places[part] = [len(data), len(part)]
            data.extend(part)
        return places[part]

    def lines(items: Iterable[Any]) -> str:
        return ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)

    job = json.dumps({k: place(v) for k, v in vectors.job.items()}, separators=(",", ":"))
    messages = lines(
        {"name": m.name, "seed": m.seed, "type": m.payload_type, "data": place(m.data),
         "signed": place(m.signed)}
        for m in vectors.messages
    )  # fmt: skip
    logs = lines(
        {"name": g.name, "entries": [place(e) for e in g.entries], "outcome": g.outcome}
        for g in vectors.logs
    )
    head = f'{{"format":"{FORMAT}","data":"{NAME}.bin","job":{job},"messages":[\n'
    return f'{head}{messages}\n],"logs":[\n{logs}\n]}}\n', bytes(data)


def load() -> Vectors:
    """The stored vectors."""
    index = json.loads((ROOT / f"{NAME}.json").read_text())
    assert index["format"] == FORMAT
    data = (ROOT / index["data"]).read_bytes()

    def part(place: list[int]) -> bytes:
        return data[place[0] : place[0] + place[1]]

    return Vectors(
        {name: part(index["job"][name]) for name in TERMS},
        [Message(m["name"], m["seed"], m["type"], part(m["data"]), part(m["signed"]))
         for m in index["messages"]],
        [Log(g["name"], [part(e) for e in g["entries"]], g["outcome"]) for g in index["logs"]],
    )  # fmt: skip
