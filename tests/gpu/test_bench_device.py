"""`tallystick bench NAME --device cuda`, over the emulated CUDA driver (host clock)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
pytest.importorskip("torch", reason="a step is captured")

from emulated_command import command
from emulated_gpu import emulated_gpu

from tallystick.cli.main import run
from tallystick.errors import UsageError
from tallystick_bench import device_gemm, device_step, device_time
from tallystick_bench.gemm import Shape, shape_of

OWN = """
import torch
from tallystick.program.optimizers import SGD
from tallystick_bench.step_models import Net

def loss(module, batch):
    return module(batch["x"]).square().mean()

def mine():
    return Net(torch.nn.Linear(4, 2), loss, {"x": torch.ones(3, 4)}, SGD(0.1, momentum=0.5))
"""


def test_products_on_the_device() -> None:
    names = ["20x30x10", "17x9x33-tn", "3x8x8x8-nt"]
    shapes = [word for name in names for word in ("--shape", name)]
    found = command("bench", "gemm", "--device", "cuda", *shapes)
    rows = found["rows"]
    assert [row["name"] for row in rows] == [f"gemm/{name}/time" for name in names]
    for row in rows:
        assert row["unit"] == "s" and 0 < row["value"] == row["seconds"] < 60
        assert (row["device"], row["isa"], row["gpu"]) == ("cuda:0", "sm_90", "Emulated GPU")
        assert row["contract"] == "ordered/1" and "no GPU here" in row["anchor"]


def test_a_step_on_the_device(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    found = command("bench", "step", "--device", "cuda", "--model", f"{tmp_path}/own.py:mine")
    rows = {row["name"]: row for row in found["rows"]}
    assert set(rows) == {"step/mine/time", "step/mine/memory"}
    assert 0 < rows["step/mine/time"]["value"] < 60
    # Two parameters, two moments and what a step needs.
    assert 4 * 20 < rows["step/mine/memory"]["value"] < 1 << 24


@pytest.mark.parametrize("name", ["dispute", "ovt", "paper"])
def test_a_benchmark_of_the_processor_refuses_a_device(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No driver is asked: in this process."""
    assert run(["bench", name, "--device", "cuda", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert f"bench {name} runs on the CPU only" in found["error"]
    assert "gemm, step" in found["next_action"]


def test_a_gpu_that_is_not_there() -> None:
    found = command("bench", "gemm", "--device", "cuda:7", code=2)
    assert "There is no GPU 7" in found["error"]


@pytest.mark.parametrize(
    ("device", "words"), [("tpu", "not a device"), ("cpu", "without --device")]
)
def test_a_device_that_is_none(device: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No driver is asked: in this process."""
    assert run(["bench", "gemm", "--device", device, "--json"]) == 3
    assert words in json.loads(capsys.readouterr().out)["error"]


def test_names_of_products() -> None:
    for name in ("512x768x3072", "96x64x64x64-nt"):
        assert shape_of(name).name == name
    assert shape_of("3x2x1-tn") == Shape(3, 2, 1, "tn")
    for odd in ("", "3x2", "0x2x2", "3x2x1-nx", "3x2x1x1x1", "3x2x1 "):
        with pytest.raises(UsageError, match="no product"):
            shape_of(odd)


class Torch:
    """torch with a GPU, as far as the benchmarks ask it."""

    float_seconds = 2e-3

    class cuda:  # noqa: N801
        @staticmethod
        def is_available() -> bool:
            return True


def test_the_ratio_is_ours_over_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_gemm, "torch_on_gpu", lambda: Torch)
    monkeypatch.setattr(device_gemm, "their_call", lambda torch, shape: torch.float_seconds)
    shape = Shape(8, 8, 8)
    monkeypatch.setattr(device_gemm, "SQUARES", (shape,))
    found = device_gemm.rows(emulated_gpu(), (shape, Shape(4, 4, 4)), filled=0)
    row = found[0]
    assert row["name"] == "gemm/8x8x8/time_ratio" and row["anchor"] == "torch.mm, TF32 off"
    assert row["value"] == pytest.approx(row["seconds"] / 2e-3)
    assert row["tflops"] == pytest.approx(2e-12 * 8**3 / row["seconds"])
    assert (row["target"], found[1]["target"]) == (1.15, None)


def test_a_sample_is_as_much_work_as_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    class Timer:
        def of(self, work: object, times: int) -> float:
            counts.append(times)
            return 0.004 * times

    monkeypatch.setattr(device_time, "timer_of", lambda device: Timer())
    device = emulated_gpu()
    assert device_time.seconds(device, lambda: None, 5) == pytest.approx(0.004)
    assert counts == [1, *[8] * 5]  # 0.03 s in calls of 0.004 s
    counts.clear()
    assert device_time.call_seconds(device, lambda: None, 3) == 0.004 and counts == [1] * 3


def test_the_defaults_are_models_that_there_are() -> None:
    from tallystick_bench.step import MODELS
    from tallystick_bench.step_models import NETS

    assert set(device_step.DEFAULT_MODELS) <= {*MODELS, *NETS}
