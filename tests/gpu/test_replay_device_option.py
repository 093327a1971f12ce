"""`--device cuda` under bounded `replay/1`: all of NVIDIA's driver's path, over the emulation."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

import numpy as np
from emulated_command import command
from reference.orders import Nudged
from unit.run.replay_tools import forging, trained

from tallystick.commit.log import Section
from tallystick.contracts.replay.entries import Entries
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import RunSummary

SETTINGS = {
    "features": "32", "classes": "4", "records": "64", "hidden": "40", "batch_size": "32",
    "dropout": "0.1",
}  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    directory = tmp_path_factory.mktemp("replay-device") / "job"
    return new_job("mlp", directory, SETTINGS, steps=8, checkpoint_interval=4, contract="replay/1")


@pytest.fixture(scope="module")
def run(job: Job) -> RunSummary:
    """A run of the processor, whose choices no other party makes. Never change it."""
    return trained(job, job.directory.parent / "run", Nudged(1))


def test_trainer_and_auditor_on_either_side(job: Job, run: RunSummary, tmp_path: Path) -> None:
    there = command("train", job.directory, "--out", tmp_path / "there", "--device", "cuda")
    assert there["isa"] == "sm_90" and there["log_bytes"] > 0
    assert there["run_root"] != run.run_root.hex(), "nothing to follow"
    audited = command("audit", tmp_path / "there")
    assert audited["accepted"] and audited["findings"] == []
    audited = command("audit", run.directory, "--device", "cuda")
    assert audited["accepted"] and audited["choices"]["left"] > 0
    again = ("--out", tmp_path / "again", "--device", "cuda", "--replay")
    followed = command("train", job.directory, *again, run.directory)
    assert followed["run_root"] == run.run_root.hex()
    assert followed["followed"]["findings"] == []


def test_a_forged_entry_is_named_as_on_the_processor(job: Job, tmp_path: Path) -> None:
    def change(step: int, section: Section, entries: Entries) -> Entries | None:
        free = np.setdiff1d(np.arange(section.elements), entries.positions)
        if step != 5 or section.elements < 1000:
            return None
        at = np.union1d(entries.positions, free[:3])
        directions = np.ones(len(at), np.uint8)
        directions[np.isin(at, entries.positions)] = entries.directions
        return Entries(at, directions)

    with forging(change):
        trained(job, tmp_path / "forged", Nudged(2))
    found = [
        command("audit", tmp_path / "forged", "--device", device, code=1)
        for device in ("cpu", "cuda")
    ]
    assert found[0]["findings"] and found[0]["findings"] == found[1]["findings"]
    assert found[0]["difference"] == found[1]["difference"]


def test_an_auditor_on_the_device_convicts_a_cheat(job: Job, tmp_path: Path) -> None:
    """It follows the cheat's logs there, and both provers follow their own logs there."""
    cheat, own = tmp_path / "cheat", tmp_path / "own"
    command("attack", "lie-output", job.directory, "--out", cheat)
    command("train", job.directory, "--out", own, "--replay", cheat, "--device", "cuda", code=1)
    found = command(
        "dispute", own, cheat, "--job", job.directory, "--out", tmp_path / "evidence",
        "--as-attack", "B", "--device", "cuda", code=1,
    )  # fmt: skip
    assert [c["party"] for c in found["convicted"]] == ["B"]
    judged = command("judge", tmp_path / "evidence", "--job", job.directory, code=1)
    assert [c["party"] for c in judged["convicted"]] == ["B"]


def test_a_gpu_without_memory_for_the_log_loses_nothing(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = command("train", job.directory, "--out", out, "--device", "cuda", code=2, bytes=50_000)
    assert "no memory left" in found["error"] and found["next_action"]
    assert command("train", job.directory, "--out", out, "--device", "cuda")["finished"]
