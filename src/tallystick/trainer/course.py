"""A course: what a training is made of, whatever loop it was read from; and the way from it to a
job, to a signed run, and back into the module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tallystick.api import PathLike, PrivateKey, train
from tallystick.cli.output import note
from tallystick.commit.tensor import Array
from tallystick.disk.anew import refuse_strangers
from tallystick.disk.files import remove_tree
from tallystick.disk.regular import present
from tallystick.errors import UsageError
from tallystick.job.job import JOB_DIRECTORY, MANIFEST, Job
from tallystick.job.job_file import load_job
from tallystick.job.save import save_job
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture.api import CapturedStep, capture, capture_eval
from tallystick.program.validation import StopRule
from tallystick.run.execute.listener import Listener
from tallystick.run.show.summary import RunSummary
from tallystick.trainer.weights import load_weights

if TYPE_CHECKING:
    from tallystick.program.capture.trace import BatchLoss

JOB, RUN = "job", "run"


@dataclass(frozen=True)
class Validation:
    """Held-out records, their loss, and when it is taken: after each `every` training steps."""

    loss: BatchLoss
    records: Mapping[str, Array]
    batch_size: int
    every: int
    rule: StopRule = field(default_factory=StopRule)


@dataclass(frozen=True)
class Course:
    """A training: `steps` updates of `module` over batches of `batch_size` of the `records`.

    `loss(module, batch)` gets a dict of tensors, or with `loss_over="sum"` returns (sum, count), as
    for `tallystick.capture`. `records` maps a name to an array (N, *shape of one record).
    """

    module: nn.Module
    loss: BatchLoss
    records: Mapping[str, Array]
    optimizer: Any
    batch_size: int
    steps: int
    schedules: Any = None
    clip_norm: float | None = None
    clip_value: float | None = None
    micro_batches: int = 1
    loss_over: str = "mean"
    validation: Validation | None = None
    seed: int = 0
    order_seed: int | None = None
    contract: str = ORDERED_1

    @property
    def record_count(self) -> int:
        return len(next(iter(self.records.values())))

    @cached_property
    def step(self) -> CapturedStep:
        """The training step. Raises the errors of `capture`."""
        accumulated: dict[str, Any] = {}
        if self.micro_batches > 1:
            accumulated = {"micro_batches": self.micro_batches, "loss_over": self.loss_over}
        return capture(
            self.module,
            self.loss,
            _example(self.records, self.batch_size),
            self.optimizer,
            clip_norm=self.clip_norm,
            clip_value=self.clip_value,
            contract=self.contract,
            **accumulated,
        )

    def save(
        self, directory: Path, compare_first_step: bool = True, overwrite: bool = False
    ) -> Job:
        """Write the job. Raises the errors of `capture` and `save_job`."""
        held = self.validation
        given: dict[str, Any] = {}
        if held is not None:
            example = _example(held.records, held.batch_size)
            program = capture_eval(self.module, held.loss, example, self.contract, step=self.step)
            given = {
                "validation": held.records,
                "eval_program": program,
                "evaluate_every": held.every,
                "stop_rule": held.rule,
            }
        return save_job(
            self.step,
            directory,
            self.records,
            steps=self.steps,
            seed=self.seed,
            order_seed=self.order_seed,
            schedules=self.schedules,
            compare_first_step=compare_first_step,
            overwrite=overwrite,
            **given,
        )


def _example(records: Mapping[str, Array], size: int) -> dict[str, Any]:
    """A batch of `size` records without values."""
    return {
        name: torch.empty((size, *a.shape[1:]), dtype=torch.from_numpy(a[:1]).dtype, device="meta")
        for name, a in records.items()
    }


def order_sentence(course: Course) -> str:
    """What a person who knows the loop must know of the job's order."""
    n, size = course.record_count, course.batch_size
    told = f"The order of the {n} records follows the job's seed, not a sampler"
    if n % size:
        told += f"; batches stay {size} long, so one at the end of an epoch goes on in the next"
    return f"{told}: {course.steps} steps."


def job_of(course: Course, out: Path, overwrite: bool = False) -> Job:
    """The course's job in `out`: written, or the one that is there if it is the same. With
    `overwrite` it is written anew.

    Raises UsageError where another job is there.
    """
    directory = out / JOB
    if not present(directory / MANIFEST):  # what a killed writer left is written again
        return course.save(directory)
    if overwrite:
        return course.save(directory, overwrite=True)
    fresh = out / f"{JOB}.new"
    refuse_strangers(fresh, JOB_DIRECTORY.is_own)
    remove_tree(fresh)
    try:
        digest = course.save(fresh, compare_first_step=False).digest
    finally:
        remove_tree(fresh)
    job = load_job(directory)
    if job.digest != digest:
        raise UsageError(
            f"{out} holds another job: its model, data, optimizer or settings are not these.",
            "Choose another output directory, or pass overwrite=True. A module that was trained "
            "already makes a new job.",
        )
    return job


def carry_out(
    course: Course,
    out: PathLike,
    *,
    threads: int | None = None,
    device: str = "cpu",
    key: PrivateKey | PathLike | None = None,
    listener: Listener | None = None,
    progress: bool = True,
    best: bool = False,
    overwrite: bool = False,
) -> RunSummary:
    """Train the course in `out`: its job in `job`, its signed run in `run`; or go on with the run
    there. Afterwards the module has the final weights, with `best` those of the best pass, and
    tensors that the loss keeps outside of it have their values of then (PROGRAM 5.20). With
    `overwrite` job and run are made anew.

    Raises KeyboardInterrupt when interrupted (the same call goes on), the errors of `capture`,
    `save_job` and `tallystick.train`, and UsageError where `out` holds another job.
    """
    out = Path(out)
    note(order_sentence(course))
    job = job_of(course, out, overwrite)
    result = train(
        job,
        out / RUN,
        threads=threads,
        device=device,
        key=key,
        listener=listener,
        progress=progress,
        overwrite=overwrite,
    )
    if best and not any(loss < float("inf") for _, loss in result.validation):
        note("No pass of validation came to a number: the module gets the last weights.")
        best = False
    load_weights(course.module, out / RUN, best=best, outside=course.step.outside)
    return result
