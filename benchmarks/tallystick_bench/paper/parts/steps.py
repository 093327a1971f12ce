"""`bench paper`, steps: a step under every contract over plain PyTorch float32, in turns.

The runs' own seconds are those of the machine as it was for the hours that the runs took. These
take minutes, so they can be repeated when nothing else runs; where they exist the table of runs
takes its ratios from here.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tallystick.cli.output import note
from tallystick_bench.machine import machine
from tallystick_bench.ovt.models import LARGE, MODELS, QUICK
from tallystick_bench.ovt.parts.time import Side, interleaved
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context
from tallystick_bench.paper.models import CONTRACTS

REPEATS, QUICK_REPEATS = 3, 1
_ARMS = {"replay-bounded": "bounded", "replay-published": "published"}


def measure(out: Path, context: Context) -> None:
    """One entry a contract: seconds of every counted step of both sides."""
    repeats = QUICK_REPEATS if context.quick else REPEATS
    for name in QUICK[:1] if context.quick else LARGE:
        if context.models and name not in context.models:
            continue
        about = {
            "machine": machine() | {"threads": context.threads},
            "recipe": MODELS[name].recipe,
            "settings": dict(MODELS[name].pairs),
            "data": context.data(MODELS[name]),
            "repeats": repeats,
        }
        with part_file(out, "steps", name, about, "paper") as part:
            for cell, contract in CONTRACTS.items():
                if cell not in part.entries:
                    note(f"steps: {name} under {contract}")
                part.get(cell, partial(_in_turns, name, cell, contract, repeats, context))


def _in_turns(
    name: str, cell: str, contract: str, repeats: int, context: Context
) -> dict[str, Any]:
    sides: dict[str, Side] = {"ours": (_ARMS.get(cell, cell), contract, None)}
    work = context.work / f"steps-{name}-{cell}"
    job = context.job(name)
    return interleaved(job, name, sides, work, repeats, context.threads, "float32")
