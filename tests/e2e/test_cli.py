"""The command line end to end: outcomes, exit codes, JSON keys, one clear sentence (DESIGN 9)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Run, as_json

from tallystick import _core
from tallystick.job.job import Job
from tallystick.run.execute.trainer import RunSummary

Copy = Callable[[Path], Path]


@pytest.mark.parametrize("name", ["logreg", "mlp", "gpt2"])
def test_a_job_from_each_recipe_trains_and_is_accepted(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, ts: Run
) -> None:
    job: Job = request.getfixturevalue(f"{name}_job")
    out = tmp_path / "run"
    result = as_json(ts("train", job.directory, "--out", out, "--quiet", "--json"))
    assert result["finished"] is True
    assert result["steps"] == job.steps
    assert result["job_digest"] == job.digest.hex()
    report = as_json(ts("audit", out, "--job", job.directory, "--quiet", "--json"))
    assert report["accepted"] is True
    assert report["run_root"] == result["run_root"]
    assert report["losses_compared"] == job.steps
    again = as_json(ts("train", job.directory, "--out", out, "--quiet", "--json"))
    assert again["run_root"] == result["run_root"]
    assert ts("fsck", out)[0] == 0
    verified = as_json(ts("job", "verify", job.directory, "--json"))
    assert "program" in verified["compared"]
    assert "initial state" in verified["compared"]


def test_inspect_json_has_the_documented_keys(mlp_run: RunSummary, ts: Run) -> None:
    found = as_json(ts("inspect", mlp_run.directory, "--json"))
    keys = {
        *("job_digest", "contract", "steps", "checkpoints", "run_root", "final_state_root"),
        *("loss", "log_bytes", "isa", "threads"),
    }
    assert keys <= set(found)
    assert found["contract"] == "ordered/1-draft.1"
    assert [c["step"] for c in found["checkpoints"]] == [0, 5, 10, 12]
    assert found["run_root"] == mlp_run.run_root.hex()
    assert found["loss"] == list(mlp_run.losses)
    assert found["log_bytes"] == 0
    assert found["damage"] is None


def test_inspect_says_that_a_signed_run_has_a_torn_journal(
    mlp_run: RunSummary, tmp_path: Path, ts: Run
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(mlp_run.directory, copy)
    with open(copy / "journal", "r+b") as journal:
        journal.truncate(journal.seek(0, 2) - 5)
    code, out, err = ts("inspect", copy, "--json")
    assert code == 2
    assert "cut off" in json.loads(out)["damage"]
    assert "damaged" in err


@pytest.mark.sample(3)
@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("threads", [1, 2])
def test_instruction_set_and_threads_change_no_bit(
    isa: str, threads: int, gpt2_job: Job, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "tallystick", "train", str(gpt2_job.directory)),
        *("--out", str(out), "--threads", str(threads), "--quiet", "--json"),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "TALLYSTICK_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert (result["isa"], result["threads"]) == (isa, threads)
    from tallystick.api import audit

    assert audit(out).accepted
    assert result["run_root"] == _reference_root(gpt2_job, tmp_path)


def _reference_root(job: Job, tmp_path: Path) -> str:
    from tallystick.api import train

    return train(job, tmp_path / "here").run_root.hex()


def test_an_unsupported_instruction_set_cannot_check(gpt2_job: Job, tmp_path: Path) -> None:
    done = subprocess.run(
        [*(sys.executable, "-m", "tallystick", "train"), str(gpt2_job.directory), "--out", "run"],
        env={**os.environ, "TALLYSTICK_ISA": "avx9000"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "avx9000" in done.stderr
    assert "scalar" in done.stderr
    assert not (tmp_path / "run").exists()


def test_training_and_auditing_import_no_torch(mlp_job: Job, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tallystick.cli.main import run\n"
        f"assert run(['train', {str(mlp_job.directory)!r}, '--out', 'r', '--quiet']) == 0\n"
        "assert run(['audit', 'r', '--quiet']) == 0\n"
        "assert run(['inspect', 'r']) == run(['fsck', 'r']) == run(['doctor']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_segment_starts_at_a_stored_checkpoint(mlp_run: RunSummary, ts: Run) -> None:
    report = as_json(ts("audit", mlp_run.directory, "--steps", "6:10", "--quiet", "--json"))
    assert report["accepted"] is True
    assert report["steps"] == [5, 10]
    assert report["losses_compared"] == 5
    assert report["whole"] is False


@pytest.mark.parametrize("steps", ["10:5", "x", "0:99", "3"])
def test_bad_segments_are_wrong_usage(steps: str, mlp_run: RunSummary, ts: Run) -> None:
    code, _, err = ts("audit", mlp_run.directory, "--steps", steps, "--quiet")
    assert code == 3
    assert err.startswith("tallystick: ")


def test_a_mismatch_exits_1_and_names_the_interval(
    mlp_run: RunSummary, mlp_job: Job, copied: Copy, ts: Run
) -> None:
    run_copy = copied(mlp_run.directory)
    path = run_copy / "checkpoints" / "step-00000010.safetensors"
    data = bytearray(path.read_bytes())
    data[-33] ^= 1
    path.write_bytes(data)
    report = as_json(ts("audit", run_copy, "--quiet", "--json"), code=1)
    assert report["accepted"] is False
    assert report["difference"]["interval"] == [10, 10]
    code, out, _ = ts("audit", run_copy, "--job", mlp_job.directory, "--quiet")
    assert code == 1
    assert "MISMATCH" in out
    code, out, _ = ts("fsck", run_copy)
    assert code == 1
    assert "step-00000010" in out


def test_trust_and_keys(mlp_job: Job, tmp_path: Path, ts: Run) -> None:
    mine, other, out = tmp_path / "mine.pem", tmp_path / "other.pem", tmp_path / "run"
    made = as_json(ts("keys", "new", mine, "--json"))
    assert oct(mine.stat().st_mode & 0o777) == "0o600"
    assert ts("keys", "new", mine)[0] == 2  # never overwritten
    assert ts("keys", "new", other)[0] == 0
    shown = as_json(ts("keys", "show", f"{mine}.pub", "--json"))
    assert shown["key_id"] == made["key_id"]
    trained = as_json(
        ts("train", mlp_job.directory, "--out", out, "--key", mine, "--quiet", "--json")
    )
    assert trained["signer"] == made["key_id"]
    report = as_json(ts("audit", out, "--trust", f"{mine}.pub", "--quiet", "--json"))
    assert report["trusted"] is True
    code, _, err = ts("audit", out, "--trust", f"{other}.pub", "--quiet")
    assert code == 1
    assert "--trust" in err
    code, out_text, _ = ts("audit", out, "--quiet")
    assert "unknown to you" in out_text


def test_export_verify_sample_evaluate(gpt2_job: Job, tmp_path: Path, ts: Run) -> None:
    out, model = tmp_path / "run", tmp_path / "model.safetensors"
    assert ts("train", gpt2_job.directory, "--out", out, "--quiet")[0] == 0
    exported = as_json(ts("export", out, "-o", model, "--json"))
    verified = as_json(ts("verify-model", model, out, "--json"))
    assert exported["run_root"] == verified["run_root"]
    sampled = as_json(ts("sample", out, "--prompt", "the ", "--length", "12", "--greedy", "--json"))
    again = as_json(ts("sample", out, "--prompt", "the ", "--length", "12", "--greedy", "--json"))
    assert sampled == again
    assert len(sampled["text"].encode()) >= 12
    assert sampled["texts"] == [sampled["text"]]
    few = ("--length", "4", "--json")
    both = as_json(ts("sample", out, *few, "--count", "2", "--seed", "7"))["texts"]
    assert both == [
        as_json(ts("sample", out, *few, "--seed", str(seed)))["text"] for seed in (7, 8)
    ]
    narrow = as_json(
        ts("sample", out, "--prompt", "the ", "--length", "12", "--top-k", "1", "--json")
    )
    assert narrow["text"] == sampled["text"]
    assert ts("sample", out, "--best")[0] == 3  # the run commits to no validation
    code, text, _ = ts("sample", out, "--prompt", "the ", "--length", "5", "--seed", "3")
    assert code == 0
    assert text.startswith("the ")
    loss = as_json(ts("evaluate", out, "--json"))
    trained = as_json(ts("inspect", out, "--json"))["validation"][-1]
    assert trained == {"step": loss["step"], "loss": loss["validation_loss"]}


def test_a_non_finite_loss_is_a_committed_end(tmp_path: Path, ts: Run) -> None:
    job, out = tmp_path / "job", tmp_path / "run"
    made = ts(
        *("job", "new", "logreg", "--out", job, "--steps", "50", "--checkpoint-interval", "7"),
        *("--set", "lr=1e38", "--set", "weight_decay=1e30"),
    )
    assert made[0] == 0, made
    result = as_json(ts("train", job, "--out", out, "--quiet", "--json"))
    assert result["finished"] is True
    assert result["reason"] == "non-finite loss"
    assert result["steps"] < 50
    assert result["final_loss"] in ("nan", "inf", "-inf")
    assert result["checkpoints"][-1]["step"] == result["steps"]
    report = as_json(ts("audit", out, "--quiet", "--json"))
    assert report["accepted"] is True
    assert ts("fsck", out)[0] == 0
    assert as_json(ts("inspect", out, "--json"))["loss"][-1] == result["final_loss"]


def test_own_data_and_cifar10(tmp_path: Path, ts: Run) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(60, 3, 2)), y=np.arange(60) % 4)
    made = as_json(
        ts(
            *("job", "new", "mlp", "--out", tmp_path / "j", "--data", tmp_path / "d.npz"),
            *("--set", "classes=4", "--set", "batch_size=8", "--steps", "4", "--json"),
        )
    )
    assert made["records"] == 52
    (tmp_path / "cifar").mkdir()
    raw = rng.integers(0, 256, (80, 3073), dtype=np.uint8)
    raw[:, 0] %= 10
    (tmp_path / "cifar" / "data_batch_1.bin").write_bytes(raw.tobytes())
    made = as_json(
        ts(
            *("job", "new", "logreg", "--out", tmp_path / "c", "--cifar10", tmp_path / "cifar"),
            *("--set", "batch_size=4", "--steps", "3", "--json"),
        )
    )
    assert made["records"] == 72
    assert ts("train", tmp_path / "c", "--out", tmp_path / "r", "--quiet")[0] == 0
    tiny = ("--set", "size=tiny", "--set", "classes=10", "--steps", "2")
    made = as_json(
        ts(
            *("job", "new", "resnet50", "--out", tmp_path / "i", "--cifar10", tmp_path / "cifar"),
            *tiny,
            "--json",
        )
    )
    assert made["records"] == 72
    assert ts("train", tmp_path / "i", "--out", tmp_path / "ir", "--quiet")[0] == 0
    code, _, err = ts(
        *("job", "new", "resnet50", "--out", tmp_path / "k", "--data", tmp_path / "d.npz"), *tiny
    )
    assert code == 3 and "square image" in err
    code, _, err = ts("job", "new", "resnet50", "--out", tmp_path / "k", "--set", "blocks=3-x")
    assert code == 3 and "blocks=3-4-6-3" in err


def test_doctor(ts: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = as_json(ts("doctor", "--json"))
    assert found["ok"] is True
    assert found["isa"] in found["supported_isas"]
    assert found["fp_environment_ok"] is True
    monkeypatch.setenv("TALLYSTICK_ISA", "avx9000")
    assert ts("doctor")[0] == 2


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = "import sys; from tallystick.cli.main import run; run(['--help']); "
    code += "sys.exit(any(m in sys.modules for m in ('numpy', 'tallystick.cli.train')))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0 and b"Train JOB" in done.stdout


def test_version_and_help(ts: Run) -> None:
    code, out, _ = ts("--help")
    assert code == 0
    for name in ("train", "audit", "inspect", "fsck", "export", "verify-model", "doctor", "keys"):
        assert name in out
    assert "sample" in ts("sample", "--help")[1]
