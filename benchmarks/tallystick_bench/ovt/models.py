"""The models of `bench ovt`: recipes with settings, as jobs that every process loads.

The large ones are the paper's (GPT-2 124M at 8 sequences of 64 tokens; ResNet-50 for CIFAR-10 at
batch 64, 3×3 stem). Divergence needs hundreds of steps of every kind of hardware, so it takes
smaller ones of the same operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.job.recipes.classify import cifar10 as read_cifar10
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.ir import Program


@dataclass(frozen=True)
class Model:
    """A model to measure: its name in rows, its recipe and settings, and the side of its images.

    A side of 0 stands for the data's own.
    """

    name: str
    recipe: str
    pairs: Mapping[str, str] = field(default_factory=dict)
    crop: int = 0

    @property
    def is_text(self) -> bool:
        return self.recipe == "gpt2"


_GPT2 = {"block_size": "64", "batch_size": "8", "schedule": "constant", "warmup": "0"}
_RESNET = {"schedule": "constant", "lr": "0.05", "warmup": "0"}

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("gpt2-124m", "gpt2", {"size": "124m", **_GPT2}),
        Model("resnet50", "resnet50", {"size": "50", "batch_size": "64", **_RESNET}),
        Model(
            "gpt2-small",
            "gpt2",
            {"n_layer": "4", "n_head": "4", "n_embd": "128", "vocab_size": "256", **_GPT2},
        ),
        # Kinds of hardware round about one in 10^8 elements of products and normalisations apart,
        # and only a difference that reaches a weight lasts. So the model has wide layers, batch 32
        # and four stages. The images are the middle of CIFAR-10's, so that 200 steps of every run
        # take minutes.
        Model(
            "resnet-wide",
            "resnet50",
            {
                "size": "18",
                "blocks": "1-1-1-1",
                "width": "32",
                "batch_size": "32",
                **_RESNET,
                "lr": "0.1",
            },
            crop=16,
        ),
        Model(
            "gpt2-tiny",
            "gpt2",
            {
                "n_layer": "1",
                "n_head": "2",
                "n_embd": "32",
                "vocab_size": "256",
                "block_size": "16",
                "batch_size": "4",
                "schedule": "constant",
                "warmup": "0",
            },
        ),
        Model("resnet-tiny", "resnet50", {"size": "tiny", "batch_size": "4", **_RESNET}, crop=8),
    )
}
# The models of the parts: those of the paper's size, of the divergence part, of quick mode.
LARGE = ("gpt2-124m", "resnet50")
LONG = ("gpt2-small", "resnet-wide")
QUICK = ("gpt2-tiny", "resnet-tiny")


def sources_of(model: Model, text: Path | None, cifar10: Path | None, work: Path) -> Sources:
    """The data of `model`: the text or CIFAR-10; the recipe's own where none is given.

    For a model with smaller images the data is the middle of CIFAR-10's, as a file in `work`.
    """
    if model.is_text:
        return Sources(text=text)
    if cifar10 is None or not model.crop:
        return Sources(cifar10=cifar10)
    path = work / f"cifar10-{model.crop}.npz"
    if not path.exists():
        columns = read_cifar10(cifar10)
        edge = (32 - model.crop) // 2
        middle = slice(edge, edge + model.crop)
        x = columns["x"].reshape(-1, 3, 32, 32)[:, :, middle, middle]
        np.savez(path, x=x, y=columns["y"])
    return Sources(data=path)


def job_of(
    model: Model,
    directory: Path,
    sources: Sources,
    steps: int,
    contract: str = "ordered/1",
    interval: int | None = None,
) -> Job:
    """The job of `model` under `contract` in `directory`, a checkpoint each `interval` steps.

    Without one it has a checkpoint at its end. Where no run is made, other contracts run the
    program of `ordered/1` with another contract line and the same nodes.
    """
    pairs = dict(model.pairs)
    if sources.data is None and sources.cifar10 is None and model.crop:
        pairs["image"] = str(model.crop)
    elif not model.is_text:
        pairs.setdefault("classes", "10")
    return new_job(
        model.recipe,
        directory,
        pairs,
        sources,
        steps=steps,
        contract=contract,
        checkpoint_interval=interval or steps,
        evaluate_every=0,
    )


def under(job: Job, contract: str) -> Program:
    """The job's program under another contract."""
    return replace(job.program, contract=resolve_contract(contract))
