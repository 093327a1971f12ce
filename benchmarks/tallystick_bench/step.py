"""A whole training step against PyTorch: time, peak memory, and the cost of commitments.

Ours and torch's step run the same module from the same weights, in one process, in turns. torch
takes the fastest of its own variants of the optimizer, and the faster of eager and torch.compile.
Peak memory is each side's own, in a fresh process. This module imports torch as the yardstick; the
core never computes with it. The recipe's GPT-2 is here; other models are in `step_models.py`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.recipes.base import Built
from tallystick.job.recipes.gpt2 import Gpt2Settings, build
from tallystick.job.save import save_job
from tallystick.program.executor import Executor
from tallystick.program.runner import Showing, StepInputs, StepResult
from tallystick.run.execute import checkpoints
from tallystick.run.execute.trainer import Options, Silent, train_job
from tallystick_bench.step_memory import memory_rows
from tallystick_bench.step_side import TorchStep
from tallystick_bench.step_time import load, time_rows

TIME_TARGET = 0.7
MEMORY_TARGET = 1.0
COMMIT_TARGET = 1.005
INTERVAL = 20
SAMPLED = 4  # the interval of the measured run: a fourth of its steps have a checkpoint beside them
_PARTS = ("time", "memory", "commit")


@dataclass(frozen=True)
class Model:
    """One model to measure: its name in rows and the recipe's settings."""

    name: str
    settings: Gpt2Settings


def gpt2(
    layers: int,
    heads: int,
    width: int,
    vocabulary: int,
    dropout: float,
    batch: int = 8,
    block: int = 64,
) -> Gpt2Settings:
    """The settings of a GPT-2 of these sizes, `batch` texts of `block` tokens a step."""
    return Gpt2Settings(
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        vocab_size=vocabulary,
        dropout=dropout,
        block_size=block,
        batch_size=batch,
        lr=6e-4,
        schedule="constant",
        warmup=0,
    )


MODELS = {
    model.name: model
    for model in (
        Model("gpt2-124m", gpt2(12, 12, 768, 50257, 0.1)),
        Model("gpt2-124m-no-dropout", gpt2(12, 12, 768, 50257, 0.0)),
        # One text, and two, of the context that GPT-2 was trained with: hashing weighs what it
        # weighs in real training.
        Model("gpt2-124m-context", gpt2(12, 12, 768, 50257, 0.1, 1, 1024)),
        Model("gpt2-124m-contexts", gpt2(12, 12, 768, 50257, 0.1, 2, 1024)),
        Model("gpt2-small", gpt2(4, 4, 128, 256, 0.1)),
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
        checkpoint_interval=SAMPLED,
        schedules={"lr": settings.lr},
        initial_state=built.initial_state,
        compare_first_step=False,
    )


# ---- time ---------------------------------------------------------------------------------------
def gpt2_time_rows(
    model: Model, built: Built, threads: int, repeats: int, compiled: bool
) -> list[dict[str, Any]]:
    """The rows of `time_rows` for the recipe's step."""
    settings = model.settings
    state = {name: array.copy() for name, array in built.initial_state.items()}
    _core.set_threads(threads)
    executor = Executor(built.captured.program)
    batch = tokens(settings, settings.batch_size)
    count = iter(range(1 << 30))

    def ours() -> None:
        executor.run_step(state, {"tokens": batch}, {"lr": settings.lr}, (0, next(count)))

    theirs = TorchStep(settings, threads, built.initial_state)
    target = TIME_TARGET if model.name.startswith("gpt2-124m") else None
    return time_rows(model.name, target, ours, theirs, threads, repeats, compiled)


# ---- memory -------------------------------------------------------------------------------------
def gpt2_memory_rows(model: Model, job: Path, threads: int, anchor: str) -> list[dict[str, Any]]:
    """The rows of `memory_rows` for the recipe's step."""
    settings = asdict(model.settings)
    target = MEMORY_TARGET if model.name.startswith("gpt2-124m") else None
    return memory_rows(model.name, target, job, {"settings": settings}, threads, anchor)


# ---- committing ---------------------------------------------------------------------------------
@dataclass
class _Steps(Silent):
    """Seconds of each step of a run: the whole of it, its execution, and how long the execution
    waited for a checkpoint."""

    whole: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    last: float = 0.0

    def begin(self, job: Job, start: int) -> None:
        self.last = time.perf_counter()

    def step(self, step: int, loss: float, seconds: float) -> None:
        now = time.perf_counter()
        self.whole.append(now - self.last)
        self.last = now


@contextmanager
def _timed(steps: _Steps, thread: list[float]) -> Iterator[None]:
    """In the block, note every `Executor.execute` in `steps`, and in `thread` the processor
    seconds that each checkpoint took of the thread beside."""
    original = Executor.execute
    work = checkpoints.PendingCheckpoint.run

    def timed(
        self: Executor,
        state: Mapping[str, Any],
        inputs: StepInputs,
        showing: Showing | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        waited = 0.0

        def hook() -> None:
            nonlocal waited
            begun = time.perf_counter()
            if before_write is not None:
                before_write()
            waited = time.perf_counter() - begun

        start = time.perf_counter()
        result = original(self, state, inputs, showing, hook)
        steps.bare.append(time.perf_counter() - start - waited)
        steps.waited.append(waited)
        return result

    def counted(self: checkpoints.PendingCheckpoint) -> None:
        begun = time.thread_time()
        work(self)
        thread.append(time.thread_time() - begun)

    Executor.execute = timed  # type: ignore[method-assign]
    checkpoints.PendingCheckpoint.run = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Executor.execute = original  # type: ignore[method-assign]
        checkpoints.PendingCheckpoint.run = work  # type: ignore[method-assign]


def commit_row(
    model: Model,
    job: Job,
    out: Path,
    context: ExecutionContext,
    target: float = COMMIT_TARGET,
    keep: int = 1,
) -> dict[str, Any]:
    """The cost of committing with a checkpoint every INTERVAL steps, from one run of `job`.

    The run is its own baseline, so that other work on the machine touches both sides alike. A
    checkpoint begins at the end of one step and goes on beside the next: the medians of these two
    and of the other steps give the value. All but the execution of the program counts as
    committing: hashing, journal, storing, batches, chains, and what a step beside a checkpoint
    takes longer. The storing of the final state after the last step is in `end_seconds`.
    `accounted` is the same cost by adding up: the time that steps waited, and the thread's
    processor time over the context's threads.
    """
    steps, thread = _Steps(), list[float]()
    with _timed(steps, thread):
        summary = train_job(job, out, Options(context, keep=keep), steps)
        end = time.perf_counter() - steps.last
    interval, later = job.interval, range(1, len(steps.whole))
    before = [n for n in later if (n + 1) % interval == 0 and n + 1 in later]
    beside = [n for n in later if n % interval == 0]
    alone = [n for n in later if n not in (*before, *beside)]
    bare = median([steps.bare[n] for n in alone])
    first, second, other = (median([steps.whole[n] for n in at]) for at in (before, beside, alone))
    hidden = sum(steps.waited) + sum(thread[:-1]) / context.threads
    return {
        "name": f"commit/{model.name}/overhead_ratio",
        "value": (first + second + (INTERVAL - 2) * other) / (INTERVAL * bare),
        "unit": "ratio",
        "target": target if model.name.startswith("gpt2-124m") else None,
        "anchor": "the steps of the same run without a checkpoint beside them",
        "threads": context.threads,
        "isa": context.isa,
        "steps": len(steps.whole),
        "interval": INTERVAL,
        "interval_of_run": interval,
        "hashed": len(summary.checkpoints) - 1,
        "stored_at_end": len(list((out / "checkpoints").glob("*.safetensors"))),
        "stored_bytes": max(p.stat().st_size for p in (out / "checkpoints").iterdir()),
        "accounted": 1 + hidden / len(beside) / (INTERVAL * bare),
        "seconds_before": first,
        "seconds_beside": second,
        "seconds_alone": other,
        "seconds_bare": bare,
        "waited": [steps.waited[n] for n in beside],
        "thread_seconds": thread,
        "end_seconds": end,
        "load": load(),
    }


def built_for(model: Model, steps: int) -> Built:
    """The model's captured step and initial state."""
    return build(model.settings, {}, steps, 0)


def rows(
    threads: int | None = None,
    repeats: int = 7,
    models: tuple[str, ...] = (),
    parts: tuple[str, ...] = (),
    commit_steps: int = 3 * INTERVAL,
    compiled: bool = True,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Measures `parts` (of time, memory, commit; all by default) of every model; gives the rows.

    `models` are names of `MODELS` and of `step_models.NETS` (all by default), or FILE.py:FUNCTION.
    `value` of a time or memory row is ours over torch's float32, on `threads` threads each (by
    default what the core uses); of a commit row, a trained run over its bare steps. Only GPT-2
    has commit rows. Without `compiled`, torch.compile is left out. With `device`, the name of a
    GPU: the rows of device_step. Raises UsageError for an unknown model or part, CannotCheckError
    where a process fails.
    """
    import torch

    from tallystick_bench import step_nets
    from tallystick_bench.step_models import NETS, net

    odd = set(parts) - set(_PARTS)
    if odd:
        raise UsageError(f"There is no {sorted(odd)[0]!r}.", f"Choose from {', '.join(_PARTS)}.")
    chosen, wanted = models or (*MODELS, *NETS), parts or _PARTS
    for name in chosen:
        if name not in MODELS and name not in NETS:
            net(name)  # refuses an unknown one before anything is measured
    if device is not None:
        from tallystick_bench import device_step

        return device_step.rows(device, models, wanted, commit_steps, compiled)
    used = threads or int(_core.threads())
    before = (_core.threads(), torch.get_num_threads())
    found: list[dict[str, Any]] = []
    try:
        for name in chosen:
            if name in MODELS:
                found += _rows_of(MODELS[name], used, repeats, wanted, commit_steps, compiled)
            else:
                found += step_nets.rows_of(name, used, repeats, wanted, compiled)
    finally:
        _core.set_threads(before[0])
        torch.set_num_threads(before[1])
    return found


def _rows_of(
    model: Model,
    threads: int,
    repeats: int,
    parts: tuple[str, ...],
    commit_steps: int,
    compiled: bool,
) -> list[dict[str, Any]]:
    built = built_for(model, commit_steps)
    found: list[dict[str, Any]] = []
    anchor = TorchStep.VARIANTS[0]
    if "time" in parts:
        found += gpt2_time_rows(model, built, threads, repeats, compiled)
        variants: Mapping[str, float] = found[0]["anchor_variants"]
        anchor = min(variants, key=lambda name: variants[name])
    if model.name.endswith("-no-dropout") or not {"memory", "commit"} & set(parts):
        return found
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as directory:
        job = job_for(built, model.settings, Path(directory) / "job", commit_steps)
        del built
        if "memory" in parts:
            found += gpt2_memory_rows(model, job.directory, threads, anchor)
        if "commit" in parts:
            context = ExecutionContext(threads)
            found.append(commit_row(model, job, Path(directory) / "run", context))
    return found
