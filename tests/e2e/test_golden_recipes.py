"""Golden run roots of the larger recipes at tiny sizes: any change of any bit shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from golden import RECIPE_ROOTS, RECIPE_STEPS, RECIPES, entry, recipe_job

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job

OFTEN = ("distilbert mlm", "llama")


@pytest.mark.parametrize("name", RECIPES)
def test_run_roots(name: str, tmp_path: Path, is_exhaustive: bool) -> None:
    """On one path, another for each recipe; with --exhaustive all recipes on every path."""
    if name not in OFTEN and not is_exhaustive:
        pytest.skip("with --exhaustive only: another recipe has most of its operators")
    golden = json.loads(RECIPE_ROOTS.read_text())[name]
    job = recipe_job(name, tmp_path)
    assert job.steps == RECIPE_STEPS >= 100, "some leaks show late"
    isas = list(_core.supported_isas())
    place = list(RECIPES).index(name)
    for number in range(len(isas)) if is_exhaustive else [place % len(isas)]:
        context = ExecutionContext(1 + (place + number) % 3, isas[number])
        run = train_job(job, tmp_path / f"run-{isas[number]}", Options(context))
        assert entry(job, run) == golden, isas[number]
