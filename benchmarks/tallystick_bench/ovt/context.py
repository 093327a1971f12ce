"""The context of every part of `bench ovt`: the amount of work, data, jobs, processes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.job.job import Job
from tallystick_bench.ovt.models import MODELS, Model, job_of, sources_of
from tallystick_bench.ovt.parties.arms import hardware
from tallystick_bench.ovt.parties.lockstep import Child, children


@dataclass
class Context:
    """The needs of every part: the amount of work, the data, and jobs, made once a model."""

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
        """The source of a model's data, in words without a path."""
        if model.is_text:
            return self.text.name if self.text else "documentation strings of the standard library"
        if self.cifar10 is None:
            return "synthetic clusters"
        return f"CIFAR-10, the middle {model.crop}×{model.crop}" if model.crop else "CIFAR-10"
