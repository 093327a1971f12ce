"""`tallystick.fit`: a plain training loop, written as one call, as a signed run. A person's
listener beside a run hears its numbers, and changes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, default_collate

from tallystick.api import PathLike, PrivateKey
from tallystick.commit.stream import SEQUENTIAL, SHUFFLED
from tallystick.commit.tensor import Array
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture.stock_schedules import is_scheduler, rates_of
from tallystick.program.validation import StopRule
from tallystick.run.execute.listener import Listener
from tallystick.run.show.summary import RunSummary
from tallystick.trainer.course import Course, Validation, carry_out
from tallystick.trainer.numbers import Epochs, takes_numbers
from tallystick.trainer.python_watch import PythonWatch
from tallystick.trainer.records import collated, flatten, rebuilt
from tallystick.trainer.watching import Watch, refusal, told


class WatchedListener:
    """Passes each call on to `listener`, and looks at the training before and after it.

    Raises CallbackError, naming the listener, where it changes what the job fixes.
    """

    def __init__(self, listener: Listener, watch: Watch) -> None:
        self._listener, self._watch = listener, watch
        self._job: Job | None = None
        self._done = 0

    def _call(self, method: str, *given: Any) -> None:
        call: Callable[..., None] | None = getattr(self._listener, method, None)
        if call is None:
            return
        self._watch.at(self._done)
        before = self._watch.look(marks=True)
        call(*given)
        after = self._watch.look(marks=True)
        names, why = self._watch.changes(before, after)
        if names:
            who = f"{type(self._listener).__name__}.{method}"
            raise refusal(who, self._done, told(names, before, after), why)

    def notice(self, text: str) -> None:
        self._call("notice", text)

    def begin(self, job: Job, start: int) -> None:
        self._job, self._done = job, job.commitment.timetable.trained(start)
        self._call("begin", job, start)

    def step(self, step: int, loss: float, seconds: float) -> None:
        assert self._job is not None
        self._done = self._job.commitment.timetable.trained(step + 1)
        self._call("step", step, loss, seconds)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._call("metrics", step, values)

    def evaluated(self, step: int, loss: float) -> None:
        self._call("evaluated", step, loss)


def watched(listener: Listener | None, watch: Callable[[], Watch]) -> Listener | None:
    """`listener` under a watch, where a person wrote it: our own only report."""
    if listener is None or type(listener).__module__.partition(".")[0] == "tallystick":
        return listener
    return WatchedListener(listener, watch())


Loss = Callable[..., Tensor]


class RecordSource:
    """A DataLoader, or a Dataset or list with a batch size: its records, and the form in which its
    batches reach the loss. Raises UsageError for a loader whose records a job cannot have."""

    def __init__(self, data: Any, batch_size: int | None, what: str) -> None:
        self.what = what
        if isinstance(data, DataLoader):
            _check_loader(data, what)
            if batch_size not in (None, data.batch_size):
                raise UsageError(
                    f"The {what}'s DataLoader has batches of {data.batch_size}, but batch_size is "
                    f"{batch_size}.",
                    "Leave batch_size out.",
                )
            batch_size = data.batch_size
        if not hasattr(data, "__len__"):
            raise UsageError(
                f"The {what} ({type(data).__name__}) has no length.",
                "Pass a data set with __len__, such as a list: a job has a fixed number of "
                "records.",
            )
        if batch_size is None:
            raise UsageError(f"The {what} has no batch size.", "Pass a DataLoader, or batch_size.")
        self.batch_size: int = batch_size
        self.drop_last = isinstance(data, DataLoader) and data.drop_last
        self.dataset: Any = data
        self.order = SHUFFLED
        if isinstance(data, DataLoader):
            self.dataset = data.dataset
            if type(data.sampler).__name__ == "SequentialSampler":
                self.order = SEQUENTIAL
        self._collate = data.collate_fn if isinstance(data, DataLoader) else default_collate
        self._form = self._collate([self.dataset[0]]) if len(self.dataset) else None

    def records(
        self, seed: int, frozen: bool, more: RecordSource | None = None
    ) -> dict[str, Array]:
        """The records as arrays (N, *shape), padded as the collator does; those of `more` after
        them, to the same length.

        Where `more` has a collator of its own, each reads its own records. Raises UsageError where
        they then differ in shape.
        """
        if more is not None and more._collate is not self._collate:
            both = [s.records(seed, frozen) for s in (self, more)]
            return _joined(both[0], both[1], more.what)
        sets = _Both(self.dataset, more.dataset) if more else self.dataset
        return collated(sets, self._collate, self.what, seed=seed, frozen=frozen)

    @property
    def epoch_records(self) -> int:
        """The records of an epoch: all, or those that make whole batches. Raises UsageError for
        none."""
        count = len(self.dataset)
        taken = count // self.batch_size * self.batch_size if self.drop_last else count
        if not taken:
            raise UsageError(
                f"The {self.what} has {count} records, fewer than a batch of {self.batch_size}, "
                "and drop_last drops a smaller batch.",
                "Leave drop_last out, or use a smaller batch.",
            )
        return taken

    def seen_by(self, loss: Loss) -> Callable[[nn.Module, Mapping[str, Tensor], Any], Tensor]:
        """`loss` over the tensors of a job's batch, in the form of the loader's, with the numbers
        of the step where it takes them."""
        if takes_numbers(loss):
            return lambda module, batch, at: loss(module, rebuilt(self._form, batch), at)
        return lambda module, batch, at: loss(module, rebuilt(self._form, batch))

    @property
    def fields(self) -> set[str]:
        return set(flatten(self._form))


def _joined(first: dict[str, Array], second: dict[str, Array], what: str) -> dict[str, Array]:
    """The records of two collators, one set after the other."""
    for name in sorted(set(first) | set(second)):
        one, other = first.get(name), second.get(name)
        if one is None or other is None or (one.shape[1:], one.dtype) != (
            other.shape[1:], other.dtype
        ):  # fmt: skip
            raise UsageError(
                f"The {what}'s collator makes different records than that of the data ({name!r}).",
                "Pad or crop both to one length, or use one collator.",
            )
    return {name: np.concatenate([first[name], second[name]]) for name in first}


class _Both:
    """Two data sets, one after the other."""

    def __init__(self, first: Any, second: Any) -> None:
        self._sets = first, second

    def __len__(self) -> int:
        return len(self._sets[0]) + len(self._sets[1])

    def __getitem__(self, number: int) -> Any:
        first = len(self._sets[0])
        return self._sets[0][number] if number < first else self._sets[1][number - first]


def _check_loader(loader: DataLoader[Any], what: str) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise UsageError(
            f"The {what} is an IterableDataset, whose records have no numbers.",
            "Read it into a list, or pass a Dataset with __len__ and __getitem__.",
        )
    sampler = type(loader.sampler).__name__
    if sampler not in ("RandomSampler", "SequentialSampler"):
        raise UsageError(
            f"The {what}'s DataLoader has a {sampler}, but the job's seed orders the records.",
            "Leave the sampler out. To give records more weight, repeat them in the data set.",
        )
    draws: Any = loader.sampler
    records: Any = loader.dataset
    if getattr(draws, "replacement", False) or len(draws) != len(records):
        raise UsageError(
            f"The {what}'s DataLoader draws records with replacement, or not all of them. A job "
            "takes each record once in an epoch.",
            "Leave replacement and num_samples out.",
        )
    if loader.batch_size is None or type(loader.batch_sampler).__name__ != "BatchSampler":
        raise UsageError(
            f"The {what}'s DataLoader has its own batch sampler.", "Use batch_size instead."
        )


def updates_of(records: int, batch_size: int, accumulate: int) -> int:
    """The updates of a loop's epoch of `records` records, of which the last batch may be short."""
    return math.ceil(math.ceil(records / batch_size) / accumulate)


def steps_of(epochs: float | None, steps: int | None, epoch: int) -> int:
    """The number of updates in all: `steps`, or `epochs` of `epoch` updates each.

    Raises UsageError."""
    if (epochs is None) == (steps is None):
        raise UsageError(
            "Exactly one of epochs and steps is needed.",
            "Pass steps=1000 or epochs=3, for example.",
        )
    if steps is not None:
        return steps
    assert epochs is not None
    return math.ceil(epochs * epoch)


def fit(
    module: nn.Module,
    loss: Loss,
    data: Any,
    optimizer: Any,
    *,
    out: PathLike,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    scheduler: Any = None,
    scheduler_every: str = "step",
    accumulate: int = 1,
    shrink_last: bool = False,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    validation: Any = None,
    validation_loss: Loss | None = None,
    evaluate_every: int | None = None,
    stop: StopRule | None = None,
    best: bool = False,
    seed: int = 0,
    contract: str = ORDERED_1,
    frozen_collator: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    key: PrivateKey | PathLike | None = None,
    listener: Listener | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> RunSummary:
    """Train `module` as a plain loop would, as a signed run in `out/run`; or go on with it there.

    `loss(module, batch)` gets what the loader yields and returns a scalar f32 tensor. A third
    parameter `at` gets the numbers of the step: `at.step` (updates made before), `at.epoch` (epochs
    finished), `at.batch` (in its epoch), and of the whole training `at.steps`, `at.epochs` and
    `at.batches` (of an epoch). What is computed from them is a table of the job; a branch on them
    is a program of its own for the steps that take it (PROGRAM 5.21). `data` and
    `validation` are a DataLoader, or a Dataset or list with `batch_size`; they are collated once.
    `optimizer` is one of torch.optim or of tallystick. `scheduler` is one of torch over it, stepped
    after each step or, with `scheduler_every="epoch"`, after each epoch. With `accumulate` V an
    update takes V batches, and the mean of their losses. Validation (of `validation_loss`, by
    default `loss`, with the module in evaluation mode) is taken after each
    `evaluate_every` steps (by default after each epoch), over every record, each of which counts
    alike, and is committed; `stop` may end the run by it, and with `best` the module gets the
    weights of the best pass, else the last ones. With `overwrite` a job and a run that are in `out`
    are replaced.

    A DataLoader without `shuffle` is read in its order. One with `shuffle`, a Dataset and a list
    are shuffled anew in each epoch; the order follows `seed`, as dropout does, and not torch's
    generator (`tallystick.records_of` says which records a step reads). An epoch ends as the
    loader's: its last batch may be short, or with `drop_last` is left out. An update never reaches
    into the next epoch: where V batches are not left, it takes the mean of those that are. With
    `shrink_last` it takes their sum divided by V, as Lightning and accelerate do. Raises
    UsageError for what no job can honour, by name, the errors of `tallystick.capture` and
    `tallystick.train`, CallbackError where `listener` changes the module, the optimizer or a tensor
    that the loss reads, and KeyboardInterrupt when interrupted: the same call goes on.
    """
    course = course_of(
        module,
        loss,
        data,
        optimizer,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        scheduler=scheduler,
        scheduler_every=scheduler_every,
        accumulate=accumulate,
        shrink_last=shrink_last,
        clip_norm=clip_norm,
        clip_value=clip_value,
        validation=validation,
        validation_loss=validation_loss,
        evaluate_every=evaluate_every,
        stop=stop,
        best=best,
        seed=seed,
        contract=contract,
        frozen_collator=frozen_collator,
    )
    python = PythonWatch(module, course.runs, course.calls, live=lambda: course.live)
    roots = {"loss": loss, "validation_loss": validation_loss}
    return carry_out(
        course,
        Path(out),
        threads=threads,
        device=device,
        key=key,
        listener=watched(listener, lambda: Watch(module, optimizer, roots, python=python)),
        progress=progress,
        best=best,
        overwrite=overwrite,
    )


def course_of(
    module: nn.Module,
    loss: Loss,
    data: Any,
    optimizer: Any,
    *,
    epochs: float | None,
    steps: int | None,
    scheduler: Any,
    scheduler_every: str,
    accumulate: int,
    shrink_last: bool,
    clip_norm: float | None,
    clip_value: float | None,
    validation: Any,
    validation_loss: Loss | None,
    evaluate_every: int | None,
    stop: StopRule | None,
    best: bool,
    seed: int,
    contract: str,
    frozen_collator: bool,
    batch_size: int | None = None,
) -> Course:
    """What `fit` trains, by its arguments; the data are collated. Raises UsageError."""
    source = RecordSource(data, batch_size, "data set")
    count = len(source.dataset)
    size = source.batch_size * accumulate
    epoch = updates_of(source.epoch_records, source.batch_size, accumulate)
    total = steps_of(epochs, steps, epoch)
    if scheduler_every not in ("step", "epoch"):
        raise UsageError(f"scheduler_every is {scheduler_every!r}.", "Use 'step' or 'epoch'.")
    schedules = scheduler
    if scheduler is not None and scheduler_every == "epoch":
        schedules = tables_by_epoch(scheduler, total, epoch)
    held: RecordSource | None = None
    if validation is not None:
        held = RecordSource(validation, batch_size, "validation set")
        if held.fields != source.fields:
            raise UsageError(
                "Validation does not have the fields of the data.", "Use the same fields."
            )
    elif stop is not None or best:
        raise UsageError("stop and best need validation.", "Pass validation=... as well.")
    records = source.records(seed, frozen_collator, held)
    seen = source.seen_by(loss)
    counts = Epochs(total, math.ceil(source.epoch_records / source.batch_size), accumulate)
    return Course(
        module,
        seen,
        {name: a[:count] for name, a in records.items()},
        optimizer,
        size,
        total,
        counts.whole(),
        schedules=schedules,
        clip_norm=clip_norm,
        clip_value=clip_value,
        micro_batches=accumulate,
        shrinks=shrink_last,
        order=source.order,
        epoch_records=source.epoch_records,
        validation=None
        if held is None
        else Validation(
            source.seen_by(validation_loss or loss),
            {name: a[count:] for name, a in records.items()},
            min(held.batch_size, len(held.dataset)),
            evaluate_every or epoch,
            counts.passes(evaluate_every or epoch),
            stop or StopRule(),
        ),
        seed=seed,
        contract=contract,
    )


def epochs_of(course: Course) -> Epochs:
    """How the course counts."""
    each = course.batch_size // course.micro_batches
    return Epochs(course.steps, math.ceil(course.taken / each), course.micro_batches)


def tables_by_epoch(scheduler: Any, steps: int, epoch: int) -> dict[str, list[float]]:
    """The tables of a scheduler that steps after each `epoch` steps, by the names of its groups."""
    if not is_scheduler(scheduler):
        raise UsageError(
            "The scheduler does not count epochs.", "Pass a torch scheduler, or use 'step'."
        )
    tables = rates_of(scheduler, steps, epoch)
    if len(tables) == 1:
        return {"lr": tables[0]}
    return {f"lr.{i:0{len(str(len(tables) - 1))}d}": t for i, t in enumerate(tables)}
