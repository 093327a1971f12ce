"""`bench step` measures what it says, on a model small enough for the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tallystick.errors import UsageError
from tallystick.job.recipes.gpt2 import Gpt2Settings
from tallystick_bench import step

SETTINGS = Gpt2Settings(
    n_layer=1, n_head=1, n_embd=16, block_size=8, batch_size=2, schedule="constant", warmup=0
)
MODEL = step.Model("gpt2-tiny", SETTINGS)
STEPS = 6


def test_rows_of_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(step.MODELS, MODEL.name, MODEL)
    monkeypatch.setattr(step, "INTERVAL", 2)
    found = step.rows(1, 3, (MODEL.name,), commit_steps=STEPS)
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
    assert (commit["steps"], commit["hashed"], commit["stored_at_end"]) == (STEPS, 3, 1)


def test_an_unknown_model_or_part_is_refused() -> None:
    with pytest.raises(UsageError, match="no 'gpt5'"):
        step.rows(models=("gpt5",))
    with pytest.raises(UsageError, match="no 'space'"):
        step.rows(parts=("space",))
