"""The jobs of the examples."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.errors import CannotCheckError
from tallystick.installed import checkout


def examples() -> Path:
    """The directory of the examples. Raises CannotCheckError outside of a checkout."""
    home = checkout()
    if home is None:
        raise CannotCheckError("There are no examples here.", "Run this in a checkout.")
    return home / "examples"


def module_of(name: str) -> Any:
    """An example as a module; it imports what stands beside it."""
    if str(examples()) not in sys.path:
        sys.path.insert(0, str(examples()))
    return importlib.import_module(name)


@dataclass(frozen=True)
class Subject:
    """An example whose job is `make(directory, steps)`; `trainer` says that it is a Trainer's, so
    that its own process is killed too."""

    name: str
    title: str
    make: Callable[[Path, int | None], Path]
    trainer: bool = False


def _saved(name: str) -> Callable[[Path, int | None], Path]:
    def make(directory: Path, steps: int | None) -> Path:
        job: Path = module_of(name).save(directory, **({} if steps is None else {"steps": steps}))
        return job

    return make


def _trainers(name: str) -> Callable[[Path, int | None], Path]:
    def make(directory: Path, steps: int | None) -> Path:
        given = {} if steps is None else {"steps": steps}
        if steps is not None:
            module_of(name).pretrained(directory, steps)
        module_of(name).trainer(directory, **given).save_job()
        return directory / "tuned" / "job"

    return make


SUBJECTS = (
    Subject("finetune_trainer", "Hugging Face fine-tune by Trainer", _trainers("finetune_trainer"),
            True),
    Subject("lora", "LoRA by Trainer", _trainers("lora"), True),
    Subject("image_net", "image net, augmentation, early stop", _saved("image_net")),
    Subject("gan", "GAN, two programs by turns", _saved("gan")),
)  # fmt: skip
