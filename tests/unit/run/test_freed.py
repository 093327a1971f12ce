"""What an execution allocates is freed when it ends, and not when Python looks for cycles: a second
audit in a process takes no more memory than the first."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import StorageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.journal import Journal
from tallystick.run.store.stored_states import StateFile
from tallystick.run.store.unsigned import Declaration

# An opened element, which is a part of its own tree: it holds numbers and shapes, and no tensor.
SMALL = "tallystick.opening.", "tallystick.numerics.types."


@contextmanager
def no_garbage() -> Iterator[None]:
    """Within the block no object of the package may end as a part of a cycle."""
    gc.disable()
    gc.freeze()  # what is there: the search after the block is of new objects alone
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        kinds = (type(o) for o in gc.garbage)  # `isinstance` would ask some objects
        left = Counter(f"{k.__module__}.{k.__qualname__}" for k in kinds)
        ours = {name for name in left if name.startswith("tallystick.")}
        assert not {name for name in ours if not name.startswith(SMALL)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def check(job: Job, where: Path) -> None:
    tallystick.audit(tallystick.train(job, where / "first").directory, job)  # imports, caches
    with no_garbage():
        tallystick.train(job, where / "run")
    with no_garbage():
        assert tallystick.audit(where / "run", job).accepted
    with no_garbage():
        lie = declared_cheat(job, Declaration("lie-output", {"step": job.steps - 2}))
        train_job(job, where / "cheat", Options(maker=lie))
    with no_garbage():
        found = tallystick.dispute(where / "run", where / "cheat", job, as_attack=["B"])
        assert found.convicted == ("B",)


def test_a_step_with_copies_of_operands(gpt2_job: Job, tmp_path: Path) -> None:
    check(gpt2_job, tmp_path)


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1", "replay/1"])
def test_micro_batches(contract: str, tmp_path: Path) -> None:
    settings = {"micro_batches": "4"}
    job = new_job("mlp", tmp_path / "job", settings, steps=6, contract=contract, evaluate_every=0)
    check(job, tmp_path)


@pytest.mark.parametrize(("owner", "name"), [(Journal, "session"), (StateFile, "write")])
def test_a_training_that_fails(
    owner: type, name: str, mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first step, or where a checkpoint is stored beside the next one."""

    def full(*_: object) -> None:
        raise StorageError("The disk is full.", "Free some room.")

    with monkeypatch.context() as patched, no_garbage():
        patched.setattr(owner, name, full)
        with pytest.raises(StorageError):
            tallystick.train(mlp_job, tmp_path / "run")
