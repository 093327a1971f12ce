"""`bench ovt`: what "Optimistic Verifiable Training" shows, of its method and of ours beyond it.

Divergence between kinds of hardware, storage, corrections, thresholds, exact sums, time, memory.
Each part of each model has a file of raw results in `--out`, so that a measurement of an hour can
be cut off and taken up again; rows, plots and docs/OVT.md are made from those files.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick.cli.bench_ovt_arms import hardware
from tallystick.cli.bench_ovt_lockstep import Child, children
from tallystick.cli.bench_ovt_models import LARGE, LONG, MODELS, QUICK, Model, job_of, sources_of
from tallystick.cli.bench_ovt_plots import draw, have_matplotlib
from tallystick.cli.bench_ovt_rows import PARTS, rows_of
from tallystick.cli.bench_ovt_store import part_file, read_all
from tallystick.cli.output import note
from tallystick.errors import UsageError
from tallystick.run.job import Job

# The part of each name is the module whose `measure(part, context)` makes its entries.
_MODELS: dict[str, tuple[str, ...]] = {
    "divergence": LONG,
    "storage": LARGE,
    "corrections": LONG,
    "thresholds": ("layers",),
    "escalation": LARGE,
    "time": LARGE,
    "memory": LARGE,
}


@dataclass
class Context:
    """What every part needs: the amount of work, the data, and jobs, made once a model."""

    quick: bool
    threads: int
    work: Path
    text: Path | None = None
    cifar10: Path | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)
    made: list[Child] = field(default_factory=list)

    def job(self, name: str) -> Job:
        """The job of the model called `name`, over the data given, under `ordered/1`."""
        if name not in self.jobs:
            model = MODELS[name]
            sources = sources_of(model, self.text, self.cifar10, self.work)
            self.jobs[name] = job_of(model, self.work / f"job-{name}", sources, 1000)
        return self.jobs[name]

    def children(self) -> list[Child]:
        """A process for each kind of hardware, until the measurement ends."""
        if not self.made:
            work = self.work / "children"
            work.mkdir()
            self.made = self.stack.enter_context(children(hardware(), work, 1))
        return self.made

    def data(self, model: Model) -> str:
        """Where a model's data comes from, in words without a path."""
        if model.is_text:
            return self.text.name if self.text else "documentation strings of the standard library"
        if self.cifar10 is None:
            return "synthetic clusters"
        return f"CIFAR-10, the middle {model.crop}×{model.crop}" if model.crop else "CIFAR-10"


def models_of(part: str, quick: bool) -> tuple[str, ...]:
    """The models that a part measures."""
    if part == "thresholds":
        return _MODELS[part]
    if quick:
        return QUICK if part in ("divergence", "storage") else QUICK[:1]
    return _MODELS[part]


def _about(part: str, name: str, context: Context) -> dict[str, Any]:
    from tallystick.cli.bench import machine

    # The core's own thread count at this moment says nothing about the measurement.
    about: dict[str, Any] = {"machine": machine() | {"threads": context.threads}}
    if name in MODELS:
        model = MODELS[name]
        about |= {
            "recipe": model.recipe,
            "settings": dict(model.pairs),
            "data": context.data(model),
        }
    module = importlib.import_module(f"tallystick.cli.bench_ovt_{part}")
    return about | dict(module.about(context.quick))


def measure(parts: Sequence[str], out: Path, context: Context) -> None:
    """Measures what `out` does not hold yet of `parts`, entry by entry."""
    for part in parts:
        module = importlib.import_module(f"tallystick.cli.bench_ovt_{part}")
        for name in models_of(part, context.quick):
            with part_file(out, part, name, _about(part, name, context)) as file:
                module.measure(file, context)


def rows(
    threads: int | None = None,
    *,
    parts: Sequence[str] = (),
    quick: bool = False,
    out: Path | None = None,
    text: Path | None = None,
    cifar10: Path | None = None,
) -> list[dict[str, Any]]:
    """The rows of `bench ovt`: of `parts`, or of all. With `out`, raw results and plots too.

    Raises UsageError for an unknown part or results made with other settings, StorageError where
    another process writes them, CannotCheckError where a process fails.
    """
    odd = [part for part in parts if part not in PARTS]
    if odd:
        raise UsageError(f"bench ovt has no part {odd[0]!r}.", f"Choose from {', '.join(PARTS)}.")
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as temporary:
        directory = out or Path(temporary) / "out"
        context = Context(quick, threads or int(_core.threads()), Path(temporary), text, cifar10)
        with context.stack:
            measure(parts or PARTS, directory, context)
        results = read_all(directory)
        if out is not None:
            if have_matplotlib():
                draw(results, out)
            else:
                note("No plots: matplotlib is not installed (pip install 'tallystick[report]').")
        chosen = {key: file for key, file in results.items() if key[0] in (parts or PARTS)}
        return rows_of(chosen)
