"""A listener of `fit` that changes what the job fixes ends the run, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import CallbackError
from tallystick.run.execute.listener import Silent
from tallystick.trainer import watching

SCALE = torch.ones(3)


def loss(module: nn.Module, batch: list[Tensor]) -> Tensor:
    return (F.mse_loss(module(batch[0]), batch[1], reduction="none") * SCALE).mean()


class Meddles(Silent):
    def __init__(self, act: Callable[[], Any], at: int = 2) -> None:
        self.act, self.at, self.heard = act, at, 0

    def step(self, step: int, loss: float, seconds: float) -> None:
        self.heard += 1
        if step == self.at:
            self.act()


class Parts:
    """What one run is made of."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.module = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)

    def fit(self, out: Path, listener: Any) -> Any:
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 3, generator=generator)
        return tallystick.fit(
            self.module, loss, list(zip(x, y, strict=True)), self.optimizer, out=out, steps=6,
            batch_size=4, listener=listener, progress=False,
        )  # fmt: skip


ACTS: dict[str, Callable[[Parts], Any]] = {
    r"optimizer\.param_groups\[0\]\['lr'\] \(0\.1 → 0\.01\)": lambda p: p.optimizer.param_groups[
        0
    ].update(lr=0.01),
    r"the parameter weight": lambda p: p.module.weight.data.mul_(0.5),
    r"requires_grad of bias \(True → False\)": lambda p: p.module.bias.requires_grad_(False),
    r"the tensor the global SCALE": lambda p: SCALE.mul_(2.0),
}


@pytest.mark.parametrize("words", ACTS)
def test_a_change_ends_the_run_by_name(words: str, tmp_path: Path) -> None:
    parts = Parts()
    try:
        with pytest.raises(CallbackError, match=rf"Meddles\.step changes {words} at step 3"):
            parts.fit(tmp_path, Meddles(lambda: ACTS[words](parts)))
    finally:
        SCALE.fill_(1.0)
    assert not (tmp_path / "run" / "commitment.json").exists()


def test_a_listener_that_changes_nothing_hears_every_step(tmp_path: Path) -> None:
    listener = Meddles(lambda: None)
    found = Parts().fit(tmp_path, listener)
    assert found.finished
    assert listener.heard == 6


def test_nothing_is_looked_at_without_a_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(self: Any) -> dict[str, Any]:
        raise AssertionError("nobody could have changed anything")

    monkeypatch.setattr(watching.Watch, "look", look)
    assert Parts().fit(tmp_path / "none", None).finished
    assert Parts().fit(tmp_path / "own", Silent()).finished
