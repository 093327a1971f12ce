"""The corpus of Python idioms: what is one function at every call is captured, what is not is
refused by name, with a file and a line (PROGRAM 5.19)."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import idioms
import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared
from idioms.case import HARMFUL, HARMLESS, Idiom
from torch import nn

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.optimizers import SGD

for _module in pkgutil.iter_modules(idioms.__path__):
    importlib.import_module(f"idioms.{_module.name}")

# A tensor of theirs decides, and it is a slot of the state: they train as written (PROGRAM 5.20).
CARRIED = ("tensor-attribute-that-is-no-buffer", "tensor-counter-in-arithmetic")
BATCH = {"x": ((8, 4), "f32"), "y": ((8,), "i64")}
LINE = re.compile(r"\w+\.py:\d+")


def job_of(idiom: Idiom, where: Path, steps: int = 2) -> Job:
    step = tallystick.capture(idiom.module, idiom.loss, BATCH, idiom.optimizer or SGD(0.1))
    torch.manual_seed(1)
    data = {"x": torch.randn(16, 4), "y": torch.randint(0, 3, (16,))}
    return step.save_job(where / "job", data, steps=steps)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_idiom_becomes_a_job(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    assert job_of(HARMLESS[name](), tmp_path).steps == 2


@pytest.mark.parametrize("flip", [4, 50, 5000])
@pytest.mark.parametrize("name", [name for name in HARMFUL if name not in CARRIED])
def test_a_harmful_idiom_is_refused_by_name(name: str, flip: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    idiom = HARMFUL[name](flip)
    with pytest.raises(UsageError) as caught:
        job_of(idiom, tmp_path)
    assert caught.value.next_action
    assert LINE.search(caught.value.message), caught.value.message


@pytest.mark.parametrize("flip", [2, 4])
@pytest.mark.parametrize("name", CARRIED)
def test_what_a_kept_tensor_decides_is_carried(name: str, flip: int, tmp_path: Path) -> None:
    """Each step is the plain loop's, before the flip and after it."""
    torch.manual_seed(0)
    idiom = HARMFUL[name](flip)
    case = Case(name, "capture", (), lambda: _loop(HARMFUL[name](flip), idiom.module))
    job = job_of(idiom, tmp_path, steps=8)
    assert any(slot.startswith("buffer.outside.") for slot in job.program.state_types)
    found = compared(case, tallystick.train(tmp_path / "job", tmp_path / "run", progress=False))
    assert (found.outcome, found.steps) == ("as written", 8), found


def _loop(idiom: Idiom, first: nn.Module) -> Loop:
    net, loss = idiom.module, idiom.loss
    net.load_state_dict(first.state_dict())

    def plain(module: nn.Module, batches: Iterator[Any]) -> Iterator[Any]:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            loss(module, next(batches)).backward()
            optimizer.step()
            yield optimizer

    return Loop(net, lambda out: None, plain, Order(True, 16, 8, 4, True), 8)
