"""A recipe's first step is compared too, up to `RECIPE_COMPARED` parameters (PROGRAM 5.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.job import save
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.program import update as rules

SMALL = {"features": "6", "classes": "3", "records": "64", "batch_size": "8"}
MLP = {**SMALL, "hidden": "8", "layers": "1"}
IMAGES = {
    "blocks": "1-1", "width": "4", "image": "8", "classes": "3", "records": "32", "batch_size": "4"
}  # fmt: skip
GPT2 = {"n_layer": "1", "n_head": "2", "n_embd": "16", "block_size": "8", "batch_size": "2"}
RECIPES = {
    "logreg": ("logreg", {**SMALL, "momentum": "0.9", "weight_decay": "0.1"}),
    "mlp, adam": ("mlp", {**MLP, "optimizer": "adam", "activation": "gelu", "clip_norm": "1.0"}),
    "mlp, adamw, dropout": ("mlp", {**MLP, "optimizer": "adamw", "dropout": "0.25"}),
    "mlp, sgd": ("mlp", {**MLP, "optimizer": "sgd", "activation": "tanh"}),
    "gpt2": ("gpt2", {**GPT2, "dropout": "0.1", "warmup": "2"}),
    "resnet50": ("resnet50", IMAGES),
    "resnet50, plain": ("resnet50", {**IMAGES, "bottleneck": "false", "stem": "imagenet"}),
}


def made(what: str, where: Path, contract: str = "ordered/1") -> dict[str, str]:
    recipe, settings = RECIPES[what]
    text = where / "text.txt"
    text.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 20)
    sources = Sources(text=text) if recipe == "gpt2" else None
    return new_job(
        recipe, where / "job", settings, sources, steps=4, evaluate_every=0, contract=contract
    ).about


@pytest.mark.parametrize("what", RECIPES)
def test_a_recipes_first_step_agrees(what: str, tmp_path: Path) -> None:
    assert "first step" not in made(what, tmp_path)


@pytest.mark.parametrize("contract", ["rounded/1;b=24", "replay/1"])
def test_it_agrees_under_other_contracts(contract: str, tmp_path: Path) -> None:
    assert "first step" not in made("mlp, adam", tmp_path, contract)


def test_a_wrong_rule_in_a_recipe_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module has no weights: the state's are compared."""
    right = rules.adam_attrs
    monkeypatch.setattr(rules, "adam_attrs", lambda *a: {**right(*a), "beta2": 0.9})
    with pytest.raises(UsageError, match=r"opt\.v\..*: torch's Adam in float64 differs"):
        made("mlp, adam", tmp_path)
    assert not (tmp_path / "job").exists()


def test_a_larger_recipes_job_says_that_it_was_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "RECIPE_COMPARED", 10)
    assert made("logreg", tmp_path)["first step"] == (
        "not compared with the module: a recipe of more than 10 parameters"
    )
