"""`tallystick.records_of`, and runs of format 3 as data, table and random key have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from format_three import COUNT, make_stream_job
from format_two import make_micro_job

import tallystick
from tallystick.commit.stream import SEQUENTIAL, SHUFFLED
from tallystick.errors import UsageError
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job


@pytest.mark.parametrize(("epoch", "sizes"), [(COUNT, [4, 4, 3]), (8, [4, 4]), (None, [4, 4, 4])])
def test_the_records_of_the_steps_of_an_epoch(
    tmp_path: Path, epoch: int | None, sizes: list[int]
) -> None:
    job = make_stream_job(tmp_path / "job", epoch, SEQUENTIAL)
    assert job.commitment.format_version == 3
    found = [tallystick.records_of(job.directory, step) for step in range(len(sizes) + 1)]
    assert [len(f.numbers) for f in found[:-1]] == sizes
    flat = np.concatenate([f.numbers for f in found[:-1]])
    assert flat.dtype == np.int64 and {f.data for f in found} == {"train"}
    assert flat.tolist() == [n % COUNT for n in range(sum(sizes))]
    begins = 0 if epoch else 1  # a batch that ran on took the first record with it
    assert found[-1].numbers[0] == begins
    assert found[-2].program == ("step-short" if epoch == COUNT else "step")


@pytest.mark.parametrize("taken", [COUNT, 8])
def test_each_epoch_is_a_shuffle_of_its_own(tmp_path: Path, taken: int) -> None:
    job = make_stream_job(tmp_path / "job", taken, SHUFFLED)
    each = 3 if taken == COUNT else 2
    epochs = [
        np.concatenate([tallystick.records_of(job, e * each + k).numbers for k in range(each)])
        for e in range(3)
    ]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == len(epoch) == taken
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_records_of_a_job_of_format_two_and_of_no_step(tmp_path: Path) -> None:
    job = make_micro_job(tmp_path / "job", steps=4)
    found = tallystick.records_of(job, 3)
    at = job.commitment.timetable.at(3)
    assert found.program == "step"
    assert found.numbers.tolist() == job.commitment.timetable.indices(at).tolist()
    for step in (-1, 4, True, 1.0):
        with pytest.raises(UsageError, match="no step"):
            tallystick.records_of(job, step)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epoch", "order"),
    [(COUNT, SHUFFLED), (COUNT, SEQUENTIAL), (8, SHUFFLED), (6, SHUFFLED), (None, SEQUENTIAL)],
)
def test_a_run_of_format_three_is_audited(tmp_path: Path, epoch: int | None, order: str) -> None:
    job = make_stream_job(tmp_path / "job", epoch, order)
    assert train_job(job, tmp_path / "run", Options()).finished
    report = audit_run(tmp_path / "run")
    assert report.accepted and report.losses_compared == 9
