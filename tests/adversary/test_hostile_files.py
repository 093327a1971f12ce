"""Files that a person names, and what is written: no wait, no link followed, nothing through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_trees import Capture, alarm, copied_to, fifo, loop, outcome

from tallystick.cli.main import run
from tallystick.job.job import Job
from tallystick.run.execute.trainer import RunSummary


@pytest.mark.parametrize("place", [fifo, loop, lambda path: path.symlink_to("/dev/zero")])
def test_no_file_on_a_command_line_is_waited_for(
    place: object, mlp_run: RunSummary, mlp_job: Job, tmp_path: Path, capture: Capture
) -> None:
    """Evidence, keys, samples, models, texts and data are regular files."""
    bad, job, good = str(tmp_path / "bad"), str(mlp_job.directory), str(mlp_run.directory)
    new, cifar = ["job", "new"], tmp_path / "cifar"
    place(tmp_path / "bad")  # type: ignore[operator]
    (tmp_path / "bad.safetensors").symlink_to("bad")
    cifar.mkdir()
    place(cifar / "data_batch_1.bin")  # type: ignore[operator]
    made = ["--out", str(tmp_path / "made")]
    faults = []
    for arguments in (
        ["judge", bad, "--job", job],
        ["report", bad, "--job", job, "-o", str(tmp_path / "page")],
        ["report", good, "-o", bad],
        ["verify-model", bad, good],
        ["fsck", good, "--trust", bad],
        ["keys", "show", bad],
        ["train", job, *made, "--key", bad],
        ["calibrate", "merge", job, bad, *made],
        [*new, "gpt2", *made, "--text", bad],
        [*new, "mlp", *made, "--data", bad],
        [*new, "mlp", *made, "--data", bad + ".safetensors"],
        [*new, "mlp", *made, "--cifar10", str(cifar)],
        ["dispute", good, bad, "--job", job, "--out", str(tmp_path / "evidence")],
        ["dispute", good, good, "--job", job, "--out", bad],
    ):
        capture()
        if fault := outcome(arguments, capture):
            faults.append(f"{' '.join(arguments[:2])}: {fault}")
    assert faults == []


def test_a_key_behind_a_link_is_read(
    logreg_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    """A path that a person has named may be a link: inside a run alone it may not."""
    (tmp_path / "key").symlink_to(logreg_run.directory / "signer.pem")
    assert run(["fsck", str(logreg_run.directory), "--trust", str(tmp_path / "key")]) == 0


def test_training_makes_nothing_behind_a_link(
    logreg_job: Job, tmp_path: Path, capture: Capture
) -> None:
    """A planted link in --out is refused before anything is written through it."""
    for name in ("checkpoints", "nodes", "job"):
        outside, out = tmp_path / f"outside-{name}", tmp_path / f"run-{name}"
        outside.mkdir()
        out.mkdir()
        (out / name).symlink_to(outside)
        assert run(["train", str(logreg_job.directory), "--out", str(out), "--quiet"]) == 2
        assert "is a link" in capture()[1]
        assert list(outside.iterdir()) == []


def test_export_does_not_follow_a_planted_part_file(
    logreg_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    """The file beside the one to be written is always a new one."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "model.safetensors.part").symlink_to(victim)
    assert (
        run(["export", str(logreg_run.directory), "-o", str(tmp_path / "model.safetensors")]) == 0
    )
    assert victim.read_text() == "precious"
    assert (tmp_path / "model.safetensors").is_file()
    assert not (tmp_path / "model.safetensors").is_symlink()


def test_nothing_is_written_through_a_fifo(
    logreg_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    for name in ("model", "model.part"):
        fifo(tmp_path / name)
    with alarm():
        assert run(["export", str(logreg_run.directory), "-o", str(tmp_path / "model")]) == 2
    assert "a FIFO" in capture()[1]
    (tmp_path / "model").unlink()
    with alarm():
        assert run(["export", str(logreg_run.directory), "-o", str(tmp_path / "model")]) == 0
    assert (tmp_path / "model").is_file()


def test_resuming_writes_no_lock_through_a_link(
    logreg_run: RunSummary, logreg_job: Job, tmp_path: Path, capture: Capture
) -> None:
    copy = copied_to(logreg_run.directory, tmp_path / "run")
    (copy / "lock").unlink()
    (copy / "lock").symlink_to(tmp_path / "made")
    assert run(["train", str(logreg_job.directory), "--out", str(copy), "--quiet"]) == 2
    assert "is a link" in capture()[1]
    assert not (tmp_path / "made").exists()
