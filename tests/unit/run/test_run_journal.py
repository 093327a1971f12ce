"""The journal: what it keeps, what it refuses, what a torn end leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptFileError, StorageError
from tallystick.run.store.journal import (
    MAGIC,
    Journal,
    journal_bytes,
    loss_value,
    parse_journal,
    read_journal,
)

JOB = bytes(range(32))
ROOTS = [bytes([i]) * 32 for i in range(5)]


def _written(path: Path) -> Journal:
    journal = Journal.open(path, JOB)
    journal.session({"isa": "scalar", "threads": 1})
    journal.checkpoint(0, ROOTS[0])
    for step in range(4):
        journal.loss(step, 0x3F800000 + step)
        if step == 1:
            journal.checkpoint(2, ROOTS[2])
            journal.evaluation(2, 0x40000000)
    journal.pause(4, ROOTS[3])
    journal.checkpoint(4, ROOTS[4])
    journal.end(4, "complete", ROOTS[1])
    journal.close()
    return journal


def test_all_records_come_back(tmp_path: Path) -> None:
    written = _written(tmp_path / "journal").content
    found = read_journal(tmp_path / "journal")
    assert found == written
    assert found.losses == [0x3F800000 + step for step in range(4)]
    assert [loss_value(b) for b in found.losses[:2]] == [1.0, 1.0000001192092896]
    assert found.checkpoints == [(0, ROOTS[0]), (2, ROOTS[2]), (4, ROOTS[4])]
    assert found.evaluations == [(2, 0x40000000)]
    assert found.roots[4] == ROOTS[4]
    assert found.finished
    assert found.reason == "complete"


def test_every_prefix_reads_and_every_flip_stops_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _written(path)
    whole = path.read_bytes()
    start = len(MAGIC) + 32
    before = -1
    for length in range(start, len(whole) + 1):
        found, _, end = parse_journal(whole[:length], path)
        assert found.torn_bytes == length - end
        assert (found.torn_bytes == 0) == (end == length)
        assert len(found.losses) >= before
        before = len(found.losses)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        if at < len(MAGIC):
            with pytest.raises(CorruptFileError):
                parse_journal(bytes(damaged), path)
            continue
        found, _, end = parse_journal(bytes(damaged), path)
        assert found.torn_bytes > 0
        assert found.torn_why
        assert end <= at or at < start


@given(cut=st.integers(0, 400))
def test_a_torn_end_is_cut_off_and_continued(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "torn"
    path.unlink(missing_ok=True)
    journal = Journal.open(path, JOB)
    journal.checkpoint(0, ROOTS[0])
    for step in range(6):
        journal.loss(step, step)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: max(53, len(whole) - cut)])
    again = Journal.open(path, JOB)
    kept = len(again.content.losses)
    if not again.content.checkpoints:
        again.checkpoint(0, ROOTS[0])
    for step in range(kept, 6):
        again.loss(step, step)
    again.close()
    assert path.read_bytes() == whole


def test_records_out_of_place_are_refused(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", JOB)
    with pytest.raises(CorruptFileError):
        journal.loss(1, 0)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_journal(tmp_path / "none")
    (tmp_path / "x").write_bytes(b"hello")
    with pytest.raises(CorruptFileError):
        read_journal(tmp_path / "x")
    _written(tmp_path / "journal")
    with pytest.raises(CorruptFileError):
        Journal.open(tmp_path / "journal", bytes(32))


def test_the_size_is_known_beforehand(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _written(path)
    assert path.stat().st_size <= journal_bytes(4, 3) + 200
