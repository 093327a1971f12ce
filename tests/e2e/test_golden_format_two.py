"""Golden run roots of jobs of format 2, a run that validates and stops early and micro-batches, and
of format 3: short batches, records in sequence, batches that are dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from golden import FORMAT_TWO, FORMAT_TWO_ROOTS, entry_two, format_two_job
from long_runs import cases, in_turn, place

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job

pytestmark = pytest.mark.usefixtures("probed_once")


@pytest.mark.parametrize(("name", "contract"), cases(FORMAT_TWO))
def test_run_roots_on_every_path(
    name: str, contract: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    golden = json.loads(FORMAT_TWO_ROOTS.read_text())[f"{name} {contract}"]
    job = format_two_job(name, tmp_path, contract)
    assert golden["final_step"] >= 100, "some leaks show late"
    assert (golden["final_step"] < job.steps) == (name == "validated")
    turn = place(FORMAT_TWO, (name, contract))
    for number, isa in in_turn(_core.supported_isas()[::-1], is_exhaustive, turn):
        _core.set_isa(isa)
        threads = 1 + (turn + number) % 3
        run = train_job(job, tmp_path / f"run-{isa}", Options(ExecutionContext(threads)))
        assert run.isa == isa
        assert entry_two(job, run) == golden, isa
