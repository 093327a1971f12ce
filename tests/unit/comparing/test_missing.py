"""An operator that has fewer operands in one of two executions differs, and the cause says so."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import tallystick
from tallystick.commit.encoding import canonical_json
from tallystick.comparing.repeated import Repeated
from tallystick.run.show.summary import RunSummary


def traced(place: Path, change: Any = None) -> Path:
    with tallystick.trace(place):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    log = place / "operators.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if change is not None and line[0] == "op" and line[1].startswith("aten.mm"):
            change(line)
    log.write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))
    return place


def cut(line: list[Any]) -> None:
    line[4], line[5] = [], []


def cut_outputs(line: list[Any]) -> None:
    line[5] = []


@pytest.mark.parametrize("change", [cut, cut_outputs])
def test_traces(change: Any, tmp_path: Path) -> None:
    whole, less = traced(tmp_path / "a"), traced(tmp_path / "b", change)
    for one, other, name in ((whole, less, "A"), (less, whole, "B")):
        found = tallystick.diff(one, other)
        assert not found.equal and found.cause is not None and found.first is not None
        assert found.cause.kind == "program" and found.cause.sentence.startswith(f"Only in {name} ")
        assert found.first.elements is None and "only one" in found.first.unknown


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_runs(
    side: str, logreg_run: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the programs of both are one program, whose last operator lacks operands in B."""
    other = tmp_path / "b"
    shutil.copytree(logreg_run.directory, other)
    usual = Repeated.traced

    def less(self: Repeated, step: int) -> Any:
        entries, tracer = usual(self, step)
        if self.store.directory == other:
            entries[-1] = replace(entries[-1], **{side: ()})
        return entries, tracer

    monkeypatch.setattr(Repeated, "traced", less)
    monkeypatch.setattr(Repeated, "follows_job", False)
    monkeypatch.setattr("tallystick.comparing.runs.RunsComparison.same_records", lambda _: False)
    monkeypatch.setattr("tallystick.comparing.runs.RunsComparison.last_equal", lambda _: 0)
    for one, two, name in ((logreg_run.directory, other, "A"), (other, logreg_run.directory, "B")):
        found = tallystick.diff(one, two)
        assert found.cause is not None and found.first is not None
        assert found.cause.sentence.startswith(f"Only in {name} ")
        assert "only one" in found.first.unknown
