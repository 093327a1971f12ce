"""`bench step --device`: a captured step on a GPU against torch's on the same GPU, TF32 off.

Time is the median between two of CUDA's events around a whole step, with its batch and its loss
crossing the bus. Memory is what each side holds of the GPU after its steps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cuda.device import Cuda
from tallystick.numerics.types import type_of
from tallystick.program.executor import Executor
from tallystick.program.layout import new_tensor
from tallystick_bench.device_time import (
    call_seconds,
    device_of,
    facts,
    row,
    torch_on_gpu,
    torch_seconds,
)
from tallystick_bench.step import MODELS, Model, built_for, commit_row, job_for, tokens
from tallystick_bench.step_side import TorchStep
from tallystick_bench.step_time import Theirs, why_not_compiled

TIME_TARGET = 1.1
MEMORY_TARGET = 1.1
COMMIT_TARGET = 1.01
DEFAULT_MODELS = ("gpt2-124m", "gpt2-124m-no-dropout", "llama-100m", "resnet-50")


class Movable(Theirs, Protocol):
    """torch's step, which can go on on another device."""

    def to(self, device: str) -> None: ...


@dataclass
class _Sides:
    """A call that takes our step, and how to make torch's on the processor."""

    ours: Callable[[], object]
    theirs: Callable[[], Movable]


def on_device(device: Cuda, array: np.ndarray) -> Any:
    """`array` as a tensor of the device."""
    there = new_tensor(device, type_of(array))
    device.write(array, there)
    return there


def gpt2_sides(device: Cuda, model: Model) -> _Sides:
    """The recipe's step, from the same weights."""
    built, settings = built_for(model, 20), model.settings
    executor = Executor(built.captured.program, ExecutionContext(device=device))
    state = {name: on_device(device, array) for name, array in built.initial_state.items()}
    batch, count = tokens(settings, settings.batch_size), iter(range(1 << 30))

    def ours() -> None:
        executor.run_step(state, {"tokens": batch}, {"lr": settings.lr}, (0, next(count)))

    return _Sides(ours, lambda: TorchStep(settings, _core.threads(), built.initial_state))


def _net_sides(device: Cuda, name: str) -> _Sides:
    from tallystick_bench.step_models import net
    from tallystick_bench.step_nets import TorchNet, captured, ours

    given = net(name)
    context = ExecutionContext(device=device)
    threads = int(_core.threads())
    _, run = ours(given, captured(given), threads, context, lambda x: on_device(device, x))
    return _Sides(run, lambda: TorchNet(given, threads))


def _their_seconds(torch: Any, step: Movable, compiled: bool) -> tuple[dict[str, float], str]:
    """Median seconds of torch's step under every variant of its optimizer, and of the fastest one
    through torch.compile; why it could not be compiled, else empty."""
    found = {}
    for variant in step.VARIANTS:
        step.use(variant)
        found[f"eager {variant}"] = torch_seconds(torch, step, 15)
    if not compiled:
        return found, "not asked for"
    fastest = min(step.VARIANTS, key=lambda variant: found[f"eager {variant}"])
    step.use(fastest)
    failure = why_not_compiled(step)
    if not failure:
        step.compile(True)
        found[f"compile {fastest}"] = torch_seconds(torch, step, 15)
        step.compile(False)
    return found, failure


def measure(
    device: Cuda,
    title: str,
    sides: Callable[[], _Sides],
    parts: Sequence[str],
    compiled: bool = True,
    samples: int = 15,
) -> list[dict[str, Any]]:
    """Rows of time and of memory of one model. torch eager float32 is the anchor; torch.compile
    stands beside it. Where torch has no GPU, our values alone."""
    before = _in_use(device) if "memory" in parts else 0
    both = sides()
    ours = call_seconds(device, both.ours, samples)
    used = _in_use(device) - before if "memory" in parts else 0
    common = facts(device)
    torch, found = torch_on_gpu(), []
    theirs, anchor, peak = None, {}, None
    if torch is not None:
        step = both.theirs()
        step.to("cuda")
        torch.cuda.empty_cache()  # of a model before
        torch.cuda.reset_peak_memory_stats()
        times, failure = _their_seconds(torch, step, compiled)
        name = min((k for k in times if k.startswith("eager")), key=lambda k: times[k])
        theirs, peak = times[name], torch.cuda.max_memory_reserved()
        anchor = {
            "anchor": f"torch {name} float32",
            "anchors": times,
            "anchor_seconds": theirs,
            "ratios": {k: ours / v for k, v in times.items()},
            "compile_failure": failure,
        }
    if "time" in parts:
        found.append({"target": TIME_TARGET, "seconds": ours, **anchor, **common,
                      **row(f"step/{title}", "time", ours, "s", theirs)})  # fmt: skip
    if "memory" in parts:
        held = {"target": MEMORY_TARGET, "anchor": "torch.cuda.max_memory_reserved",
                "bytes": used, "anchor_bytes": peak}  # fmt: skip
        found.append({**held, **common, **row(f"step/{title}", "memory", used, "bytes", peak)})
    return found


def _in_use(device: Cuda) -> int:
    """Bytes of the GPU that are not free."""
    driver: Any = device.driver
    free, total = driver.memory()
    return int(total - free)


def rows(
    name: str, models: Sequence[str], parts: Sequence[str], commit_steps: int, compiled: bool
) -> list[dict[str, Any]]:
    """The rows of `parts` of every model on the GPU called `name`. Only GPT-2 has commit rows."""
    device, found = device_of(name), []
    for model in models or DEFAULT_MODELS:
        if model not in MODELS:
            sides = partial(_net_sides, device, model)
            found += measure(device, model.rpartition(":")[2], sides, parts, compiled)
            continue
        own = MODELS[model]
        if {"time", "memory"} & set(parts):
            sides = partial(gpt2_sides, device, own)
            found += measure(device, model, sides, parts, compiled)
        if "commit" in parts and not model.endswith("-no-dropout"):
            with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as directory:
                built = built_for(own, commit_steps)
                job = job_for(built, own.settings, Path(directory) / "job", commit_steps)
                del built
                context = ExecutionContext(device=device)
                committed = commit_row(own, job, Path(directory) / "run", context, COMMIT_TARGET)
                found.append({**committed, **facts(device)})
    return found
