"""`make gpu-check` without a GPU: every part that the emulated device can run, in small; and the
frame around the parts, whose outcome is written even when one fails or takes too long."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the parts make jobs, which takes torch")

import torch
from check import bits
from check import run as run_parts
from check.jobs import JOBS, NOT_YET
from check.one import PARTS, outcome
from check.run import BUILD_SECONDS, SECONDS, Part, Report, bounded, parts, run
from check.where import Where
from emulated_gpu import emulated_gpu
from kernel_format import device_groups

from tallystick.devices.cpu import CPU


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_on_the_emulated_device(part: str, tmp_path: Path) -> None:
    found = outcome(part, Where(emulated_gpu(seed=3), True, tmp_path))
    assert found["ok"], found
    json.dumps(found)


def test_another_root_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that compares would say so."""
    where = Where(emulated_gpu(), True, tmp_path)
    wanted = where.expected("roots")
    wanted["logreg"]["run_root"] = "00" * 32
    monkeypatch.setattr(Where, "expected", lambda self, name: wanted)
    found = bits.roots(where)
    assert not found["ok"] and found["runs"]["logreg"]["different"] == ["run_root"]


def test_the_expected_digests_are_those_of_this_processor(tmp_path: Path) -> None:
    """A sample of what is carried to the GPU machine, made again. NUMERICS 1.8."""
    made = Where(emulated_gpu(), True, tmp_path).expected("nasty")
    assert set(made) == set(device_groups()) and sum(map(len, made.values())) > 1000
    count, wrong = bits._nasty(
        CPU, {group: rows[:: max(1, len(rows) // 4)] for group, rows in made.items()}
    )
    assert count > 3 * len(made) and not wrong, wrong[:5]


def test_expected_roots_are_there(tmp_path: Path) -> None:
    wanted = Where(emulated_gpu(), True, tmp_path).expected("roots")
    assert set(JOBS) - set(wanted) == NOT_YET


def test_every_part_has_its_time_and_all_fit() -> None:
    todo = parts("cuda")
    own = {p.command[2] for p in todo if p.command[1].endswith("one.py")}
    assert own | {"products"} == set(PARTS)
    assert all(p.seconds > 0 for p in todo)
    assert BUILD_SECONDS + sum(p.seconds for p in todo) <= SECONDS <= 8 * 60
    # A speed is worth nothing where the bits are not known to be right.
    speeds = ["gemm", "exact", "step"]
    assert [p.name for p in todo][-len(speeds) :] == speeds


def test_a_part_has_what_the_parts_before_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, float] = {}

    def quick(part: Part, seconds: float) -> dict[str, Any]:
        given[part.name] = seconds
        return {"ok": True}

    monkeypatch.setattr(run_parts, "bounded", quick)
    monkeypatch.setattr(Report, "note", lambda self, name, found: self.found.update({name: found}))
    todo = [Part("a", 30, []), Part("b", 20, []), Part("c", 10, [])]
    assert run(Report(Path()), todo, 60)
    assert list(given.values()) == pytest.approx([30, 50, 60], abs=1)
    assert run(Report(Path()), todo, 25)  # too little for all: the first one has its own
    assert list(given.values()) == pytest.approx([25, 20, 25], abs=1)


def test_a_failing_and_an_endless_part_leave_an_outcome(tmp_path: Path) -> None:
    todo = [
        Part("endless", 1, [sys.executable, "-c", "import time; time.sleep(60)"]),
        Part("fails", 30, [sys.executable, "-c", "raise SystemExit('no such thing')"]),
        Part("missing", 30, ["no-such-program-of-anyone"]),
        Part("works", 30, [sys.executable, "-c", "print('done')"]),
    ]
    report = Report(tmp_path / "results" / "gpu.json")
    assert not run(report, todo, 92)  # a second more than their times
    found = json.loads(report.path.read_text())
    assert [found[p.name]["ok"] for p in todo] == [False, False, False, True]
    assert "no such thing" in found["fails"]["said"]
    assert "longer" in found["endless"]["error"]
    late = Report(tmp_path / "late.json")
    assert not run(late, todo[-1:], 0)
    assert "no time" in json.loads(late.path.read_text())["works"]["error"]


def test_a_part_in_a_process_of_its_own() -> None:
    [part] = [p for p in parts("emulated") if p.name == "fingerprints"]
    found = bounded(part, 240)
    assert found["ok"], found
    assert found["functions"] == 12


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds an NVIDIA GPU here")
def test_a_part_whose_tests_are_all_skipped_has_shown_nothing() -> None:
    """A driver that torch cannot use must not pass for a GPU whose bits are right."""
    [part] = [p for p in parts("cuda") if p.name == "replay"]
    found = bounded(part, 240)
    assert not found["ok"]
    assert "no NVIDIA GPU" in found["said"]
