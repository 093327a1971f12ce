"""What an execution allocates is freed when it ends, and not when Python looks for cycles: a second
audit in a process takes no more memory than the first."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import tallystick
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.plan import Plan
from tallystick.program.runner import Runner
from tallystick.program.state import State
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

LARGE = Runner, Plan, State, Engine  # each of them holds, or is held with, memory for tensors


@pytest.fixture(autouse=True)
def _no_search_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def large() -> dict[int, str]:
    """The large objects that live: the kind of each, by its id."""
    kinds = ((id(o), type(o)) for o in gc.get_objects())  # `isinstance` would ask some objects
    return {number: kind.__name__ for number, kind in kinds if issubclass(kind, LARGE)}


def left(before: dict[int, str]) -> list[str]:
    """The kinds of large objects that live, and lived not before."""
    return sorted(kind for number, kind in large().items() if number not in before)


def check(job: Job, where: Path) -> None:
    before = large()
    tallystick.train(job, where / "run")
    assert left(before) == []
    assert tallystick.audit(where / "run", job).accepted
    assert left(before) == []
    lie = declared_cheat(job, Declaration("lie-output", {"step": job.steps - 2}))
    train_job(job, where / "cheat", Options(maker=lie))
    assert left(before) == []
    found = tallystick.dispute(where / "run", where / "cheat", job, as_attack=["B"])
    assert found.convicted == ("B",)
    assert left(before) == []


def test_a_step_with_copies_of_operands(gpt2_job: Job, tmp_path: Path) -> None:
    check(gpt2_job, tmp_path)


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1", "replay/1"])
def test_micro_batches(contract: str, tmp_path: Path) -> None:
    settings = {"micro_batches": "4"}
    job = new_job("mlp", tmp_path / "job", settings, steps=6, contract=contract, evaluate_every=0)
    check(job, tmp_path)
