"""The corpus of Python idioms: what is one function at every call is captured. What is not has no
program of its own: that is refused by name, with a file and a line (PROGRAM 5.19), and a job of so
many steps has what each of its calls computes, or is refused too (5.25)."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import idioms
import numpy as np
import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import Step, committed, compared
from idioms.case import HARMFUL, HARMLESS, Idiom
from torch import nn

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.capture.stand_ins import StandIns
from tallystick.program.capture.torch_step import EagerStep
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


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_idiom_becomes_a_job(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    assert job_of(HARMLESS[name](), tmp_path).steps == 2


@pytest.mark.sample(15)
@pytest.mark.parametrize("flip", [4, 50, 5000])
@pytest.mark.parametrize("name", [name for name in HARMFUL if name not in CARRIED])
def test_a_harmful_idiom_has_no_one_program(name: str, flip: int) -> None:
    torch.manual_seed(0)
    idiom = HARMFUL[name](flip)
    with pytest.raises(UsageError) as caught:
        _ = tallystick.capture(idiom.module, idiom.loss, BATCH, idiom.optimizer or SGD(0.1)).program
    assert caught.value.next_action
    assert LINE.search(caught.value.message), caught.value.message


# No function of how often the loss was called, or no program at all.
REFUSED = {
    "contextvar-step", "file-holds-the-step", "file-size-as-the-step", "tensor-bank-grows",
    "tensor-counter-read-by-item", "tensor-queue-grows-by-cat", "gradual-unfreezing",
    "layer-frozen-later",
}  # fmt: skip


@pytest.mark.sample(11)
@pytest.mark.parametrize(
    ("name", "flip", "steps"),
    [(name, 4, 8) for name in HARMFUL if name not in CARRIED]
    + [(name, 50, 53) for name in [*HARMFUL][::5] if name not in CARRIED],  # seconds for each
)
def test_a_job_of_a_harmful_idiom_is_the_plain_loop(
    name: str, flip: int, steps: int, tmp_path: Path
) -> None:
    """Every state is that of a loop in float32 whose calls are counted as the author's are; and of
    no loop that flips one call later."""
    torch.manual_seed(0)
    idiom = HARMFUL[name](flip)
    first = copy.deepcopy(idiom.module.state_dict())
    drawn = random.getstate(), np.random.get_state()
    if name in REFUSED:
        with pytest.raises(UsageError):
            job_of(idiom, tmp_path, steps)
        assert not (tmp_path / "job").exists()
        return
    job_of(idiom, tmp_path, steps)
    made = committed(tallystick.train(tmp_path / "job", tmp_path / "run", progress=False))
    random.setstate(drawn[0])
    np.random.set_state(drawn[1])
    assert _apart(HARMFUL[name](flip), first, made) is None
    random.setstate(drawn[0])
    np.random.set_state(drawn[1])
    later = _apart(HARMFUL[name](flip + 1), first, made)
    assert later is not None and later >= flip - 2, later


def _apart(idiom: Idiom, first: Any, steps: list[Step]) -> int | None:
    """The first of the run's steps whose state is not that of the plain loop; None if all are."""
    module = idiom.module
    module.load_state_dict(first)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for number, step in enumerate(steps):
        optimizer.zero_grad()
        with EagerStep(
            step.key, torch.float32, StandIns({}, {})
        ).installed():  # the contract's masks
            idiom.loss(module, {n: torch.from_numpy(a) for n, a in step.batch.items()}).backward()
        optimizer.step()
        for name, parameter in module.named_parameters():
            after = torch.from_numpy(step.after[f"param.{name}"])
            if not torch.allclose(parameter.detach(), after, rtol=2e-5, atol=2e-6):
                return number
    return None


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
