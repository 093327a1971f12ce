"""One cell: a signed run of a model under a contract, and its audit by repetition.

`python -m` this file with JSON makes one in a process of its own and prints its entry. A cell that
was cut off goes on: `train` takes the run up from its newest stored state.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tallystick.cli.output import plain
from tallystick.devices.context import ExecutionContext
from tallystick.errors import CannotCheckError
from tallystick.job.job import MANIFEST, Job
from tallystick.job.job_file import load_job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick_bench.memory import peak_bytes
from tallystick_bench.ovt.models import job_of, sources_of
from tallystick_bench.ovt.parties.party import batch_of
from tallystick_bench.paper.models import CONTRACTS, MODELS, size_of
from tallystick_bench.paper.runs.beside import Beside
from tallystick_bench.step_time import load


def _job(model: str, contract: str, work: Path, text: Path | None, cifar10: Path | None) -> Job:
    """The cell's job in `work`: the one there, or a new one."""
    directory, size = work / "job", size_of(model)
    if (directory / MANIFEST).exists():
        with contextlib.suppress(Exception):
            return load_job(directory)
    shutil.rmtree(directory, ignore_errors=True)
    found = MODELS[model]
    # Logistic regression is on the recipe's own clusters, at the size that the paper names.
    images = None if found.recipe == "logreg" else cifar10
    sources = sources_of(found, text, images, work)
    return job_of(found, directory, sources, size.steps, contract, size.interval)


def _plain(job: Job, model: str, threads: int) -> Any:
    """One plain float32 step of the model on the job's own batches, from its own weights."""
    import torch

    from tallystick_bench.ovt.parties.plain import PlainStep

    step = PlainStep(MODELS[model], job.genesis().slots, torch.float32, threads)
    batches = iter(range(1 << 30))

    def take() -> float:
        step(batch_of(job, next(batches)))
        return step.loss

    return take


def train(
    model: str, cell: str, work: Path, threads: int, text: Path | None, cifar10: Path | None
) -> dict[str, Any]:
    """The signed run of one cell, in `work`, which is empty or holds a cut-off run of this cell."""
    work.mkdir(parents=True, exist_ok=True)
    began, before = time.perf_counter(), load()
    job = _job(model, CONTRACTS[cell], work, text, cifar10)
    beside = Beside(_plain(job, model, threads) if size_of(model).beside else None)
    made = train_job(job, work / "run", Options(ExecutionContext(threads), keep=2), beside)
    if not made.finished:
        raise CannotCheckError("The run was interrupted.", "The same command goes on from here.")
    store = RunStore(work / "run")
    return {
        "steps": made.steps,
        "contract": made.contract,
        "seconds": beside.seconds,
        "all_seconds": beside.all_seconds,
        "losses": made.losses,
        "plain_losses": beside.plain_losses,
        "job_digest": made.job_digest,
        "run_root": made.run_root,
        "final_state_root": made.final_state_root,
        "checkpoints": [{"step": s, "state_root": r} for s, r in made.checkpoints],
        "signed": store.signed,
        "log_bytes": made.log_bytes,
        "checkpoint_bytes": _checkpoint_bytes(store),
        "nodes": len(job.program.nodes),
        "parameters": _parameters(job),
        "wall_seconds": time.perf_counter() - began,
        "peak_bytes_with_plain": peak_bytes(),
        "load": [before, load()],
    }


def audit(model: str, work: Path, threads: int) -> dict[str, Any]:
    """The audit of the run in `work`, whole or of its last checkpoint interval.

    Raises CannotCheckError where it does not accept our own run: a fault of ours.
    """
    size, before = size_of(model), load()
    steps = None if size.audited_from == 0 else (size.audited_from, size.steps)
    report = audit_run(
        work / "run", load_job(work / "job"), steps, context=ExecutionContext(threads)
    )
    if not report.accepted:
        raise CannotCheckError(
            f"The audit of our own run differs: {report.difference}", "Report it."
        )
    return {
        "accepted": report.accepted,
        "run_root": report.run_root,
        "first_step": report.first_step,
        "last_step": report.last_step,
        "whole": report.whole,
        "checkpoints_compared": report.checkpoints_compared,
        "losses_compared": report.losses_compared,
        "choices": report.choices,
        "seconds": report.seconds,
        "peak_bytes": peak_bytes(),
        "load": [before, load()],
    }


def _checkpoint_bytes(store: RunStore) -> dict[str, int]:
    """Bytes of one stored state's file, and of all that the run keeps."""
    sizes = [store.checkpoint_path(step).stat().st_size for step in store.stored_steps()]
    return {"one": max(sizes, default=0), "kept": len(sizes), "all": sum(sizes)}


def _parameters(job: Job) -> int:
    """Elements of the parameters."""
    types = job.program.state_types
    return sum(t.numel for name, t in types.items() if name.startswith("param."))


def main() -> None:
    """Make the entry that the JSON argument names; print it."""
    given = json.loads(sys.argv[1])
    paths = {name: Path(given[name]) if given[name] else None for name in ("text", "cifar10")}
    model, work, threads = given["model"], Path(given["work"]), given["threads"]
    if given["do"] == "train":
        found = train(model, given["cell"], work, threads, **paths)
    else:
        found = audit(model, work, threads)
    sys.stdout.write(json.dumps(plain(found)))


if __name__ == "__main__":
    main()
