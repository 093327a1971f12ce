"""`job verify` of a job whose recipe is not the one that it was made by: refused, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.disk.manifest import manifest_bytes
from tallystick.errors import DigestMismatchError
from tallystick.job.job import MANIFEST, Job
from tallystick.job.job_file import job_manifest, load_job
from tallystick.job.recipes import RECIPES, new_job, verify_job

X, Y = torch.arange(96.0).reshape(32, 3) / 96, torch.arange(32) % 2


def said(job: Job, name: str, settings: Mapping[str, str]) -> Job:
    """The job with another recipe in its manifest, which no digest of the job covers."""
    other = replace(job, recipe={"name": name, "settings": dict(settings)})
    (job.directory / MANIFEST).write_bytes(manifest_bytes(job_manifest(other)))
    return load_job(job.directory)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(3, 2), nn.Linear(3, 2)


def loss_of(name: str) -> object:
    def loss(net: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(getattr(net, name)(batch["q"]), batch["y"])

    return loss


@pytest.mark.parametrize("recipe", ["logreg", "mlp", "vgg11", "resnet50"])
def test_records_of_another_recipe(recipe: str, tmp_path: Path) -> None:
    step = tallystick.capture(
        Net().train(), loss_of("one"), {"q": X[:4], "y": Y[:4]}, tallystick.SGD(0.1), trains="one"
    )
    job = said(step.save_job(tmp_path / "job", {"q": X, "y": Y}, steps=2), recipe, {})
    assert recipe in RECIPES
    with pytest.raises(DigestMismatchError, match="no field x of rank"):
        verify_job(job)


def test_programs_of_no_recipe(tmp_path: Path) -> None:
    net = Net().train()
    steps = {
        name: tallystick.capture(
            net, loss_of(name), {"q": X[:4], "y": Y[:4]}, tallystick.SGD(0.1), trains=name
        )
        for name in ("one", "two")
    }
    made = tallystick.save_job(tmp_path / "job", {"q": X, "y": Y}, programs=steps, steps=2)
    with pytest.raises(DigestMismatchError, match="not those of its recipe"):
        verify_job(said(made, "gpt2", {"n_layer": "1", "n_embd": "8", "n_head": "1"}))


def test_another_number_of_micro_batches(tmp_path: Path) -> None:
    """The text of a step is the same for two parts of 8 records and four."""
    pairs = {"features": "2", "classes": "2", "records": "64", "micro_batches": "2"}
    job = new_job("logreg", tmp_path / "job", {**pairs, "batch_size": "8"}, steps=2)
    verify_job(job)
    assert job.recipe is not None
    other = {**job.recipe["settings"], "batch_size": "16", "micro_batches": "4"}
    with pytest.raises(DigestMismatchError, match="micro-batches"):
        verify_job(said(job, "logreg", other))


def test_weights_of_another_size_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the recipe gives is allocated when its programs are the job's."""
    settings = {"features": "3", "classes": "2", "records": "16", "batch_size": "2"}
    made = new_job("mlp", tmp_path / "job", settings, steps=2)
    assert made.recipe is not None
    job = said(made, "mlp", {**made.recipe["settings"], "hidden": "50000"})  # 10 GB

    def allocated(*_: object) -> None:
        raise AssertionError("the weights were made")

    monkeypatch.setattr("tallystick.job.recipes.classify.init_arrays", allocated)
    with pytest.raises(DigestMismatchError, match="program"):
        verify_job(job)
