"""`bench step` measures what it says, on a model small enough for the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tallystick.errors import UsageError
from tallystick.job.recipes.gpt2 import Gpt2Settings
from tallystick_bench import step, step_time

SETTINGS = Gpt2Settings(
    n_layer=1, n_head=1, n_embd=16, block_size=8, batch_size=2, schedule="constant", warmup=0
)
MODEL = step.Model("gpt2-tiny", SETTINGS)
STEPS = 6


def test_rows_of_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(step.MODELS, MODEL.name, MODEL)
    monkeypatch.setattr(step, "SAMPLED", 3)
    found = step.rows(1, 3, (MODEL.name,), commit_steps=STEPS, compiled=False)
    rows = {row["name"]: row for row in found}
    time = rows["step/gpt2-tiny/time_ratio"]
    assert time["value"] == pytest.approx(time["seconds"] / time["anchor_seconds"])
    assert set(time["anchor_variants"]) == {"fused", "foreach", "for-loop"}
    memory = rows["step/gpt2-tiny/memory_ratio"]
    assert memory["value"] == pytest.approx(memory["bytes"] / memory["anchor_bytes"])
    # torch alone is larger than the interpreter with our core; were it loaded on our side too,
    # the two processes would be alike.
    assert memory["bytes"] < 0.7 * memory["anchor_bytes"]
    commit = rows["commit/gpt2-tiny/overhead_ratio"]
    assert commit["value"] > 1
    assert (commit["steps"], commit["hashed"], commit["stored_at_end"]) == (STEPS, 2, 1)
    assert (commit["interval"], commit["interval_of_run"]) == (20, 3)
    assert len(commit["waited"]) == 1 and len(commit["thread_seconds"]) == 2
    assert commit["accounted"] > 1


def test_an_unknown_model_or_part_is_refused() -> None:
    with pytest.raises(UsageError, match="no model 'gpt5'"):
        step.rows(models=("gpt5",))
    with pytest.raises(UsageError, match="no 'space'"):
        step.rows(parts=("space",))


OWN = """
import torch
from tallystick.program.optimizers import SGD
from tallystick_bench.step_models import Net

def loss(module, batch):
    return module(batch["x"]).square().mean()

def mine():
    return Net(torch.nn.Linear(4, 2), loss, {"x": torch.ones(3, 4)}, SGD(0.1, momentum=0.5), 7.0)

def nothing():
    return 1
"""


def test_a_models_own_file_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    found = step.rows(1, 2, (f"{file}:mine",), compiled=False)
    rows = {row["name"]: row for row in found}
    kinds = {"time_ratio", "memory_ratio", "net_memory_ratio"}
    assert {name.split("/")[-1] for name in rows} == kinds
    time = rows["step/mine/time_ratio"]
    assert time["target"] == 7.0 and time["faster"] == "eager"
    assert time["value"] == pytest.approx(time["ratios"]["eager"])
    assert rows["step/mine/memory_ratio"]["value"] < 0.7
    for name, message in (("nothing", "gives int"), ("absent", "defines no 'absent'")):
        with pytest.raises(UsageError, match=message):
            step.rows(models=(f"{file}:{name}",))
    with pytest.raises(UsageError, match="no file"):
        step.rows(models=(f"{tmp_path}/none.py:mine",))


class Uncompiled:
    """A step that torch.compile cannot take."""

    VARIANTS = ("fused",)

    def use(self, variant: str) -> None: ...

    def compile(self, on: bool) -> None:
        self.on = on

    def __call__(self) -> None:
        if self.on:
            raise RuntimeError("no compiler here")

    on = False


def test_the_row_says_why_torch_compile_failed() -> None:
    row = step_time.time_rows("m", 1.0, lambda: None, Uncompiled(), 1, 2)[0]
    assert "no compiler here" in row["compile_failure"] and set(row["ratios"]) == {"eager"}
