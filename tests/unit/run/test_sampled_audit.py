"""A sample's draw is repeated, not drawn anew; and the numbers that name its size."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from parallel_audits import inline as inline

import tallystick
from tallystick.cli import main
from tallystick.errors import StorageError, TallystickError, UsageError
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.sample import parse_size, size_of
from tallystick.run.parallel.task import Answer, Repeater, Segment, error_json

SETTINGS = {
    "features": "4", "classes": "3", "records": "40", "hidden": "6", "layers": "1",
    "batch_size": "4",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 7 segments. Never change it."""
    above = tmp_path_factory.mktemp("sampled")
    job = new_job("mlp", above / "job", SETTINGS, steps=14, checkpoint_interval=2, evaluate_every=0)
    train_job(job, above / "run", Options(keep=100))
    return above / "run"


@pytest.mark.usefixtures("inline")
def test_an_unfinished_sample_says_how_to_repeat_its_draw(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who withholds a file, or stops the machine, gets no second draw."""
    words = ["audit", str(run), "--sample", "3", "--quiet"]
    drawn: list[list[Segment]] = []
    faults: list[BaseException] = []

    def answer(self: Repeater, segment: Segment, told: object = None) -> Answer:
        drawn[-1].append(segment)
        error = faults[-1]
        if isinstance(error, TallystickError):
            return {"error": error_json(error)}
        raise error

    def failed(fault: BaseException, *more: str) -> str:
        drawn.append([])
        faults.append(fault)
        assert main.run([*words, *more]) == 2
        return capsys.readouterr().err

    monkeypatch.setattr(Repeater, "answer", answer)
    for fault in (StorageError("It is not there.", "Restore it."), KeyboardInterrupt()):
        said = failed(fault)
        (secret,) = re.findall(r"--secret ([0-9a-f]{64})", said)
        assert "another chance" in said
        again = failed(StorageError("It is not there."), "--secret", secret)
        assert drawn[-1] == drawn[-2] and "another chance" not in again
        failed(fault)
        assert "another chance" not in failed(fault, "--state", str(tmp_path / "state"))
    assert "Run the same command again." in failed(KeyboardInterrupt(), "--secret", secret)
    with pytest.raises(KeyboardInterrupt, match="--secret"):
        audit_in_parallel(run, options=ParallelOptions(sample=3))


def test_sizes_of_other_kinds_of_numbers() -> None:
    for value, size in (
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.float64(0.05), Fraction(1, 20)),
        (np.float32(0.05), Fraction(1, 20)),
        (Fraction(1, 3), Fraction(1, 3)),
    ):
        found = size_of(value)
        assert found == size and type(found) is type(size)
    for wrong in (True, np.True_, np.nan, np.inf, Decimal("0.5"), 3j, None, [3], np.int64(0)):
        with pytest.raises(UsageError, match="neither a share of the segments nor a number"):
            size_of(wrong)
    for written in ("200%", "1.5", "0"):
        with pytest.raises(UsageError, match=f"--sample {written} is neither"):
            parse_size(written)


@pytest.mark.usefixtures("inline")
def test_a_count_of_numpy_is_a_count(run: Path) -> None:
    for report in (
        audit_in_parallel(run, options=ParallelOptions(sample=np.int64(3))),  # type: ignore[arg-type]
        tallystick.audit(run, sample=np.int64(3), progress=False),
    ):
        assert report.segments is not None and len(report.segments.repeated) == 3
