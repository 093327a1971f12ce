"""Threads of another library that flush or round otherwise: refused (exit 2), before a node runs
and before a prover signs anything (NUMERICS 1.7, PROTOCOL P2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from environment_shim import preloaded, shim_path

from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.inspect import inspect_run

SETTINGS = {"features": "6", "classes": "3", "records": "64", "hidden": "8", "batch_size": "8"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Four steps whose products numpy's BLAS computes."""
    path = tmp_path_factory.mktemp("rounded") / "job"
    return new_job(
        "mlp", path, SETTINGS, steps=4, checkpoint_interval=2, evaluate_every=0,
        contract="rounded/1",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run of it."""
    shim_path()  # skips, with its reason, where it cannot be made
    out = tmp_path_factory.mktemp("rounded-run") / "run"
    train_job(job, out, Options(ExecutionContext(2)))
    return out


# numpy's threads get the environment of the thread that loads it: here the stranger's.
_NUMPY_FIRST = "import sys, numpy; from tallystick.cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.mark.parametrize("mode", ["flush", pytest.param("upward", marks=pytest.mark.long)])
def test_train_and_audit_refuse_and_one_thread_helps(
    job: Job, run: Path, mode: str, tmp_path: Path
) -> None:
    for command in (
        ["train", str(job.directory), "--out", str(tmp_path / "x")],
        ["audit", str(run)],
    ):
        refused = preloaded(["-c", _NUMPY_FIRST, *command, "--threads", "2"], mode)
        assert refused.returncode == 2
        assert "Threads of numpy (its BLAS)" in refused.stderr
    out = tmp_path / "alone"
    arguments = ["train", str(job.directory), "--out", str(out), "--threads", "1"]
    assert preloaded(["-c", _NUMPY_FIRST, *arguments], mode).returncode == 0
    assert inspect_run(out)["run_root"] == inspect_run(run)["run_root"]


@pytest.mark.parametrize("mode", ["flush", "upward"])
def test_the_command_line_loads_numpy_within_the_bracket(
    job: Job, run: Path, mode: str, tmp_path: Path
) -> None:
    """So its threads are sound, whatever was preloaded, and the run is the honest one."""
    out = tmp_path / "run"
    arguments = ["train", str(job.directory), "--out", str(out), "--threads", "2"]
    assert preloaded(["-m", "tallystick", *arguments], mode).returncode == 0
    assert inspect_run(out)["run_root"] == inspect_run(run)["run_root"]


_PROVER = """
import sys
from pathlib import Path
from tallystick.errors import EnvironmentRefusedError
from tallystick.devices.context import ExecutionContext
from tallystick.prover.prover import Prover
from tallystick.protocol.queries import States, encode_query
for threads in (2, 1):
    with Prover(Path(sys.argv[1]), context=ExecutionContext(threads)) as prover:
        try:
            print(prover.answer(encode_query(States((1,)))).hex())
        except EnvironmentRefusedError as error:
            print("refused:", error)
"""


def test_a_prover_signs_nothing_there(run: Path, tmp_path: Path) -> None:
    """It used to be a node's fault, which the prover signs as *unable* (2.8)."""
    script = tmp_path / "prover.py"
    script.write_text(_PROVER)
    clean = preloaded([str(script), str(run)], "default")
    first, second = clean.stdout.splitlines()
    assert first == second, clean.stderr
    disturbed = preloaded([str(script), str(run)], "flush")
    refused, answer = disturbed.stdout.splitlines()
    assert refused.startswith("refused: Threads of numpy (its BLAS) flush") and answer == first
