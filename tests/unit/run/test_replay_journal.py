"""What the journal keeps of rounding logs, and of a run whose logs are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import CorruptFileError
from tallystick.run.logs.report import (
    FINDINGS_PER_STEP,
    damaged_log,
    follow_report,
    found_problem,
    log_record,
    state_record,
)
from tallystick.run.store.journal import Journal, journal_bytes, parse_journal, read_journal

JOB = bytes(range(32))
ROOT = b"r" * 32
EMPTY: tuple[Any, ...] = (0, False, [], {})  # what is no name, and not null either


def _finding(step: int, element: int = 7) -> dict[str, Any]:
    return {
        "kind": "forged entry", "step": step, "node": 3, "operator": "aten.mm", "output": 0,
        "element": element, "direction": 1, "detail": "",
    }  # fmt: skip


def _written(path: Path) -> Journal:
    journal = Journal.open(path, JOB)
    journal.session({"isa": "scalar", "threads": 1, "replay": "ab" * 32})
    journal.checkpoint(0, ROOT)
    for step in range(4):
        journal.followed(log_record(step, [_finding(step)] if step == 2 else [], 5, step))
        journal.loss(step, step, bytes([step]) * 32)
    journal.followed(state_record(4, 2, "param.w", ROOT, JOB))
    journal.checkpoint(4, ROOT)
    journal.close()
    return journal


def test_logs_and_findings_come_back(tmp_path: Path) -> None:
    content = _written(tmp_path / "journal").content
    found = read_journal(tmp_path / "journal")
    assert found == content
    assert found.logs == [bytes([step]) * 32 for step in range(4)]
    report = follow_report(found)
    assert report is not None and not report.accepted
    assert (report.left, report.taken) == (20, 6)
    assert report.findings == [_finding(2)]
    assert report.difference is not None and report.difference["interval"] == [2, 4]
    assert report.as_dict()["difference"]["slot"] == "param.w"
    assert (tmp_path / "journal").stat().st_size <= journal_bytes(4, 2, True) + 2000


def test_a_run_that_follows_nobody_has_no_report(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", JOB)
    journal.session({"isa": "scalar"})
    journal.loss(0, 0, ROOT)
    assert follow_report(journal.content) is None


def test_every_prefix_reads(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _written(path)
    whole = path.read_bytes()
    for length in range(60, len(whole), 5):
        found, _, _ = parse_journal(whole[:length], path)
        assert len(found.logs) == len(found.losses)


def test_a_finding_may_be_found_again_after_a_restart(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", JOB)
    journal.followed(log_record(0, [], 1, 1))
    journal.followed(log_record(0, [], 5, 2))  # a kill between this record and the step's own
    journal.loss(0, 0, ROOT)
    assert journal.content.followed[0, "log"]["left"] == 5


def test_a_step_without_its_log_is_out_of_place(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", JOB)
    journal.loss(0, 0, ROOT)
    with pytest.raises(CorruptFileError, match="no log"):
        journal.loss(1, 0)
    journal = Journal.open(tmp_path / "other", JOB)
    journal.loss(0, 0)
    with pytest.raises(CorruptFileError, match="out of place"):
        journal.loss(1, 0, ROOT)
    journal = Journal.open(tmp_path / "third", JOB)
    with pytest.raises(CorruptFileError, match="out of place"):
        journal.followed(log_record(3, []))


def test_malformed_records_are_refused() -> None:
    good = log_record(1, [_finding(1)], 2, 1)
    other = state_record(4, 2, None, ROOT, JOB)
    assert not found_problem(good) and not found_problem(other)
    assert not found_problem(log_record(1, [damaged_log(1, OSError())]))
    for broken in (
        None,
        [],
        {**good, "left": -1},
        {**good, "taken": True},
        {**good, "what": "rumour"},
        {**good, "more": 1},
        {**good, "findings": [1]},
        {**good, "findings": [{**_finding(1), "node": "x"}]},
        {**good, "findings": [{**_finding(1), "step": None}]},
        {**good, "findings": {}},
        {**other, "interval": [1]},
        {**other, "interval": [1, "2"]},
        {**other, "committed": 4},
        {**other, "slot": 4},
        *({**other, "slot": empty} for empty in EMPTY),
        *({**good, "findings": [{**_finding(1), "operator": empty}]} for empty in EMPTY),
    ):
        assert found_problem(broken), broken


def test_many_findings_are_counted() -> None:
    record = log_record(0, [_finding(0, e) for e in range(FINDINGS_PER_STEP + 9)])
    assert len(record["findings"]) == FINDINGS_PER_STEP
    assert record["unnamed"] == 9
