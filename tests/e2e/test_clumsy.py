"""Clumsy hands at the command line and at the Python entry: a sentence, the exit code, no loss."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick
from tallystick.cli.main import run
from tallystick.errors import EnvironmentRefusedError, UsageError


def ts(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(a) for a in arguments])
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clumsy") / "job"
    code, _, err = ts(
        *("job", "new", "logreg", "--out", path, "--steps", "12", "--checkpoint-interval", "5"),
        *("--set", "records=64", "--set", "batch_size=8", "--evaluate-every", "0"),
    )
    assert code == 0, err
    return path


def test_version_works_from_a_checkout() -> None:
    code, out, _ = ts("--version")
    assert code == 0
    assert out.startswith("tallystick, version ")


def test_wrong_usage_is_json_too() -> None:
    code, out, _ = ts("train", "x", "--json", "--bad")
    found = json.loads(out)
    assert (code, found["exit_code"]) == (3, 3)
    assert "--bad" in found["error"]
    assert "tallystick train --help" in found["next_action"]


def test_help_of_job_new_lists_the_settings() -> None:
    code, out, _ = ts("job", "new", "gpt2", "--help")
    assert code == 0
    assert "n_layer" in out
    assert "124m" in out
    assert "activation" not in out
    assert "activation" in ts("job", "new", "--help")[1]


def test_an_unknown_recipe_has_no_settings() -> None:
    assert ts("job", "recipes", "transformer-xl")[0] == 3


def test_two_sources_of_data(tmp_path: Path) -> None:
    code, _, err = ts(
        *("job", "new", "mlp", "--out", tmp_path / "j"),
        *("--data", tmp_path / "d.npz", "--cifar10", tmp_path),
    )
    assert code == 3
    assert "--cifar10 and --data" in err


def test_a_truncated_archive_of_data(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.zeros((40, 4), "f4"), y=np.zeros(40, "i8"))
    path.write_bytes(path.read_bytes()[:300])
    assert ts("job", "new", "mlp", "--out", tmp_path / "j", "--data", path)[0] == 3


@pytest.mark.parametrize("steps", ["10:13", "500:510"])
def test_a_trace_outside_the_job(steps: str, job: Path, tmp_path: Path) -> None:
    code, _, err = ts("train", job, "--out", tmp_path / "r", "--trace", steps, "--quiet")
    assert code == 3
    assert "12 steps" in err
    assert not (tmp_path / "r").exists()


def test_a_segment_counts_to_its_own_end(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert ts("train", job, "--out", out, "--quiet")[0] == 0
    code, text, err = ts("audit", out, "--steps", "0:3")
    assert code == 0, err
    assert "/5 " in err
    assert "1 checkpoint," in text
    (out / "job" / "job.json").unlink()
    code, _, err = ts("audit", out)
    assert code == 2
    assert "--job" in err
    assert ts("audit", out, "--job", job, "--quiet")[0] == 0


def test_the_demo_deletes_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.json").write_text("{}")
    (tmp_path / "thesis.tex").write_text("precious")
    code, _, err = ts("demo", "--out", tmp_path)
    assert code == 3
    assert "thesis.tex" in err
    assert (tmp_path / "thesis.tex").read_text() == "precious"
    assert (tmp_path / "job" / "job.json").exists()


@pytest.mark.parametrize(
    "arguments", [["demo", "--out", "d"], ["bench", "gemm"], ["job", "new", "mlp", "--out", "j"]]
)
def test_no_command_computes_on_an_unknown_instruction_set(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_ISA", "avx9000")
    monkeypatch.chdir(tmp_path)
    code, _, err = ts(*arguments)
    assert code == 2
    assert "avx9000" in err
    assert os.listdir() == []


def test_python_entries_refuse_an_unknown_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_ISA", "avx9000")
    with pytest.raises(EnvironmentRefusedError, match="avx9000"):
        tallystick.evaluate("aten.exp", np.ones(3, "f4"))
    with (
        pytest.raises(EnvironmentRefusedError, match="avx9000"),
        tallystick.reproducible("ordered/1"),
    ):
        pass


def test_capture_names_what_is_wrong_with_its_arguments() -> None:
    import torch

    module = torch.nn.Linear(4, 2)
    batch = {"x": torch.zeros(3, 4)}

    def loss(module: Any, batch: Any) -> Any:
        return module(batch["x"]).sum()

    with pytest.raises(UsageError, match=r"torch\.optim\.adadelta\.Adadelta"):
        tallystick.capture(module, loss, batch, torch.optim.Adadelta(module.parameters()))
    with pytest.raises(UsageError, match="clip_norm"):
        tallystick.capture(module, loss, batch, tallystick.SGD(lr=0.1), clip_norm=-1.0)
    with pytest.raises(UsageError, match="has no 'z'"):
        tallystick.capture(module, lambda m, b: b["z"].sum(), batch, tallystick.SGD(lr=0.1))


def test_without_torch_the_python_entry_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import numpy as np, tallystick\n"
        "calls = {'capture': (None, None, {}, None), 'reproducible': ()}\n"
        "assert tallystick.evaluate('aten.neg', np.ones(2, 'f4')).tolist() == [-1.0, -1.0]\n"
        "for name, given in calls.items():\n"
        "    try:\n"
        "        getattr(tallystick, name)(*given)\n"
        "    except tallystick.errors.CannotCheckError as error:\n"
        "        assert 'PyTorch' in str(error)\n"
        "    else:\n"
        "        raise SystemExit('no error')\n"
        "from tallystick.cli.main import run\n"
        "assert run(['doctor']) == 0\n"
        "assert run(['bench', 'gemm']) == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_bench_gemm_runs_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick_bench import gemm

    calls: list[int] = []

    def measure(shape: object, repeats: int) -> tuple[float, float]:
        calls.append(repeats)
        return 1.0, 1.0

    monkeypatch.setattr(gemm, "measure_products", measure)
    code, out, _ = ts("bench", "gemm", "--json")
    assert code == 0
    assert json.loads(out)["rows"]
    assert calls


def test_the_estimate_counts_validation(tmp_path: Path) -> None:
    job = tmp_path / "job"
    made = ts(*("job", "new", "mlp", "--out", job, "--steps", "10", "--evaluate-every", "1"))
    assert made[0] == 0
    found = json.loads(ts("train", job, "--out", tmp_path / "r", "--estimate", "--json")[1])
    assert found["evaluation_seconds"] > 0
    assert found["seconds"] > found["evaluation_seconds"]


def test_no_command_is_cut_short_in_the_list() -> None:
    assert "..." not in ts("--help")[1].partition("Commands:")[2]
