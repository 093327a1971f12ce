"""`bench ovt`, time: a step of trainer, auditor and `rounded/1` against a plain float64 step.

All sides of a group take turns in one process on the same threads. A turn is two steps, and the
second counts. In the first step a side gets the memory again that it gave back during the others'
turns; that would weigh on the side that allocates most, plain float64. Medians count. The sides
write and read logs as in a run, digests included, but no checkpoints (`bench step`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallystick.contracts.replay.stock.emulated import kind_named
from tallystick.job.job import Job
from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.models import MODELS
from tallystick_bench.ovt.parties.arms import PLAIN, open_arm
from tallystick_bench.ovt.parties.party import Party, batch_of
from tallystick_bench.ovt.results.store import PartFile
from tallystick_bench.step_time import in_turns, load

REPEATS, QUICK_REPEATS = 5, 2
# Group -> side -> (arm, contract). A side that follows names the side whose log it follows.
Side = tuple[str, str, str | None]
GROUPS: dict[str, dict[str, Side]] = {
    "bounded": {
        "rounded": ("rounded", "rounded/1", None),
        "trainer": ("bounded", "replay/1", None),
        "auditor": ("bounded", "replay/1", "trainer"),
    },
    "published": {
        "published-trainer": ("published", "replay/1;form=published", None),
        "published-auditor": ("published", "replay/1;form=published", "published-trainer"),
    },
}


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries, beside the model."""
    return {"repeats": QUICK_REPEATS if quick else REPEATS}


def measure(part: PartFile, context: Context) -> None:
    """One entry a group: seconds of every step of every side."""
    repeats = QUICK_REPEATS if context.quick else REPEATS
    for group, sides in GROUPS.items():
        work = context.work / f"time-{part.model}-{group}"

        def run(sides: dict[str, Side] = sides, work: Path = work) -> dict[str, Any]:
            job = context.job(part.model)
            return interleaved(job, part.model, sides, work, repeats, context.threads)

        part.get(group, run)


def plain_step(job: Job, model: str, threads: int, dtype: str = "float64") -> Callable[[], None]:
    """The next plain torch step of the model in `dtype`, on the job's own batches and weights."""
    import torch

    from tallystick_bench.ovt.parties.plain import PlainStep

    step = PlainStep(MODELS[model], job.genesis().slots, getattr(torch, dtype), threads)
    batches = iter(range(1 << 30))
    return lambda: step(batch_of(job, next(batches)))


def interleaved(
    job: Job,
    model: str,
    sides: dict[str, Side],
    work: Path,
    repeats: int,
    threads: int,
    dtype: str = "float64",
) -> dict[str, Any]:
    """Seconds of `repeats` steps of every side and of plain torch in `dtype`, each after one that
    is not counted; before them a turn to warm up."""
    parties = {
        name: Party(
            job,
            open_arm(
                arm, contract, job, kind_named(PLAIN), follows is not None, work / name, threads
            ),
        )
        for name, (arm, contract, follows) in sides.items()
    }
    calls: dict[str, Callable[[], None]] = {dtype: plain_step(job, model, threads, dtype)}
    logs: dict[str, list[Path]] = {name: [] for name in sides}

    def step_of(name: str, follows: str | None) -> Callable[[], None]:
        def call() -> None:
            # A side follows the logs of its own turn, step by step.
            found = parties[name].advance(logs[follows][len(logs[name])] if follows else None)
            if "log" in found:
                logs[name].append(Path(found["log"]))

        return call

    for name, (_, _, follows) in sides.items():
        calls[name] = step_of(name, follows)
    log_bytes: dict[str, int] = {}

    def remove_logs() -> None:
        for name, paths in logs.items():
            for path in paths:
                log_bytes[name] = path.stat().st_size
                path.unlink()
            paths.clear()

    try:
        seconds = in_turns(calls, repeats, remove_logs)
    finally:
        for party in parties.values():
            party.arm.close()
    return {
        "seconds": seconds,
        "log_file_bytes": log_bytes,
        "load": load(),
    }
