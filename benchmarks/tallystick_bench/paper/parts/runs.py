"""`bench paper`, runs: signed runs of the papers' models under every contract, audited.

Each cell has a file of raw results. Its run directory is deleted when both entries are written.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from tallystick.cli.output import note
from tallystick_bench import process
from tallystick_bench.machine import machine
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context
from tallystick_bench.paper.models import CONTRACTS, MODELS, cells, size_of
from tallystick_bench.paper.runs import cell as own


def about(model: str, cell: str, context: Context) -> dict[str, Any]:
    """The settings of a cell's entries."""
    size = size_of(model)
    return {
        "machine": machine() | {"threads": context.threads},
        "model": model,
        "recipe": MODELS[model].recipe,
        "settings": dict(MODELS[model].pairs),
        "contract": CONTRACTS[cell],
        "data": context.data(MODELS[model]),
        "steps": size.steps,
        "checkpoint interval": size.interval,
    }


def measure(out: Path, context: Context, part: str = "runs") -> None:
    """The entries `train` and `audit` of every cell of a part."""
    for model, cell in cells(part, context.quick):
        if context.models and model not in context.models:
            continue
        with part_file(out, part, f"{model}.{cell}", about(model, cell, context), "paper") as f:
            work = context.scratch / part / f"{model}.{cell}"
            for phase in ("train", "audit"):
                if phase not in f.entries:
                    note(f"{part}: {model} under {CONTRACTS[cell]}: {phase}")
                f.get(phase, partial(made_run, phase, model, cell, work, context))
            shutil.rmtree(work, ignore_errors=True)


def made_run(phase: str, model: str, cell: str, work: Path, context: Context) -> Any:
    """One phase of a cell, in a process of its own where the model is large."""
    if context.quick:
        if phase == "audit":
            return own.audit(model, work, context.threads)
        return own.train(model, cell, work, context.threads, context.text, context.cifar10)
    given = {
        "do": phase,
        "model": model,
        "cell": cell,
        "work": str(work),
        "threads": context.threads,
        "text": str(context.text) if context.text else None,
        "cifar10": str(context.cifar10) if context.cifar10 else None,
    }
    return process.answer(
        "tallystick_bench.paper.runs.cell",
        json.dumps(given),
        failed=f"The run of {model} under {CONTRACTS[cell]} failed",
        next_action="The same command takes it up again.",
    )
