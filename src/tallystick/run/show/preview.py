"""The time, memory and disk that a run will take, measured on its first steps; no file stays."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tallystick.devices.context import ExecutionContext
from tallystick.disk.files import free_bytes
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.evaluation import Evaluator
from tallystick.run.logs.training import scratch_logs
from tallystick.run.show.estimate import DiskEstimate, estimate_disk, human_bytes, human_seconds
from tallystick.run.store.directory import state_file_bytes

_STEPS = 3
_BATCHES = 8


@dataclass(frozen=True)
class RunEstimate:
    """The seconds, bytes on disk and bytes in memory that a run of `steps` steps takes."""

    steps: int
    step_seconds: float
    hash_seconds: float
    checkpoints: int
    disk: DiskEstimate
    disk_free: int
    memory_bytes: int
    isa: str
    threads: int
    evaluation_seconds: float = 0.0  # for all validation losses together

    @property
    def seconds(self) -> float:
        return (
            self.steps * self.step_seconds
            + self.checkpoints * self.hash_seconds
            + (self.evaluation_seconds)
        )

    def _validation(self) -> str:
        if not self.evaluation_seconds:
            return ""
        return f", {human_seconds(self.evaluation_seconds)} of validation"

    def sentence(self) -> str:
        return (
            f"time: about {human_seconds(self.seconds)} ({self.steps} steps of "
            f"{human_seconds(self.step_seconds)}{self._validation()}, {self.isa}, "
            f"{self.threads} threads); "
            f"memory: about {human_bytes(self.memory_bytes)}; {self.disk.sentence()}, "
            f"{human_bytes(self.disk_free)} free"
        )

    def as_dict(self) -> dict[str, object]:
        """The object of `train --estimate --json`."""
        return {
            "steps": self.steps,
            "seconds": self.seconds,
            "step_seconds": self.step_seconds,
            "hash_seconds": self.hash_seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "disk_bytes": self.disk.total,
            "log_bytes": self.disk.logs,
            "disk_free_bytes": self.disk_free,
            "memory_bytes": self.memory_bytes,
            "isa": self.isa,
            "threads": self.threads,
        }


def estimate_run(job: Job, out: Path, context: ExecutionContext, keep: int) -> RunEstimate:
    """Execute up to three steps of `job` in memory and estimate what the whole run will take."""
    state = job.genesis()
    with scratch_logs(job) as logs:
        engine = Engine(job, state, 0, context, log=logs)
        began = time.perf_counter()
        engine.root()
        hash_seconds = time.perf_counter() - began
        step_seconds = 0.0
        for _ in range(min(_STEPS, job.steps)):
            began = time.perf_counter()
            engine.run()
            step_seconds = time.perf_counter() - began
        log_bytes = job.steps * logs.bytes if logs is not None else 0
    return RunEstimate(
        job.steps,
        step_seconds,
        hash_seconds,
        job.steps // job.interval + 2,
        estimate_disk(job, state_file_bytes(state), keep, log_bytes),
        free_bytes(out),
        sum(t.nbytes for t in job.program.state_types.values()) + engine.arena_bytes,
        context.isa,
        context.threads,
        _evaluation_seconds(job, state, context),
    )


def _evaluation_seconds(job: Job, state: State, context: ExecutionContext) -> float:
    """The seconds of the run's validation losses, measured on a few batches of one loss."""
    if job.evaluation is None or not job.evaluation.every:
        return 0.0
    evaluator = Evaluator(job, context)
    total = job.evaluation.record_count // job.evaluation.batch_size
    few = min(_BATCHES, total)
    evaluator.loss(state.slots, batches=1)  # the first batch allocates
    began = time.perf_counter()
    evaluator.loss(state.slots, batches=few)
    once = (time.perf_counter() - began) / few * total
    return once * -(-job.steps // job.evaluation.every)
