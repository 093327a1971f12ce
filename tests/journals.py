"""Journals written anew, as whoever may write to a run's directory could: their check chain needs
no key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from tallystick.run.store import journal
from tallystick.run.store.journal import CHECKPOINT, LOGGED, LOSS, MAGIC, PAUSE

Record = tuple[int, bytes]
Change = Callable[[list[Record]], list[Record]]


def records(path: Path) -> list[Record]:
    """Kind and payload of every record of an intact journal."""
    data, found = path.read_bytes(), []
    at = len(MAGIC) + 32
    while at < len(data):
        kind, length = journal.RECORD_HEAD.unpack_from(data, at)
        at += journal.RECORD_HEAD.size
        found.append((kind, data[at : at + length]))
        at += length + journal.CHECK_BYTES
    return found


def rewrite(path: Path, change: Change) -> None:
    """Replace the journal by one with other records, every check of it right."""
    head = path.read_bytes()[: len(MAGIC) + 32]
    chain = journal.DigestChain(head[len(MAGIC) :])
    made = [chain.frame(kind, payload) for kind, payload in change(records(path))]
    path.write_bytes(head + b"".join(made))


def with_pause(step: int, root: bytes) -> Change:
    """A pause after `step` steps, its state having this root."""

    def change(given: list[Record]) -> list[Record]:
        steps = [i for i, (kind, _) in enumerate(given) if kind in (LOSS, LOGGED)]
        at = steps[step - 1] + 1
        return [*given[:at], (PAUSE, struct.pack("<Q32s", step, root)), *given[at:]]

    return change


def with_loss(step: int, bits: int) -> Change:
    """Another loss of step `step`."""

    def change(given: list[Record]) -> list[Record]:
        steps = [i for i, (kind, _) in enumerate(given) if kind in (LOSS, LOGGED)]
        kind, payload = given[steps[step]]
        made = list(given)
        made[steps[step]] = kind, payload[:8] + struct.pack("<I", bits) + payload[12:]
        return made

    return change


def with_log(step: int, digest: bytes) -> Change:
    """Another digest of the log of step `step`."""

    def change(given: list[Record]) -> list[Record]:
        steps = [i for i, (kind, _) in enumerate(given) if kind == LOGGED]
        made = list(given)
        made[steps[step]] = LOGGED, given[steps[step]][1][:12] + digest
        return made

    return change


def with_root(step: int, root: bytes) -> Change:
    """Another root of the checkpoint of `step`."""

    def change(given: list[Record]) -> list[Record]:
        return [
            (k, struct.pack("<Q32s", step, root))
            if k == CHECKPOINT and struct.unpack_from("<Q", p)[0] == step
            else (k, p)
            for k, p in given
        ]

    return change
