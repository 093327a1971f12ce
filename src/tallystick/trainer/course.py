"""A course: what a training is made of, whatever loop it was read from; and the way from it to a
job, to a signed run, and back into the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from tallystick.api import PathLike, PrivateKey, train
from tallystick.commit.stream import SEQUENTIAL, SHUFFLED
from tallystick.commit.tensor import Array
from tallystick.commit.timetable import MOST_PROGRAMS
from tallystick.disk.files import remove_tree
from tallystick.disk.manifest import refuse_strangers
from tallystick.disk.regular import present
from tallystick.errors import MovingStateError, UnsupportedOperatorError, UsageError
from tallystick.job.job import JOB_DIRECTORY, MANIFEST, Job
from tallystick.job.job_file import load_job
from tallystick.job.reading import HeldOut
from tallystick.job.save import about_steps, save_by_step, save_job
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture.api import Pass, Preparation, capture_pass
from tallystick.program.capture.between import LossCalls
from tallystick.program.capture.by_step import StepPrograms, captured_by_step
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.known import KnownSteps
from tallystick.program.capture.later import BATCH, prepared_group
from tallystick.program.capture.moments import Live
from tallystick.program.capture.plain import original, uncompiled
from tallystick.program.capture.walked import walked_by_step
from tallystick.program.update import Clip
from tallystick.program.validation import StopRule
from tallystick.run.execute.listener import Listener
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.export import Which, weights_of
from tallystick.terminal.lines import note
from tallystick.trainer.settings import CourseSettings, options_of, rates_of


def load_weights(
    module: nn.Module, run: Path, *, best: bool = False, outside: Carried | None = None
) -> int:
    """Load the final weights of `run` into `module`, with `best` those after the best pass of
    committed validation; returns their step. What `torch.compile` wrapped has the names that the
    capture gave it: those of the module inside. The tensors of `outside` get their values too.
    Raises the errors of `weights_of`."""
    found = weights_of(run, None, Which(best=best))
    # A file's arrays are read-only views; torch only reads them, and asks for its own.
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in found.tensors.items()}
    written = original(module)
    with uncompiled(written):
        held = written.state_dict()
        own = {name: held[name] for name in _slots_of(written, outside) if name in held}
        written.load_state_dict(own | tensors, strict=True)
    if outside is not None:
        outside.load({
            name: torch.from_numpy(np.array(found.unsaved[name])) for name in outside.tensors()
        })  # fmt: skip
    if best:
        note(f"The model gets the weights after step {found.step}, those of the best pass.")
    return found.step


def _slots_of(module: nn.Module, outside: Carried | None) -> list[str]:
    """The buffers of the module that are slots of `outside`: None at first (PROGRAM 5.20 g)."""
    kept = [] if outside is None else outside.kept
    places = {(id(spot.place.holder), spot.place.key) for one in kept for spot in one.spots}
    return [
        f"{path}.{key}".removeprefix(".")
        for path, child in module.named_modules()
        for key in child._buffers
        if {(id(child), key), (id(child._buffers), key)} & places
    ]


JOB, RUN = "job", "run"


@dataclass(frozen=True)
class Validation:
    """Held-out records, their loss, and when it is taken: after each `every` training steps. The
    loss gets the `numbers` of the pass, and is the same in all of them."""

    loss: Callable[..., Any]
    records: Mapping[str, Array]
    batch_size: int
    every: int
    numbers: KnownSteps
    rule: StopRule = field(default_factory=StopRule)

    @property
    def count(self) -> int:
        return len(next(iter(self.records.values())))


@dataclass(frozen=True)
class Course:
    """A training: `steps` updates of `module` over batches of `batch_size` of the `records`.

    `loss(module, batch)` gets a dict of tensors, or with `loss_over="sum"` returns (sum, count), as
    for `tallystick.capture`. `records` maps a name to an array (N, *shape of one record). An epoch
    has the first `epoch_records` of its `order`; its last update may have fewer than a batch, and
    fewer micro-batches (`later.py`). Both losses get as their last argument the `numbers`
    that are known of each step (PROGRAM 5.21). `settings` are those of its steps where they differ
    (5.22): then it has the rates and the bound for the norm as well.
    """

    module: nn.Module
    loss: Callable[..., Any]
    records: Mapping[str, Array]
    optimizer: Any
    batch_size: int
    steps: int
    numbers: KnownSteps
    schedules: Any = None
    clip_norm: float | None = None
    clip_value: float | None = None
    micro_batches: int = 1
    loss_over: str = "mean"
    shrinks: bool = False
    order: str = SHUFFLED
    epoch_records: int | None = None
    validation: Validation | None = None
    seed: int = 0
    order_seed: int | None = None
    contract: str = ORDERED_1
    settings: CourseSettings | None = None

    @property
    def record_count(self) -> int:
        return len(next(iter(self.records.values())))

    @property
    def taken(self) -> int:
        """The records of an epoch."""
        return self.record_count if self.epoch_records is None else self.epoch_records

    @property
    def epoch_steps(self) -> int:
        """The updates of an epoch."""
        return -(-self.taken // self.batch_size)

    def save(
        self, directory: Path, compare_first_step: bool = True, overwrite: bool = False
    ) -> Job:
        """Write the job. Raises the errors of `capture` and `save_job`."""
        found = self.programs
        given: dict[str, Any] = {
            "seed": self.seed,
            "order_seed": self.order_seed,
            "order": self.order,
            "epoch_end": self.taken,
            "schedules": self._schedules(),
            "compare_first_step": compare_first_step,
            "held": self._held(),
            "overwrite": overwrite,
        }
        step, *others = found.programs
        by_size = found.of_steps == tuple(map(self._form_of, range(self.steps)))
        if (
            by_size
            and self.settings is None
            and all(other.scalars == step.scalars for other in others)
        ):
            short, said = others[0] if others else None, about_steps(found)
            given |= {"steps": self.steps, "short": short, "about": said}
            return save_job(step, directory, self.records, **given)
        return save_by_step(directory, found, self.records, **given)

    def _sizes(self) -> list[int]:
        """The records of an update, and of an epoch's last one where the run reaches one that has
        fewer."""
        size, last = min(self.batch_size, self.taken), self.taken % self.batch_size
        short = self.taken > size and last and self.steps >= self.epoch_steps
        return [size, last] if short else [size]

    def _form_of(self, step: int) -> int:
        """The number of a step's form: its size in `_sizes`, and its setting."""
        sizes = len(self._sizes())
        ends = (step + 1) % self.epoch_steps == 0
        setting = 0 if self.settings is None else self.settings.of_steps[step]
        return setting * sizes + (1 if ends and sizes > 1 else 0)

    @cached_property
    def programs(self) -> StepPrograms:
        """The programs of the training steps. Raises the errors of `capture`, and UsageError for a
        loss that writes into the optimizer: its groups are no result of a step."""
        before = _groups_of(self.optimizer)
        found = self._programs()
        if _groups_of(self.optimizer) != before:
            raise UsageError(
                "The loss changes the optimizer's groups while it runs.",
                "Use a scheduler, or change them in a callback.",
            )
        return found

    def _programs(self) -> StepPrograms:
        held = self.validation
        passes = 0 if held is None else 3 if held.count % held.batch_size else 2
        forms, most = set(map(self._form_of, range(self.steps))), MOST_PROGRAMS - passes
        if len(forms) > most:
            raise UsageError(
                f"The {self.steps} steps have {len(forms)} combinations of trained parameters, "
                f"options and sizes. Each is a program, and a job has at most {most}.",
                "Use fewer values for weight_decay, the norm's bound and the frozen parameters. "
                "Learning rates may differ in every step.",
            )
        kinds = 1 if self.settings is None else len(self.settings.kinds)
        prepared = [self._prepared(size, kind) for kind in range(kinds) for size in self._sizes()]
        try:
            return captured_by_step(prepared, self.numbers, form_of=self._form_of, most=most)
        except UnsupportedOperatorError:
            raise
        except UsageError as error:
            if held is not None:
                raise  # a pass calls the loss too, between the steps
            return self._one_by_one(kinds, most, error, prepared)

    def _one_by_one(
        self, kinds: int, most: int, error: UsageError, tried: list[Preparation]
    ) -> StepPrograms:
        """The programs where no text of one batch is that of all: each batch of an update by
        itself; and each step by itself where state of Python moves. Raises `error`, or what a
        later step says."""
        numbers, sizes = self.numbers, self._sizes()
        apart, moves = self.micro_batches > 1, isinstance(error, MovingStateError)
        if not apart and not moves:
            raise error
        prepared = [self._prepared(size, kind, apart) for kind in range(kinds) for size in sizes]
        if apart:
            readable = {name: why for name, why in numbers.refused.items() if name != BATCH}
            numbers = replace(numbers, refused=readable)
            try:
                return captured_by_step(prepared, numbers, form_of=self._form_of, most=most)
            except UnsupportedOperatorError:
                raise
            except UsageError as other:
                moves = moves or isinstance(other, MovingStateError)
            if not moves:
                raise error
        found = walked_by_step(
            prepared, numbers, form_of=self._form_of, most=most, instead_of=error,
            tried=[*tried, *prepared],
        )  # fmt: skip
        note(
            f"The loss keeps state of Python between its calls: all {self.steps} steps were "
            "traced one by one, and the job has what each of them computes."
        )
        return found

    def _schedules(self) -> Any:
        if self.settings is None:
            return self.schedules
        return self.settings.schedules(self.module, self.optimizer)

    @cached_property
    def _passes(self) -> list[Pass]:
        """The evaluation of a whole batch of held-out records, and of a last short one."""
        held = self.validation
        if held is None:
            return []
        left, found = held.count % held.batch_size, []
        for size in [held.batch_size, left] if left else [held.batch_size]:
            captured = capture_pass(
                self.module, held.loss, _example(held.records, size), self.contract, committed=True,
                passes=held.numbers, step=self.programs.programs[0],
            )  # fmt: skip
            captured.refuse_shared(self.programs.programs, in_loop=True)
            found.append(captured)
        return found

    def _held(self) -> HeldOut | None:
        held = self.validation
        if held is None:
            return None
        whole, *short = [each.program for each in self._passes]
        return HeldOut(held.records, whole, held.every, held.rule, short[0] if short else None)

    @property
    def runs(self) -> list[Any]:
        """What the loop calls."""
        return [self.loss] if self.validation is None else [self.loss, self.validation.loss]

    @cached_property
    def live(self) -> Live | None:
        """What puts Python's state of a step into its places, where each step was by itself."""
        moments = self.programs.moments
        return None if moments is None else Live(moments)

    def calls(self) -> list[LossCalls] | None:
        """The calls of both losses, as they were traced; None where each step was by itself."""
        if self.programs.moments is not None:
            return None
        steps = [step.calls for step in self.programs.programs if step.calls is not None]
        return [*steps, *(each.calls for each in self._passes)]

    def _prepared(self, size: int, kind: int, apart: bool = False) -> Preparation:
        """The step over `size` records, in a setting; `apart` as of `prepared_group`."""
        if self.settings is None:
            return self._group(size, self.optimizer, self.clip_norm, apart)
        with self.settings.applied(self.module, kind):
            optimizer = self.settings.described(self.module, self.optimizer, kind)
            return self._group(size, optimizer, self.settings.kinds[kind].clip_norm, apart)

    def _group(
        self, size: int, optimizer: Any, clip_norm: float | None, apart: bool
    ) -> Preparation:
        return prepared_group(
            self.module,
            self.loss,
            _example(self.records, size),
            optimizer,
            each=self.batch_size // self.micro_batches,
            micro_batches=self.micro_batches,
            loss_over=self.loss_over,
            shrinks=self.shrinks,
            apart=apart,
            clip=Clip(clip_norm, self.clip_value),
            contract=self.contract,
        )


def _groups_of(optimizer: Any) -> Any:
    """The options and rates of a torch optimizer's groups; None for another one."""
    if not isinstance(optimizer, Optimizer):
        return None
    return options_of(optimizer), rates_of(optimizer)


def _example(records: Mapping[str, Array], size: int) -> dict[str, Any]:
    """A batch of `size` records without values."""
    return {
        name: torch.empty((size, *a.shape[1:]), dtype=torch.from_numpy(a[:1]).dtype, device="meta")
        for name, a in records.items()
    }


def order_sentence(course: Course) -> str:
    """How the job goes through the records, and for how many steps."""
    n, taken, size = course.record_count, course.taken, course.batch_size
    if course.order == SEQUENTIAL:
        told = f"The {n} records are read in their own order"
    else:
        told = (
            f"The {n} records are shuffled anew in each epoch, by the job's seed and not by "
            "torch's generator"
        )
    told += f"; an epoch has {course.epoch_steps} steps"
    if taken < n:
        told += f" and leaves out {n - taken} records"
    if taken > size and taken % size:
        told += f"; its last batch has {taken % size} of {size} records"
    return f"{told}. {course.steps} steps."


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
            f"{out} contains another job. The model, data, optimizer or settings differ, or the "
            "state that the loss keeps in Python.",
            "Choose another output directory, or pass overwrite=True. A module that was already "
            "trained makes a new job. So does a loss that continues from an earlier training (a "
            "counter, a hidden state). To start again, reset both.",
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
    tensors that the loss keeps outside of it have their values of then (PROGRAM 5.20); so has what
    Python keeps, where the steps were traced one by one (5.25 c). With `overwrite` job and run are
    made anew.

    Raises KeyboardInterrupt when interrupted (the same call goes on), the errors of `capture`,
    `save_job` and `tallystick.train`, and UsageError where `out` holds another job.
    """
    out = Path(out)
    note(order_sentence(course))
    job = job_of(course, out, overwrite)
    live = course.live
    try:
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
        if live is not None:
            live.finish()
        outside = course.programs.programs[0].outside
        load_weights(course.module, out / RUN, best=best, outside=outside)
        if live is not None:
            live.settle()
    except BaseException:
        if live is not None:
            live.restore()
        raise
    return result
