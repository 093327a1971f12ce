"""A released vector, schema or operator's entry never changes (docs/adr/0046-the-freeze.md)."""

from __future__ import annotations

import json

import frozen
import pytest


def test_nothing_that_was_frozen_has_changed() -> None:
    assert frozen.changed(json.loads(frozen.RECORD.read_text()), frozen.digests()) == []


def test_what_is_new_is_in_the_record() -> None:
    """Else nothing would hold it. `python tests/vectors/frozen.py --add` adds it."""
    assert frozen.added(json.loads(frozen.RECORD.read_text()), frozen.digests()) == []


@pytest.mark.parametrize("kind", ["files", "operators"])
def test_a_change_and_a_loss_are_told(kind: str) -> None:
    record = json.loads(frozen.RECORD.read_text())
    first, second = list(record[kind])[:2]
    now = json.loads(frozen.RECORD.read_text())
    now[kind][first] = "0" * 64
    del now[kind][second]
    assert frozen.changed(record, now) == [
        f"{kind}: {first} has changed",
        f"{kind}: {second} is gone",
    ]


def test_the_record_holds_every_directory_of_vectors() -> None:
    record = json.loads(frozen.RECORD.read_text())
    held = {name.split("/")[1] for name in record["files"] if name.startswith("vectors/")}
    assert held == {path.name for path in (frozen.ROOT / "vectors").iterdir() if path.is_dir()}
