"""The corpus of Python idioms: what is one function at every call is captured, what is not is
refused by name, with a file and a line (PROGRAM 5.19)."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import idioms
import pytest
import torch
from idioms.case import HARMFUL, HARMLESS, Idiom

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.optimizers import SGD

for _module in pkgutil.iter_modules(idioms.__path__):
    importlib.import_module(f"idioms.{_module.name}")

BATCH = {"x": ((8, 4), "f32"), "y": ((8,), "i64")}
LINE = re.compile(r"\w+\.py:\d+")


def job_of(idiom: Idiom, where: Path) -> Job:
    step = tallystick.capture(idiom.module, idiom.loss, BATCH, idiom.optimizer or SGD(0.1))
    torch.manual_seed(1)
    data = {"x": torch.randn(16, 4), "y": torch.randint(0, 3, (16,))}
    return step.save_job(where / "job", data, steps=2)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_idiom_becomes_a_job(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    assert job_of(HARMLESS[name](), tmp_path).steps == 2


@pytest.mark.parametrize("flip", [4, 50, 5000])
@pytest.mark.parametrize("name", HARMFUL)
def test_a_harmful_idiom_is_refused_by_name(name: str, flip: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    idiom = HARMFUL[name](flip)
    with pytest.raises(UsageError) as caught:
        job_of(idiom, tmp_path)
    assert caught.value.next_action
    assert LINE.search(caught.value.message), caught.value.message
