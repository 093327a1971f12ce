"""A whole training step against PyTorch: time, peak memory, and the cost of commitments.

Ours and torch's step run the same module from the same weights, in one process, in turns. torch
takes the fastest of its own AdamW variants. Peak memory is each side's own, in a fresh process.
This module imports torch as the yardstick; the core never computes with it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.job.recipes.base import Built
from tallystick.job.recipes.gpt2 import Gpt2Settings, build
from tallystick.job.save import save_job
from tallystick.kernels.context import ExecutionContext
from tallystick.program.executor import Executor
from tallystick.run.execute.trainer import Options, Silent, train_job
from tallystick_bench import process
from tallystick_bench.step_side import Engines, TorchStep

TIME_TARGET = 1.25
MEMORY_TARGET = 1.25
COMMIT_TARGET = 1.03
INTERVAL = 20
# Each side's wait before its turn, so that the other's worker threads are asleep.
_PAUSE = 0.02


@dataclass(frozen=True)
class Model:
    """One model to measure: its name in rows and the recipe's settings."""

    name: str
    settings: Gpt2Settings


def _gpt2(layers: int, heads: int, width: int, vocabulary: int, dropout: float) -> Gpt2Settings:
    return Gpt2Settings(
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        vocab_size=vocabulary,
        dropout=dropout,
        block_size=64,
        batch_size=8,
        lr=6e-4,
        schedule="constant",
        warmup=0,
    )


MODELS = {
    model.name: model
    for model in (
        Model("gpt2-124m", _gpt2(12, 12, 768, 50257, 0.1)),
        Model("gpt2-124m-no-dropout", _gpt2(12, 12, 768, 50257, 0.0)),
        Model("gpt2-small", _gpt2(4, 4, 128, 256, 0.1)),
    )
}


def tokens(settings: Gpt2Settings, records: int) -> np.ndarray:
    """i64[records, block_size + 1], uniform over the vocabulary, always the same."""
    shape = (records, settings.block_size + 1)
    return np.random.default_rng(0).integers(0, settings.vocab_size, shape)


def job_for(built: Built, settings: Gpt2Settings, directory: Path, steps: int) -> Job:
    """A job over random tokens whose program, state and data are files in `directory`."""
    return save_job(
        built.captured,
        directory,
        {"tokens": tokens(settings, 8 * settings.batch_size)},
        steps=steps,
        checkpoint_interval=INTERVAL,
        schedules={"lr": settings.lr},
        initial_state=built.initial_state,
        compare_first_step=False,
    )


# ---- time ---------------------------------------------------------------------------------------
def _seconds(call: Callable[[], object]) -> float:
    time.sleep(_PAUSE)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _fastest(step: TorchStep, variants: tuple[str, ...], repeats: int) -> dict[str, float]:
    """Median seconds of a step under each of torch's optimizer variants, measured in turns."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for name in variants:
        step.use(name)
        step()
    for _ in range(repeats):
        for name in variants:
            step.use(name)
            samples[name].append(_seconds(step))
    return {name: statistics.median(values) for name, values in samples.items()}


def time_rows(model: Model, built: Built, threads: int, repeats: int) -> list[dict[str, Any]]:
    """Median seconds of a step, ours over torch's, steps taken in turns in this process.

    A row for the instruction set in use, and one for AVX2 where that is narrower.
    """
    settings = model.settings
    state = {name: array.copy() for name, array in built.initial_state.items()}
    executor = Executor(built.captured.program, ExecutionContext(threads))
    theirs = TorchStep(settings, threads, built.initial_state)
    batch = tokens(settings, settings.batch_size)
    count = iter(range(1 << 30))
    default = str(_core.isa())
    isas = (default, "avx2") if default == "avx512" else (default,)

    def ours() -> None:
        executor.run_step(state, {"tokens": batch}, {"lr": settings.lr}, (0, next(count)))

    samples: dict[str, list[float]] = {isa: [] for isa in isas}
    torch_samples: list[float] = []
    try:
        for isa in isas:
            _core.set_isa(isa)
            ours()
        variants = _fastest(theirs, TorchStep.VARIANTS, max(2, repeats // 3))
        anchor = min(variants, key=lambda name: variants[name])
        theirs.use(anchor)
        for _ in range(repeats):
            for isa in isas:
                _core.set_isa(isa)
                samples[isa].append(_seconds(ours))
            torch_samples.append(_seconds(theirs))
    finally:
        _core.set_isa(default)
    common = {
        "unit": "ratio",
        "target": TIME_TARGET if model.name.startswith("gpt2-124m") else None,
        "anchor": f"torch eager float32, AdamW {anchor}",
        "anchor_variants": variants,
        "anchor_seconds": statistics.median(torch_samples),
        "least_anchor_seconds": min(torch_samples),
        "threads": threads,
        "repeats": repeats,
        "load": _load(),
    }
    return [
        {
            "name": f"step/{model.name}{'' if isa == default else '/' + isa}/time_ratio",
            "value": statistics.median(samples[isa]) / statistics.median(torch_samples),
            "isa": isa,
            "seconds": statistics.median(samples[isa]),
            "least_seconds": min(samples[isa]),
            **common,
        }
        for isa in isas
    ]


def _load() -> float | None:
    """Runnable processes on the machine, a minute's mean; None where the system has none."""
    try:
        return round(os.getloadavg()[0], 1)
    except (AttributeError, OSError):
        return None


# ---- memory -------------------------------------------------------------------------------------
def _child(engine: str, job: Path, settings: Gpt2Settings, threads: int, steps: int) -> Any:
    """The output of `step_side`: bytes at the start, and at the peak of `steps` steps."""
    arguments = {
        "engine": engine,
        "job": str(job),
        "settings": {k: getattr(settings, k) for k in settings.__dataclass_fields__},
        "threads": threads,
        "steps": steps,
    }
    done = subprocess.run(
        process.command("tallystick_bench.step_side", json.dumps(arguments)),
        env=process.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotCheckError(
            f"The process that measures {engine}'s memory failed: {done.stderr.strip()[-500:]}",
            "Run it where there is more memory.",
        )
    return json.loads(done.stdout)


def memory_rows(
    model: Model, job: Path, threads: int, anchor: str, steps: int = 3
) -> list[dict[str, Any]]:
    """Peak resident memory, ours over torch's: of the whole process, and without its start."""
    ours = _child(Engines.OURS, job, model.settings, threads, steps)
    theirs = _child(anchor, job, model.settings, threads, steps)
    net = [side["peak"] - side["start"] for side in (ours, theirs)]
    common = {
        "unit": "ratio",
        "target": MEMORY_TARGET if model.name.startswith("gpt2-124m") else None,
        "anchor": f"torch eager float32, AdamW {anchor}",
        "threads": threads,
        "steps": steps,
    }
    return [
        {
            "name": f"step/{model.name}/memory_ratio",
            "value": ours["peak"] / theirs["peak"],
            "bytes": ours["peak"],
            "anchor_bytes": theirs["peak"],
            **common,
        },
        {
            "name": f"step/{model.name}/net_memory_ratio",
            "value": net[0] / net[1],
            "bytes": net[0],
            "anchor_bytes": net[1],
            **common,
        },
    ]


# ---- committing ---------------------------------------------------------------------------------
@dataclass
class _Window(Silent):
    """Wall time from before the first step until after the last checkpoint of a run."""

    began: float = 0.0
    ended: float = 0.0
    steps: int = 0

    def begin(self, job: Job, start: int) -> None:
        self.began = time.perf_counter()

    def step(self, step: int, loss: float, seconds: float) -> None:
        self.ended = time.perf_counter()
        self.steps += 1


@contextmanager
def _timed_steps() -> Iterator[list[float]]:
    """Seconds of every `Executor.run_step` in the block: the step without commitments."""
    seconds: list[float] = []
    original = Executor.run_step

    def timed(self: Executor, *args: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = original(self, *args, **named)
        seconds.append(time.perf_counter() - start)
        return result

    Executor.run_step = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Executor.run_step = original  # type: ignore[method-assign]


def commit_row(model: Model, job: Job, out: Path, threads: int) -> dict[str, Any]:
    """Time of a run through the trainer over the time of its bare steps, in one run.

    All time between the first step and the last checkpoint counts as committing, except the
    program's execution: hashing, journal, storing with fsync, batches, chains. One run serves as
    its own baseline, so that other work on the machine touches both sides alike.
    """
    window = _Window()
    with _timed_steps() as bare:
        summary = train_job(job, out, Options(ExecutionContext(threads), keep=1), window)
    whole, alone = window.ended - window.began, sum(bare)
    stored = sorted((out / "checkpoints").glob("*.safetensors"))
    return {
        "name": f"commit/{model.name}/overhead_ratio",
        "value": whole / alone,
        "unit": "ratio",
        "target": COMMIT_TARGET if model.name.startswith("gpt2-124m") else None,
        "anchor": "the same steps without commitments",
        "threads": threads,
        "steps": window.steps,
        "interval": job.interval,
        "hashed": len(summary.checkpoints) - 1,
        "stored_at_end": len(stored),
        "stored_bytes": stored[-1].stat().st_size if stored else 0,
        "seconds": whole,
        "anchor_seconds": alone,
        "load": _load(),
    }


def _built(model: Model, steps: int) -> Built:
    return build(model.settings, {}, steps, 0)


def rows(
    threads: int | None = None,
    repeats: int = 7,
    models: tuple[str, ...] = tuple(MODELS),
    parts: tuple[str, ...] = ("time", "memory", "commit"),
    commit_steps: int = 3 * INTERVAL,
) -> list[dict[str, Any]]:
    """Measures `parts` of every model and returns their rows.

    `value` of a time or memory row is ours over torch's float32, on `threads` threads each (by
    default what the core uses); of a commit row, a trained run over its bare steps. Raises
    UsageError for an unknown model or part, CannotCheckError where a process fails.
    """
    import torch

    for given, known in ((models, tuple(MODELS)), (parts, ("time", "memory", "commit"))):
        odd = set(given) - set(known)
        if odd:
            raise UsageError(f"There is no {sorted(odd)[0]!r}.", f"Choose from {', '.join(known)}.")
    used = threads or int(_core.threads())
    before = (_core.threads(), torch.get_num_threads())
    found: list[dict[str, Any]] = []
    try:
        for name in models:
            found += _rows_of(MODELS[name], used, repeats, parts, commit_steps)
    finally:
        _core.set_threads(before[0])
        torch.set_num_threads(before[1])
    return found


def _rows_of(
    model: Model, threads: int, repeats: int, parts: tuple[str, ...], commit_steps: int
) -> list[dict[str, Any]]:
    built = _built(model, commit_steps)
    found: list[dict[str, Any]] = []
    anchor = TorchStep.VARIANTS[0]
    if "time" in parts:
        found += time_rows(model, built, threads, repeats)
        variants: Mapping[str, float] = found[0]["anchor_variants"]
        anchor = min(variants, key=lambda name: variants[name])
    if model.name.endswith("-no-dropout") or not {"memory", "commit"} & set(parts):
        return found
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as directory:
        job = job_for(built, model.settings, Path(directory) / "job", commit_steps)
        del built
        if "memory" in parts:
            found += memory_rows(model, job.directory, threads, anchor)
        if "commit" in parts:
            found.append(commit_row(model, job, Path(directory) / "run", threads))
    return found
