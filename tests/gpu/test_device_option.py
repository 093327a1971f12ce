"""`--device cuda`, over a CUDA driver library that runs the kernels in the emulation (libcuda.cpp).

NVIDIA's own bindings call that library, so `devices/cuda/nvidia.py` runs as on a GPU; only its
compiler is left out, since the emulation brings its own code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from emulated_command import command, command_of_its_own
from emulated_gpu import built

from tallystick.job.job import Job
from tallystick.run.execute.trainer import RunSummary


def test_a_run_on_the_device_is_the_run_on_the_processor(
    gpt2_job: Job, jobs: Path, tmp_path: Path
) -> None:
    """Train, audit and dispute with --device cuda: the same roots, and no party convicted."""
    there = command("train", jobs / "gpt2", "--out", tmp_path / "there", "--device", "cuda")
    here = command("train", jobs / "gpt2", "--out", tmp_path / "here")
    assert there["run_root"] == here["run_root"]
    assert there["isa"] == "sm_90" and here["isa"] != "sm_90"
    audited = command_of_its_own("audit", tmp_path / "here", "--device", "cuda:0")
    assert audited["accepted"] and audited["isa"] == "sm_90"
    assert command("audit", tmp_path / "there")["accepted"]


def test_a_cheat_is_convicted_by_parties_on_the_device(
    mlp_job: Job, mlp_run: RunSummary, jobs: Path, tmp_path: Path
) -> None:
    cheat = tmp_path / "cheat"
    command("attack", "lie-output", jobs / "mlp", "--out", cheat)
    found = command(
        "dispute", mlp_run.directory, cheat, "--job", jobs / "mlp", "--out", tmp_path / "evidence",
        "--as-attack", "B", "--device", "cuda", code=1,
    )  # fmt: skip
    assert [c["party"] for c in found["convicted"]] == ["B"]
    judged = command("judge", tmp_path / "evidence", "--job", jobs / "mlp", code=1)
    assert [c["party"] for c in judged["convicted"]] == ["B"]


@pytest.mark.parametrize(
    ("settings", "device", "words"),
    [
        ({"capability": 75}, "cuda", "compute capability 7.5"),
        ({}, "cuda:3", "There is no GPU 3"),
        ({"bytes": 4096}, "cuda", "no memory left"),
    ],
)
def test_a_gpu_that_does_not_do_is_refused_in_a_sentence(
    settings: dict[str, int], device: str, words: str, mlp_job: Job, jobs: Path, tmp_path: Path
) -> None:
    """Exit code 2, and nothing is lost: the same command goes on elsewhere."""
    out = tmp_path / "run"
    found = command("train", jobs / "mlp", "--out", out, "--device", device, code=2, **settings)
    assert words in found["error"], found
    assert found["next_action"]
    assert command("train", jobs / "mlp", "--out", out)["finished"]


@pytest.mark.parametrize("launches", [1, 400])
def test_a_gpu_that_this_process_has_lost_says_to_start_again(
    launches: int, mlp_job: Job, mlp_run: RunSummary, jobs: Path, tmp_path: Path
) -> None:
    """In the probe and on the way. Nothing committed is lost: a new process goes on."""
    out = tmp_path / "run"
    where = "--out", out, "--device", "cuda"
    found = command("train", jobs / "mlp", *where, code=2, launches=launches)
    assert found["kind"] == "DeviceLostError" and "CUDA_ERROR_ILLEGAL_ADDRESS" in found["error"]
    assert "new process" in found["next_action"]
    # Of 12 steps, the first 5 are committed.
    assert (out / "checkpoints" / "step-00000005.safetensors").exists() == (launches > 1)
    done = command("train", jobs / "mlp", *where)
    assert done["finished"] and done["run_root"] == mlp_run.run_root.hex()


_TWICE = """
import numpy as np
import tallystick.devices.cuda.nvidia as nvidia
nvidia.compiled = lambda name, architecture: b"code"
nvidia.compiler_version = lambda: (13, 0)
from tallystick.errors import DeviceLostError
from tallystick.devices.cuda.device import Cuda
driver = nvidia.NvidiaDriver()
device = Cuda(driver)
tensor = device.contiguous("f32", (8,))
said = []
for work in (
    lambda: device.digest(tensor),
    lambda: device.host(tensor),
    lambda: device.contiguous("f32", (8,)),
    lambda: driver.record(lambda: None),
    lambda: driver.launch("copy_none", (1, 1, 1), 32, b""),
):
    try:
        work()
    except DeviceLostError as error:
        said.append(str(error))
assert len(said) == 5 and len(set(said)) == 1, said
assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said[0] and "a new process" in said[0], said
"""


def test_every_later_call_says_what_ended_the_context() -> None:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(built().parent),
        "TALLYSTICK_EMULATED_GPU_LAUNCHES": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", _TWICE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_doctor_says_what_the_gpu_is() -> None:
    said = command("doctor")["gpu"]
    assert "sm_90" in said and "bits of ordered/1" in said
    # The emulated driver library has no cuBLAS beside it.
    assert "by its own kernels: no cuBLAS was found" in said


def test_exact_runs_on_the_device(tmp_path: Path) -> None:
    """A job of exact/1, trained there, and audited here and there."""
    from e2e.golden import golden_job

    job = golden_job("logreg", tmp_path, "exact/1;b=15", steps=6)
    there = command("train", job.directory, "--out", tmp_path / "there", "--device", "cuda")
    here = command("train", job.directory, "--out", tmp_path / "here")
    assert there["run_root"] == here["run_root"] and there["isa"] == "sm_90"
    assert command("audit", tmp_path / "here", "--device", "cuda")["accepted"]
    assert command("audit", tmp_path / "there")["accepted"]
