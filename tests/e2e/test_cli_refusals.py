"""Bad input to the command line: one sentence, the next action, the right exit code (DESIGN 9)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Run, as_json

from tallystick.job.job import Job
from tallystick.run.execute.trainer import RunSummary

Copy = Callable[[Path], Path]


def _one_sentence(err: str) -> None:
    lines = err.strip().splitlines()
    assert lines[0].startswith("tallystick: "), err
    assert len(lines) <= 2, err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["train", "nowhere", "--out", "run"], 3),
        (["audit", "nowhere"], 3),
        (["inspect", "nowhere"], 3),
        (["fsck", "nowhere"], 3),
        (["export", "nowhere", "-o", "m"], 3),
        (["job", "new", "transformer-xl", "--out", "j"], 3),
        (["job", "new", "mlp", "--out", "j", "--set", "width=3"], 3),
        (["job", "new", "mlp", "--out", "j", "--set", "hidden=many"], 3),
        (["job", "new", "mlp", "--out", "j", "--set", "hidden"], 3),
        (["job", "new", "mlp", "--out", "j", "--set", "layers=0"], 3),
        (["job", "new", "mlp", "--out", "j", "--steps", "0"], 3),
        (["job", "new", "mlp", "--out", "j", "--text", "x.txt"], 3),
        (["job", "new", "gpt2", "--out", "j", "--set", "size=gigantic"], 3),
        (["job", "new", "gpt2", "--out", "j", "--set", "n_head=3"], 3),
        (["job", "new", "gpt2", "--out", "j", "--text", "nowhere.txt"], 2),
        (["job", "new", "mlp", "--out", "j", "--contract", "ordered/9"], 2),
        (["job", "new", "mlp", "--out", "j", "--cifar10", "nowhere"], 2),
        (["job", "new", "mlp", "--out", "j", "--data", "nowhere.npz"], 2),
        (["keys", "show", "nowhere.pem"], 2),
        (["bench", "nothing"], 3),
    ],
)
def test_wrong_arguments(
    arguments: list[str], code: int, ts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = ts(*arguments)
    assert outcome[0] == code, outcome
    _one_sentence(outcome[2])
    assert not (tmp_path / "j" / "job.json").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["train"], ["no-such-command"], ["audit", "r", "--threads", "0"], ["--bad"]]
)
def test_usage_errors_exit_3(arguments: list[str], ts: Run) -> None:
    assert ts(*arguments)[0] == 3


def test_bad_settings_list_the_good_ones(ts: Run, tmp_path: Path) -> None:
    err = ts("job", "new", "mlp", "--out", tmp_path / "j", "--set", "width=3")[2]
    assert "hidden" in err
    assert "batch_size" in err
    listed = ts("job", "recipes", "gpt2")[1]
    assert "n_layer" in listed
    assert "124m" in listed


def test_errors_as_json(ts: Run) -> None:
    found = as_json(ts("audit", "nowhere", "--json"), code=3)
    assert found["exit_code"] == 3
    assert found["error"]
    assert found["next_action"]


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("job.json", b"tallystick-job/1", b"tallystick-job/2", 1),  # its own digest is another
        ("job.json", b"tallystick-job/1", b"tallystick-job/3", 1),
        ("job.json", b"tallystick-job/1", b"tallystick-job/9", 2),
        ("job.json", b"ordered/1-draft.1", b"ordered/1-draft.9", 1),
        ("job.json", b'"steps":12', b'"steps":13', 1),
        ("program.txt", b"ordered/1-draft.1", b"ordered/1-draft.9", 1),
        ("program.txt", b"0x1", b"0x2", 1),
        ("job.json", b"{", b"", 2),
    ],
)
def test_an_altered_job_is_refused(
    name: str, old: bytes, new: bytes, code: int, mlp_job: Job, copied: Copy, ts: Run
) -> None:
    job = copied(mlp_job.directory)
    path = job / name
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    outcome = ts("train", job, "--out", job.parent / "run", "--quiet")
    assert outcome[0] == code, outcome
    _one_sentence(outcome[2])
    assert not (job.parent / "run" / "journal").exists()


def test_unknown_contract_in_a_well_digested_job(mlp_job: Job, copied: Copy, ts: Run) -> None:
    """A job of a later version is refused by name, though all its digests fit."""
    from tallystick.disk.manifest import DIGEST_KEY, manifest_bytes

    job = copied(mlp_job.directory)
    body = json.loads((job / "job.json").read_text())
    del body[DIGEST_KEY]
    body["commitment"]["contract"] = "exact/1"
    (job / "job.json").write_bytes(manifest_bytes(body))
    code, _, err = ts("train", job, "--out", job.parent / "run", "--quiet")
    assert code == 2
    assert "exact/1" in err


def test_another_job_in_the_same_run_directory(
    mlp_run: RunSummary, logreg_job: Job, copied: Copy, ts: Run
) -> None:
    out = copied(mlp_run.directory)
    code, _, err = ts("train", logreg_job.directory, "--out", out, "--quiet")
    assert code == 3
    assert "another job" in err
    assert ts("fsck", out)[0] == 0


def test_a_directory_with_other_files_is_left_alone(
    logreg_job: Job, tmp_path: Path, ts: Run
) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    code, _, err = ts("train", logreg_job.directory, "--out", tmp_path, "--quiet")
    assert code == 3
    assert "thesis.tex" in err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_unwritable_directory(logreg_job: Job, tmp_path: Path, ts: Run) -> None:
    (tmp_path / "file").write_text("not a directory")
    code, _, err = ts("train", logreg_job.directory, "--out", tmp_path / "file" / "run", "--quiet")
    assert code in (2, 3)
    _one_sentence(err)
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        code, _, err = ts("train", logreg_job.directory, "--out", tmp_path / "locked" / "run")
        assert code == 2
        _one_sentence(err)


def test_too_little_disk(
    logreg_job: Job, tmp_path: Path, ts: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.run.show import estimate

    monkeypatch.setattr(estimate, "free_bytes", lambda path: 1000)
    code, _, err = ts("train", logreg_job.directory, "--out", tmp_path / "run", "--quiet")
    assert code == 2
    assert "free" in err
    assert "--keep-checkpoints" in err


def test_estimate_only(mlp_job: Job, tmp_path: Path, ts: Run) -> None:
    found = as_json(ts("train", mlp_job.directory, "--out", tmp_path / "r", "--estimate", "--json"))
    assert found["steps"] == 12
    assert found["disk_bytes"] > 0
    assert not (tmp_path / "r").exists()
    code, text, _ = ts("train", mlp_job.directory, "--out", tmp_path / "r", "--estimate")
    assert code == 0
    assert "12 steps" in text


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((40, 4), "f4"), np.full(40, 10)),
        (np.zeros((40, 4), "f4"), np.full(40, -1)),
        (np.zeros((40, 4), "f4"), np.zeros(39, "i8")),
        (np.zeros((40, 4), "f4"), np.zeros(40, "f4")),
        (np.zeros((40, 4), "S3"), np.zeros(40, "i8")),
        (np.full((40, 4), np.nan, "f4"), np.zeros(40, "i8")),
        (np.zeros((3, 4), "f4"), np.zeros(3, "i8")),
        (np.zeros((0, 4), "f4"), np.zeros(0, "i8")),
    ],
)
def test_bad_data_files(x: np.ndarray, y: np.ndarray, tmp_path: Path, ts: Run) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=x, y=y)
    outcome = ts("job", "new", "mlp", "--out", tmp_path / "j", "--data", path)
    assert outcome[0] == 3, outcome
    _one_sentence(outcome[2])


def test_pickled_data_is_never_loaded(tmp_path: Path, ts: Run) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.array([{}], dtype=object), y=np.zeros(1, "i8"))
    assert ts("job", "new", "mlp", "--out", tmp_path / "j", "--data", path)[0] == 3


def test_what_is_refused_leaves_no_run(ts: Run, mlp_job: Job, tmp_path: Path) -> None:
    out = tmp_path / "refused"
    for given, words in (
        (["--zstd"], "has no rounding logs"),
        (["--timeout", "5"], "With one worker, there is no other worker to wait for."),
        (["--workers", "1", "--timeout", "5"], "--workers 2 or more"),
    ):
        code, _, err = ts("train", str(mlp_job.directory), "--out", str(out), *given)
        assert code == 3 and words in err, err
        _one_sentence(err)
        assert not out.exists()


def test_an_estimate_for_several_workers_says_what_it_is(ts: Run, tmp_path: Path) -> None:
    job = str(tmp_path / "job")
    made = ["--steps", "4", "--set", "hidden=8", "--set", "micro_batches=2"]
    assert ts("job", "new", "mlp", "--out", job, *made)[0] == 0
    given = ["train", job, "--out", str(tmp_path / "run"), "--estimate"]
    assert "for one worker" not in ts(*given)[2]
    code, _, err = ts(*given, "--workers", "2")
    assert code == 0 and "for one worker. 2 workers were not estimated" in err
