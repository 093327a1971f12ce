"""Calibration: Algorithm 4 as the paper has it, samples, and the job that comes of them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from reference import published as paper
from reference.steps import Steps

pytest.importorskip("torch", reason="the published form runs on torch")

from tallystick import _core
from tallystick.commit.log import PUBLISHED
from tallystick.contracts.replay.calibration import (
    Sample,
    Threshold,
    near_boundary,
    opposite_pairs,
    search,
    with_thresholds,
)
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.replay.stock.emulated import kind_named
from tallystick.disk.tensorfile import header_bytes, read_tensors, write_tensors
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.numerics.contracts import find_contract
from tallystick.run.execute import calibration
from tallystick.run.logs.reader import expected_of, open_log
from tallystick.run.logs.writer import LogDirectory

ELEMENTS = 500


@pytest.fixture(autouse=True)
def one_thread() -> None:
    _core.set_threads(1)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    home = tmp_path_factory.mktemp("calibrate")
    text = home / "text.txt"
    text.write_bytes(b"pack my box with five dozen liquor jugs. " * 60)
    gpt2 = {"n_layer": "1", "n_head": "2", "n_embd": "32", "block_size": "8", "batch_size": "2"}
    form = "replay/1;form=published"
    return new_job("gpt2", home / "gpt2", gpt2, Sources(text=text), steps=12, contract=form)


@pytest.fixture(scope="module")
def samples(job: Job, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("samples")
    paths = [home / f"{kind}.sample" for kind in ("plain", "split-k")]
    for path in paths:
        calibration.take_sample(job, path, steps=4, elements=ELEMENTS, kind=path.stem)
    return paths


def straddling(rng: np.random.Generator, bits: int, count: int, spread: float) -> list[list[float]]:
    """Results of two machines on either side of boundaries, and some that agree."""
    pairs = []
    for _ in range(count):
        grid = int(rng.integers(1, 0x7F000000 >> (32 - bits)))
        middle = float((paper.magnitude(grid, bits) + paper.magnitude(grid + 1, bits)) / 2)
        sign = float(rng.choice([-1.0, 1.0]))
        scale = 2.0 ** (math.frexp(middle)[1] - 1)
        offsets = rng.uniform(-spread, spread, 2) * scale
        pairs.append([sign * (middle + float(o)) for o in offsets])
    return pairs


@pytest.mark.parametrize("decimal", (False, True))
@pytest.mark.parametrize(("bits", "spread"), ((32, 1e-9), (32, 3e-8), (29, 1e-7), (26, 1e-12)))
def test_the_search_is_the_papers(bits: int, spread: float, decimal: bool) -> None:
    rng = np.random.default_rng(bits)
    for count in (0, 1, 40):
        pairs = straddling(rng, bits, count, spread)
        y1, y2 = (np.array([p[k] for p in pairs], np.float64) for k in range(2))
        distances, scales = opposite_pairs(y1, y2, bits, decimal)
        mine = search(distances, scales, bits)
        tau = paper.threshold([(a, b) for a, b in pairs], bits, decimal)
        whole = math.floor(tau * 2**40 + Fraction(1, 2**12))
        assert mine == min(whole, 2 ** (48 - bits) - 1)
        if count == 40 and not decimal:
            assert len(distances) > 10


def test_a_sample_has_what_lies_near_a_boundary_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    for bits in (32, 27):
        boundaries = np.array([p[0] for p in straddling(rng, bits, 50, 0.0)])
        near = boundaries * (1 + rng.uniform(-1, 1, 50) * 2.0**-31)
        far = boundaries * (1 + rng.choice([-1, 1], 50) * 2.0**-28)
        assert near_boundary(near, bits).all()
        assert not near_boundary(far, bits).any()
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, 1.0])
    assert not near_boundary(odd, 32).any()


def test_two_kinds_sample_the_same_elements_on_the_same_operands(
    job: Job, samples: list[Path]
) -> None:
    first, second = (calibration.read_sample(job, path).sample for path in samples)
    assert len(first.x) > 100
    for name in ("step", "section", "element"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert (first.x != second.x).any(), "another order of additions, other bits"
    assert np.allclose(first.x, second.x, rtol=1e-9, atol=0)


def test_a_merged_job_keeps_a_follower_at_distance_zero_with_fewer_entries(
    job: Job, samples: list[Path], tmp_path: Path
) -> None:
    made, found = calibration.merge_samples(job, samples, tmp_path / "job")
    assert load_job(tmp_path / "job").digest == made.digest != job.digest
    made.verify()
    contract, before = (find_contract(j.commitment.contract) for j in (made, job))
    for threshold in found:
        assert contract.threshold_of(threshold.operator) <= threshold.number < 1 << 16
        assert contract.threshold_of(threshold.operator) > before.threshold
    ones = []
    for number, each in enumerate((made, job)):
        logged = LoggedProgram(each.program)
        digest, home = bytes([number]) * 32, tmp_path / f"logs{number}"
        logs = LogDirectory(home, digest, logged.sections, PUBLISHED)
        recorder = LoggedSteps(each.program, sink=logs.writer)
        trainer = Steps(job_of_batches(each), each.program, recorder)
        trainer.run(0, 12)
        expected = expected_of(logged, digest)
        with open_log(home, 11, expected) as log:
            ones.append(sum(log.published(n).count(121) for n in range(len(logged.sections))))
        if number == 0:
            follower = LoggedSteps(
                each.program,
                lambda step, e=expected, h=home: open_log(h, step, e),
                stock=kind_named("split-k").stock(),
            )
            auditor = Steps(job_of_batches(each), each.program, follower)
            auditor.run(0, 12)
            assert auditor.distance(trainer) == 0
    assert ones[0] > 3 * ones[1]


def job_of_batches(job: Job) -> Job:
    """The job under a contract whose engine needs no log: Steps asks it for batches alone."""
    contract = find_contract("ordered/1").text
    made = replace(job, commitment=replace(job.commitment, contract=contract))
    vars(made)["texts"] = tuple(replace(text, contract=contract) for text in job.texts)
    return made


def test_numbers_that_no_identifier_holds_become_smaller_ones() -> None:
    contract = find_contract("replay/1;form=published")
    names = [f"aten.operator_number_{k}.overload" for k in range(40)]
    few = [Threshold(n, 60000 if k < 3 else 65535, 1, 0, 9) for k, n in enumerate(names)]
    found = with_thresholds(contract, few)
    assert found.threshold == 65535 and dict(found.thresholds) == dict.fromkeys(names[:3], 60000)
    many = [Threshold(n, 40000 + k, 1, 0, 9) for k, n in enumerate(names)]
    found = with_thresholds(contract, many)
    assert all(found.threshold_of(t.operator) <= t.number for t in many)
    assert find_contract(found.text) == found


Columns = dict[str, np.ndarray]


def rewritten(source: Path, path: Path, **changes: object) -> Path:
    columns, facts = read_tensors(source, "sample", copy=True)
    for name, change in changes.items():
        if isinstance(change, str):
            facts[name] = change
        elif change is None:
            del columns[name]
        else:
            columns[name] = np.asarray(change)
    write_tensors(path, columns, facts)
    return path


def test_files_that_are_no_samples_are_refused(
    job: Job, samples: list[Path], tmp_path: Path
) -> None:
    sample = calibration.read_sample(job, samples[0]).sample
    n = len(sample.x)
    bad: dict[str, object] = {
        "step": np.full(n, 4),
        "section": np.full(n, 10**6),
        "element": sample.element[::-1].copy(),
        "x": np.full(n, np.nan),
        "steps": "x",
        "format": "other",
        "elements": "9" * 30,
    }
    for number, (name, change) in enumerate(bad.items()):
        path = rewritten(samples[0], tmp_path / f"bad{number}", **{name: change})
        with pytest.raises(CorruptFileError, match="not a calibration sample"):
            calibration.read_sample(job, path)
    for steps in ("0", "13", "9" * 18):  # so many wrap around in a key
        path = rewritten(samples[0], tmp_path / f"steps{steps}", steps=steps)
        with pytest.raises(CorruptFileError, match="and the job 12"):
            calibration.read_sample(job, path)
    for change in (None, sample.x[:-1], sample.x.astype(np.float32)):
        number += 1
        path = rewritten(samples[0], tmp_path / f"bad{number}", x=change)
        with pytest.raises(CorruptFileError, match="not a calibration sample"):
            calibration.read_sample(job, path)
    # More results than the job has elements are refused before there is room for them.
    header, _ = header_bytes(
        {name: ("f32" if name == "x" else "i64", (1 << 36,)) for name in vars(sample)}, {}
    )
    (tmp_path / "huge").write_bytes(header)
    os.truncate(tmp_path / "huge", len(header) + (1 << 36) * 28)
    with pytest.raises(CorruptFileError, match="more results than the job"):
        calibration.read_sample(job, tmp_path / "huge")
    truncated = tmp_path / "truncated"
    truncated.write_bytes(samples[0].read_bytes()[:-9])
    with pytest.raises(CorruptFileError):
        calibration.read_sample(job, truncated)


def test_samples_that_do_not_fit_together_are_refused(
    job: Job, samples: list[Path], mlp_job: Job, tmp_path: Path
) -> None:
    out = tmp_path / "job"
    with pytest.raises(UsageError, match="compares machines"):
        calibration.merge_samples(job, samples[:1], out)
    other = rewritten(samples[1], tmp_path / "other", elements="501")
    with pytest.raises(UsageError, match="--elements"):
        calibration.merge_samples(job, [samples[0], other], out)
    foreign = rewritten(samples[1], tmp_path / "foreign", job="00" * 32)
    with pytest.raises(UsageError, match="another job"):
        calibration.merge_samples(job, [samples[0], foreign], out)
    with pytest.raises(UsageError, match="has no thresholds"):
        calibration.merge_samples(mlp_job, samples, out)
    with pytest.raises(UsageError, match="12 steps"):
        calibration.take_sample(job, tmp_path / "x", steps=13)
    assert not out.exists()


def test_too_many_steps_do_not_wrap_around() -> None:
    column = np.array([1 << 40])
    sample = Sample(column, column * 0, column * 0, np.array([1.0]))
    with pytest.raises(UsageError, match="too many steps"):
        sample.keys(1000)


def test_the_command(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tallystick.cli.main import run

    files = [str(tmp_path / f"{kind}.sample") for kind in ("plain", "permuted")]
    for file in files:
        taken = ["--out", file, "--kind", Path(file).stem, "--elements", "100"]
        assert run(["calibrate", "sample", str(job.directory), *taken]) == 0
    assert run(["calibrate", "sample", str(job.directory), "--out", files[0]]) == 3
    out = str(tmp_path / "job")
    assert run(["calibrate", "merge", str(job.directory), *files, "--out", out, "--json"]) == 0
    printed = capsys.readouterr().out
    assert '"operator": "aten.addmm"' in printed and "2^-23" not in printed
    assert run(["calibrate", "merge", str(job.directory), files[0], "--out", out + "2"]) == 3
