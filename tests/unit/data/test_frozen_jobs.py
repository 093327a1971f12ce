"""A job over a frozen data set is the job over its arrays, and shares the file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tallystick
from tallystick.cli.main import run as command
from tallystick.disk.files import share_or_copy
from tallystick.disk.manifest import manifest_bytes
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.job.recipes import new_job, verify_job
from tallystick.job.recipes.base import Sources
from tallystick.run.show.summary import RunSummary

RNG = np.random.default_rng(7)
DATA = {
    "x": RNG.normal(size=(70, 6)).astype(np.float32),
    "y": RNG.integers(0, 3, 70),
}


def captured() -> Any:
    torch.manual_seed(0)
    module = nn.Linear(6, 3)
    return tallystick.capture(
        module,
        lambda m, b: F.cross_entropy(m(b["x"]), b["y"]),
        {"x": torch.zeros(4, 6), "y": torch.zeros(4, dtype=torch.int64)},
        tallystick.SGD(lr=0.1),
    )


def test_the_job_is_that_of_the_arrays(tmp_path: Path) -> None:
    frozen = tallystick.freeze(DATA, tmp_path / "data", hold_out=0.1, progress=False)
    assert frozen.validation is not None
    step = captured()
    keep = [i for i in range(70) if (i + 1) % 10]
    plain = {name: column[keep] for name, column in DATA.items()}
    rest = {name: column[9::10] for name, column in DATA.items()}
    options: dict[str, Any] = {"steps": 12, "evaluate_every": 4, "seed": 3}
    one = step.save_job(tmp_path / "one", plain, validation=rest, **options)
    two = step.save_job(tmp_path / "two", frozen, validation=frozen.validation, **options)
    three = step.save_job(
        tmp_path / "three",
        tmp_path / "data",
        validation=str(frozen.validation.directory),
        **options,
    )
    assert one.digest == two.digest == three.digest
    assert one.evaluation == two.evaluation
    for name in ("data/train.safetensors", "data/validation.safetensors"):
        files = [job.directory / name for job in (one, two, three)]
        assert len({file.read_bytes() for file in files}) == 1
    two.verify()
    runs: list[RunSummary] = [
        tallystick.train(job, tmp_path / f"run-{job.directory.name}", progress=False)
        for job in (one, two)
    ]
    assert runs[0].run_root == runs[1].run_root
    held = tmp_path / "run-two" / "job" / "data" / "train.safetensors"
    assert os.path.samefile(held, frozen.file) or held.read_bytes() == frozen.file.read_bytes()
    assert tallystick.audit(tmp_path / "run-two", progress=False).accepted


def test_committed_validation_over_frozen_records(tmp_path: Path) -> None:
    frozen = tallystick.freeze(DATA, tmp_path / "data", hold_out=0.2, progress=False)
    job = captured().save_job(
        tmp_path / "job", frozen, steps=8, validation=frozen.validation, evaluate_every=4,
        stop_rule=tallystick.StopRule(),
    )  # fmt: skip
    roots = [data.root for data in job.commitment.timetable.data]
    assert frozen.validation is not None
    assert roots == [frozen.root, frozen.validation.root]
    summary = tallystick.train(job, tmp_path / "run", progress=False)
    assert summary.finished
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


def test_no_job_is_made_of_altered_records(tmp_path: Path) -> None:
    frozen = tallystick.freeze(DATA, tmp_path / "data", progress=False)
    frozen.file.chmod(0o644)
    whole = bytearray(frozen.file.read_bytes())
    whole[-1] ^= 1
    frozen.file.write_bytes(whole)
    with pytest.raises(DigestMismatchError, match="was altered"):
        captured().save_job(tmp_path / "job", frozen, steps=3)
    with pytest.raises(UsageError, match="not a frozen data set"):
        captured().save_job(tmp_path / "job", tmp_path, steps=3)


def test_records_altered_in_a_job_are_found_without_being_mapped(tmp_path: Path) -> None:
    frozen = tallystick.freeze(DATA, tmp_path / "data", progress=False)
    job = captured().save_job(tmp_path / "job", frozen, steps=3)
    path = tmp_path / "job" / "data" / "train.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(DigestMismatchError):
        job.verify_data()
    path.write_bytes(data[:-8])
    with pytest.raises(CorruptFileError):
        job.verify_data()
    frozen.verify()


def test_a_writable_file_is_never_shared(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    share_or_copy(tmp_path / "a", tmp_path / "b")
    assert not os.path.samefile(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").chmod(0o444)
    share_or_copy(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == b"content"
    assert (tmp_path / "c").stat().st_mode & 0o222 == 0
    os.symlink(tmp_path / "a", tmp_path / "link")
    with pytest.raises(CorruptFileError):
        share_or_copy(tmp_path / "link", tmp_path / "d", tmp_path)


def test_recipes_take_a_frozen_set(tmp_path: Path) -> None:
    tallystick.freeze(DATA, tmp_path / "data", hold_out=0.2, progress=False)
    sources = Sources(data=tmp_path / "data")
    job = new_job("mlp", tmp_path / "job", {"classes": "3", "batch_size": "4"}, sources, steps=3)
    assert job.evaluation is not None and job.evaluation.record_count == 14
    assert "program" in verify_job(job)
    with pytest.raises(UsageError, match="Add --set classes=3"):
        new_job("mlp", tmp_path / "two", {"classes": "2"}, sources, steps=3)
    with pytest.raises(UsageError, match=r"have the fields x f32\[6\], y i64\[\]"):
        new_job("resnet50", tmp_path / "three", {}, sources, steps=3)
    with pytest.raises(UsageError, match=r"needs tokens i64 of 1 axes"):
        new_job("gpt2", tmp_path / "four", {}, sources, steps=3)
    negative = {"x": DATA["x"], "y": DATA["y"] - 1}
    tallystick.freeze(negative, tmp_path / "negative", progress=False)
    with pytest.raises(UsageError, match="contains a negative y"):
        new_job("mlp", tmp_path / "five", {}, Sources(data=tmp_path / "negative"), steps=3)


def test_gpt2_and_resnet50_on_frozen_records(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(32, 127)) * 30)
    tallystick.freeze(tmp_path / "a.txt", tmp_path / "t", block=8, hold_out=0.1, progress=False)
    small = {"size": "small", "n_layer": "1", "batch_size": "2"}
    sources = Sources(data=tmp_path / "t")
    job = new_job("gpt2", tmp_path / "gpt2", {**small, "block_size": "8"}, sources, steps=2)
    assert tallystick.train(job, tmp_path / "run", progress=False).finished
    with pytest.raises(UsageError, match="Add --set block_size=8"):
        new_job("gpt2", tmp_path / "no", small, sources, steps=2)
    images = {"x": np.zeros((40, 3, 8, 8), np.float32), "y": np.arange(40) % 4}
    tallystick.freeze(images, tmp_path / "i", progress=False)
    job = new_job(
        "resnet50", tmp_path / "r", {"size": "tiny"}, Sources(data=tmp_path / "i"), steps=1
    )
    assert job.evaluation is None


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "d.npz", x=DATA["x"].astype(np.float64), y=DATA["y"])
    source, out = str(tmp_path / "d.npz"), str(tmp_path / "data")
    assert command(["data", "freeze", source, "--out", out]) == 3
    assert "not narrowed silently" in capsys.readouterr().err
    arguments = ["data", "freeze", source, "--out", out, "--dtype", "f32", "--hold-out", "1/10"]
    assert command(arguments) == 0
    assert "records     63 of 32 bytes" in capsys.readouterr().out
    assert command([*arguments, "--json"]) == 3
    assert "already contains" in json.loads(capsys.readouterr().out)["error"]
    assert command(["data", "inspect", out, "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["records"] == 63 and found["validation"]["records"] == 7 and found["verified"]
    assert found["ranges"] == {"y": [0, 2]} and found["rules"]["dtype"] == {"x": "float64 to f32"}
    assert command(["data", "inspect", out]) == 0
    assert "range       y 0 to 2" in capsys.readouterr().out
    job = ["job", "new", "logreg", "--data", out, "--out", str(tmp_path / "job"), "--steps", "2"]
    assert command([*job, "--set", "classes=3", "--set", "batch_size=4"]) == 0
    assert "frozen data data" in capsys.readouterr().out
    path = tmp_path / "data" / "records.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    assert command(["data", "inspect", out, "--verify"]) == 1
    for bad in (
        ["--pad", "x"], ["--pad", "x=3.5"], ["--hold-out", "half"], ["--size", "axb"],
        ["--mask"], ["--dtype", "f32", "--dtype", "x=f32"], ["--size", "1x2x3"],
    ):  # fmt: skip
        assert command(["data", "freeze", source, "--out", str(tmp_path / "n"), *bad]) == 3, bad


def test_what_says_nothing_about_frozen_records_is_refused(tmp_path: Path) -> None:
    columns = {"x": np.zeros((40, 3), np.float32), "y": np.arange(40) % 2}
    tallystick.freeze(columns, tmp_path / "set")
    pairs, sources = {"classes": "2", "batch_size": "4"}, Sources(data=tmp_path / "set")

    def refused(named: str, settings: dict[str, str], **given: Any) -> None:
        with pytest.raises(UsageError, match=named):
            new_job("logreg", tmp_path / "job", {**pairs, **settings}, sources, steps=2, **given)

    refused("validation has no effect", {"validation": "0.2"})
    refused("has none", {}, evaluate_every=2)
    new_job("logreg", tmp_path / "job", pairs, sources, steps=2, evaluate_every=0)


def test_a_field_without_a_range(tmp_path: Path) -> None:
    columns = {"x": np.zeros((40, 3), np.float32), "y": np.arange(40) % 2}
    made = tallystick.freeze(columns, tmp_path / "set")
    (tmp_path / "set" / "data.json").write_bytes(
        manifest_bytes(replace(made, ranges={}).manifest())
    )
    with pytest.raises(CorruptFileError, match="no range for the field y"):
        new_job("logreg", tmp_path / "job", {"classes": "2"}, Sources(data=tmp_path / "set"))


def test_fields_and_sizes_that_would_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "text.txt").write_text("one tally stick")
    with pytest.raises(UsageError, match="fields= says nothing about images"):
        tallystick.freeze(tmp_path / "images", tmp_path / "a", fields=["x"])
    with pytest.raises(UsageError, match="one field of tokens"):
        tallystick.freeze(tmp_path / "text.txt", tmp_path / "b", block=4, fields=["a", "b"])
    arguments = ["data", "freeze", str(tmp_path / "images"), "--out", str(tmp_path / "c")]
    assert command([*arguments, "--size", "8x8x3"]) == 3
