"""`tallystick.Trainer`: transformers.Trainer whose `train` is a signed run.

What decides numbers is read from the Trainer as it stands (its data sets and collator, its
`compute_loss`, optimizer, schedule, arguments), and becomes a job in `output_dir/job`. The run is
in `output_dir/run`. `evaluate`, `predict` and `save_model` are transformers' own, over the weights
that the run ends with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.trainer_callback import EarlyStoppingCallback
from transformers.trainer_utils import TrainOutput

from tallystick.api import PathLike, PrivateKey
from tallystick.commit.stream import SEQUENTIAL, SHUFFLED
from tallystick.commit.tensor import Array
from tallystick.disk.regular import present, same_file
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture.outside import left_as_it_was
from tallystick.program.capture.python_state import PythonState
from tallystick.program.validation import StopRule
from tallystick.run.show.summary import RunSummary
from tallystick.terminal.lines import note
from tallystick.trainer.arguments import check_arguments, check_methods
from tallystick.trainer.calling import CallbackCalls, python_watch_of, show_rates, watch_of
from tallystick.trainer.course import JOB, RUN, Course, Validation, carry_out, job_of
from tallystick.trainer.listening import is_own, refuse_unheard
from tallystick.trainer.loop import updates_of
from tallystick.trainer.numbers import Epochs
from tallystick.trainer.records import collated
from tallystick.trainer.rehearsal import Rehearsed, Scene, rehearsed
from tallystick.trainer.silence import put_back
from tallystick.trainer.watching import Watch

# A class of another package: mypy sees it where it is installed.
_Base: Any = transformers.Trainer
_IGNORED = -100  # the label of what counts for nothing


class Trainer(_Base):  # type: ignore[misc]
    """A drop-in for `transformers.Trainer`: the same constructor, and `train()` gives a signed run.

    `contract`, `threads`, `device` and `key` are those of `tallystick.capture` and
    `tallystick.train`. With `frozen_collator` a collator that draws (masked language modelling) is
    read once, and its draws stay. With `overwrite` a job and a run in `output_dir` are replaced.
    After `train()`, `run` is the run's summary.

    Raises UsageError for an argument, an override or data that no job can honour: each by its name.
    """

    optimizer: Any
    lr_scheduler: Any
    state: Any

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        *given: Any,
        contract: str = ORDERED_1,
        threads: int | None = None,
        device: str = "cpu",
        key: PrivateKey | PathLike | None = None,
        frozen_collator: bool = False,
        overwrite: bool = False,
        **named: Any,
    ) -> None:
        if args is None:
            args = transformers.TrainingArguments("tmp_trainer")
        check_arguments(args)
        check_methods(type(self))
        super().__init__(model, args, *given, **named)
        self.run: RunSummary | None = None
        self._contract, self._threads, self._device = contract, threads, device
        self._key, self._frozen_collator = key, frozen_collator
        # transformers had this argument before its version 5.
        self._overwrite = overwrite or bool(getattr(args, "overwrite_output_dir", False))

    # -- the data ----------------------------------------------------------------------------------
    def _records(self) -> tuple[dict[str, Array], dict[str, Array] | None]:
        """The records of training and of validation, padded to one length."""
        if self.train_dataset is None:
            raise UsageError("Trainer: training needs a train_dataset.", "Pass one.")
        sets = [self.train_dataset]
        if self._evaluates:
            if self.eval_dataset is None or isinstance(self.eval_dataset, Mapping):
                raise UsageError(
                    "Trainer: eval_strategy needs a single eval_dataset.",
                    "Pass one data set, not a dict. evaluate(others) takes more data sets after "
                    "train().",
                )
            sets.append(self.eval_dataset)
        read = [self._with_collator(data) for data in sets]
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        if self._frozen_collator:
            note("The collator is called once for each record, and what it draws is kept.")
        both = collated(
            _Joined([data for data, _ in read]),
            read[0][1],
            "data set",
            seed=seed,
            frozen=self._frozen_collator,
        )
        count = len(read[0][0])
        trained = {name: array[:count] for name, array in both.items()}
        if len(sets) == 1:
            return trained, None
        return trained, {name: array[count:] for name, array in both.items()}

    def _with_collator(self, data: Any) -> tuple[Any, Any]:
        """As transformers reads a data set: without the columns that the model does not take."""
        if hasattr(data, "column_names") and hasattr(data, "set_format"):
            return self._remove_unused_columns(data, description="training"), self.data_collator
        return data, self._get_collator_with_removed_columns(
            self.data_collator, description="training"
        )

    # -- the loss ----------------------------------------------------------------------------------
    def _items(self, batch: Mapping[str, Tensor]) -> Tensor | None:
        """`num_items_in_batch`: the labels that count, where transformers counts them."""
        counted = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        if not counted or "labels" not in batch:
            return None
        labels = batch["labels"]
        if "shift_labels" in batch:
            labels = batch["shift_labels"]
        elif getattr(self, "_loss_shifts_labels", False):
            labels = labels[..., 1:]
        return labels.ne(_IGNORED).sum()

    def _loss(self, module: nn.Module, batch: Mapping[str, Tensor], at: Any) -> Tensor:
        items = self._items(batch)
        with self._state_at(at):
            loss: Tensor = self.compute_loss(module, _inputs(batch), num_items_in_batch=items)
        return loss

    def _loss_and_count(
        self, module: nn.Module, batch: Mapping[str, Tensor], at: Any
    ) -> tuple[Tensor, Tensor]:
        """The sum of a micro-batch, and its count: the loss where `num_items_in_batch` is 1."""
        items = self._items(batch)
        assert items is not None
        one = torch.ones_like(items)
        with self._state_at(at):
            return self.compute_loss(module, _inputs(batch), num_items_in_batch=one), items

    @contextmanager
    def _state_at(self, at: Any) -> Iterator[None]:
        """`self.state` as it is when transformers computes the loss of that step. What the loss
        logs there is not kept. It stays the same object, whose attributes are followed."""
        held = vars(self.state)
        before = dict(held)
        self.state.global_step, self.state.epoch = at.step, at.epoch
        self.state.log_history = list(self.state.log_history)
        try:
            yield
        finally:
            held.clear()
            held.update(before)

    def _is_sum(self, records: Mapping[str, Array]) -> bool:
        """Whether the losses of micro-batches are parts of a sum over `num_items_in_batch`."""
        size = self.args.train_batch_size
        batch = {name: torch.from_numpy(array[:size].copy()) for name, array in records.items()}
        items = self._items(batch)
        own = getattr(self, "loss_is_scaled_for_ga", None)
        if own is False or items is None:
            return False
        module = self.model
        python = PythonState(module, self._loss)
        found = []
        try:
            with torch.no_grad(), left_as_it_was(module, self._loss):
                for times in (items, items * 2):
                    module.eval()
                    loss = self.compute_loss(module, _inputs(batch), num_items_in_batch=times)
                    found.append(float(loss))
                    python.restore()  # both calls are the first one for what Python counts
        finally:
            python.restore()
            python.release()
        one, two = found
        if not math.isclose(one, 2 * two, rel_tol=1e-5, abs_tol=1e-12):
            raise UsageError(
                "compute_loss does not divide by num_items_in_batch, so transformers would add up "
                "the means of the micro-batches.",
                "Return a sum divided by num_items_in_batch. For the mean of means, set "
                "loss_is_scaled_for_ga = False in your Trainer.",
            )
        return True

    # -- the course --------------------------------------------------------------------------------
    @property
    def _evaluates(self) -> bool:
        return str(getattr(self.args.eval_strategy, "value", self.args.eval_strategy)) != "no"

    def _rule(self) -> StopRule:
        """The rule of EarlyStoppingCallback, or one that commits and never stops."""
        found = [c for c in self.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback)]
        wants = "EarlyStoppingCallback" if found else "load_best_model_at_end"
        if found or self.args.load_best_model_at_end:
            metric = self.args.metric_for_best_model or "loss"
            if metric not in ("loss", "eval_loss") or self.args.greater_is_better:
                raise UsageError(
                    f"{wants}: metric_for_best_model={metric!r} is not a committed number.",
                    "Leave it out. The validation loss decides, and a smaller one is better.",
                )
            if not self._evaluates:
                raise UsageError(f"{wants} needs validation.", "Set eval_strategy.")
        if not found:
            return StopRule()
        callback = found[-1]
        return StopRule(
            callback.early_stopping_patience, float(callback.early_stopping_threshold or 0.0)
        )

    def _steps(self, records: int) -> int:
        args = self.args
        if args.max_steps > 0:
            return int(args.max_steps)
        # transformers' own number, so that the schedule is its own, and a pass ends each epoch.
        return math.ceil(float(args.num_train_epochs) * self._updates(records))

    def _updates(self, records: int) -> int:
        """The updates of an epoch."""
        args = self.args
        taken = self._taken(records)
        return updates_of(taken, args.train_batch_size, args.gradient_accumulation_steps)

    def _taken(self, records: int) -> int:
        """The records of an epoch: all, or those that make whole batches."""
        size = int(self.args.train_batch_size)
        taken = records // size * size if self.args.dataloader_drop_last else records
        if not taken:
            raise UsageError(
                f"With dataloader_drop_last, none of the {records} records are left in batches of "
                f"{size}.",
                "Leave dataloader_drop_last out, or use a smaller batch.",
            )
        return taken

    @property
    def _order(self) -> str:
        """Shuffled, but where transformers itself would take the records in sequence."""
        strategy = getattr(self.args, "train_sampling_strategy", None)
        found = str(getattr(strategy, "value", strategy))
        return SEQUENTIAL if found == "sequential" else SHUFFLED

    @property
    def _batch_size(self) -> int:
        return int(self.args.train_batch_size * self.args.gradient_accumulation_steps)

    def course(self) -> Course:
        """What this Trainer would train, as a course; the data set is collated."""
        args = self.args
        self.model.to("cpu").train()
        records, held = self._records()
        count = len(next(iter(records.values())))
        steps = self._steps(count)
        own = self.optimizer is None
        self.create_optimizer()
        if own:  # a model without biases has nothing in the group without decay
            groups = self.optimizer.param_groups
            groups[:] = [group for group in groups if group["params"]]
        self.create_scheduler(num_training_steps=steps, optimizer=self.optimizer)
        self._start_state(steps, count)
        sums = args.gradient_accumulation_steps > 1 and self._is_sum(records)
        return Course(
            self.model,
            self._loss_and_count if sums else self._loss,
            records,
            self.optimizer,
            self._batch_size,
            steps,
            self._counts(steps, count).fractions(),
            schedules=self.lr_scheduler,
            clip_norm=args.max_grad_norm or None,
            micro_batches=args.gradient_accumulation_steps,
            loss_over="sum" if sums else "mean",
            order=self._order,
            epoch_records=self._taken(count),
            validation=None if held is None else self._validation(held, count),
            seed=args.seed,
            order_seed=args.data_seed,
            contract=self._contract,
        )

    def _counts(self, steps: int, records: int) -> Epochs:
        args = self.args
        batches = math.ceil(self._taken(records) / args.train_batch_size)
        return Epochs(steps, batches, args.gradient_accumulation_steps)

    def _validation(self, held: dict[str, Array], count: int) -> Validation:
        records = len(next(iter(held.values())))
        size = min(self.args.eval_batch_size, records)
        by_epoch = getattr(self.args.eval_strategy, "value", self.args.eval_strategy) == "epoch"
        every = self._updates(count) if by_epoch else int(self.state.eval_steps)
        if self.compute_metrics is not None:
            note("compute_metrics is for evaluate(); validation during training takes the loss.")
        numbers = self._counts(self.state.max_steps, count).fractions_in_passes(every)
        return Validation(self._loss, held, size, every, numbers, self._rule())

    def _start_state(self, steps: int, records: int) -> None:
        """The state that callbacks see, as transformers' own loop begins it."""
        self.state = transformers.TrainerState()
        self.state.compute_steps(self.args, steps)
        self.state.max_steps, self.state.epoch = steps, 0.0
        self.state.num_train_epochs = math.ceil(steps / self._updates(records))
        self.state.train_batch_size = self.args.train_batch_size

    # -- training ----------------------------------------------------------------------------------
    def save_job(self) -> Job:
        """Write the job that `train()` runs to `output_dir/job`, and train nothing.

        Raises UsageError, by name, for what no job can honour, and where another job is there.
        """
        own = self.optimizer is None, self.lr_scheduler is None
        course = self.course()
        handler, every = self.callback_handler, self.callback_handler.callbacks
        handler.callbacks = [callback for callback in self._heard() if is_own(callback)]
        began = Scene.of(self)
        try:
            with put_back({f"callback {n}": c for n, c in enumerate(handler.callbacks)}):
                changed, _ = self._rehearsed(
                    course, CallbackCalls(self, course.epoch_steps, self._watch())
                )
                return job_of(changed, Path(self.args.output_dir), self._overwrite)
        finally:
            handler.callbacks = every
            began.put(self)
            self._forget(*own)

    def _forget(self, optimizer: bool, scheduler: bool) -> None:
        """The next training makes an optimizer and a scheduler of its own, as this one did."""
        self.optimizer = None if optimizer else self.optimizer
        self.lr_scheduler = None if scheduler else self.lr_scheduler

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train as a signed run in `output_dir/run`, or go on with the run there.

        The same call after an interruption goes on and ends at the same bits. Raises
        KeyboardInterrupt when interrupted, and UsageError, by name, for what no job can honour.
        """
        if trial is not None:
            raise UsageError("Trainer: a hyperparameter search is not supported.", "Train once.")
        out = Path(self.args.output_dir)
        self._check_resume(resume_from_checkpoint or self.args.resume_from_checkpoint, out)
        rule = self._rule()  # before the data are read
        own = self.optimizer is None, self.lr_scheduler is None
        course = self.course()
        # The caller's optimizer and scheduler get their own rates back: they are the next job's.
        rates = [group["lr"] for group in self.optimizer.param_groups]
        handler, every = self.callback_handler, self.callback_handler.callbacks
        handler.callbacks = self._heard()
        began, scene = time.monotonic(), Scene.of(self)
        try:
            calls = CallbackCalls(self, course.epoch_steps, self._watch(), str(out / RUN))
            course, calls.rehearsed = self._rehearsed(course, calls)
            calls.watch.python = python_watch_of(self, course)
            self.run = carry_out(
                course,
                out,
                threads=self._threads,
                device=self._device,
                key=self._key,
                listener=calls,
                best=self.args.load_best_model_at_end,
                overwrite=self._overwrite,
            )
            if rule.patience is not None and len(self.run.losses) < course.steps:
                note(f"The job's rule ended the run after step {len(self.run.losses)}.")
            return self._ended(calls, time.monotonic() - began)
        except BaseException:
            scene.put(self)  # the same call begins as this one did
            raise
        finally:
            handler.callbacks = every
            show_rates(self, rates)
            self._forget(*own)

    def _heard(self) -> list[Any]:
        """The callbacks that hear of the training. EarlyStoppingCallback's rule is the job's: it
        decides by committed numbers."""
        every = self.callback_handler.callbacks
        return [c for c in every if not isinstance(c, EarlyStoppingCallback)]

    def _watch(self) -> Watch:
        """A watch over what is trained."""
        handler = self.callback_handler
        handler.model, handler.optimizer = self.model, self.optimizer
        handler.lr_scheduler = self.lr_scheduler
        return watch_of(self, self._beside_the_model())

    def _rehearsed(self, course: Course, calls: CallbackCalls) -> tuple[Course, Rehearsed | None]:
        """The course with what the callbacks change of it: at the beginning, which they hear now,
        and then at the steps of a rehearsal."""
        refuse_unheard(self.callback_handler.callbacks, course.micro_batches)
        calls.tell("on_train_begin")
        course = replace(course, clip_norm=self.args.max_grad_norm or None)
        every = 0 if course.validation is None else course.validation.every
        heard = self.callback_handler.callbacks
        seen = rehearsed(self, heard, calls.watch, course.steps, course.epoch_steps, every)
        return (course if seen is None else replace(course, settings=seen.settings())), seen

    def _beside_the_model(self) -> list[str]:
        """The attributes that the loss may read beside the model: those of a subclass."""
        known = set(_Base.__init__.__code__.co_names)
        own = [name for name in vars(self) if name not in known and not name.startswith("_")]
        return ["compute_loss", "compute_loss_func", *own]

    def _ended(self, calls: CallbackCalls, seconds: float) -> TrainOutput:
        assert self.run is not None
        losses = self.run.losses
        self.state.global_step = len(losses)
        mean = sum(losses) / len(losses) if losses else 0.0
        metrics = {"train_runtime": round(seconds, 4), "train_loss": mean}
        self.log(dict(metrics))
        calls.tell("on_save")
        calls.tell("on_train_end")
        return TrainOutput(len(losses), mean, metrics)

    def _check_resume(self, wanted: str | bool | None, out: Path) -> None:
        """A run goes on in its own directory only."""
        if not wanted:
            return
        if self._overwrite:
            raise UsageError(
                "resume_from_checkpoint and overwrite cannot be used together.",
                "Leave one of them out.",
            )
        if not present(out / JOB):
            raise UsageError(
                f"There is no run to resume in {out}.", "Leave resume_from_checkpoint out."
            )
        if wanted is not True and not any(
            same_file(Path(wanted), own) for own in (out, out / RUN) if present(own)
        ):
            raise UsageError(
                f"resume_from_checkpoint={wanted!r} is not a run of this Trainer.",
                f"Pass True or {out / RUN}. A run continues in its own directory.",
            )


class _Joined:
    """Data sets one after the other."""

    def __init__(self, sets: list[Any]) -> None:
        for data in sets:
            if not hasattr(data, "__len__"):
                raise UsageError(
                    f"The data set ({type(data).__name__}) has no length.",
                    "Pass a data set with __len__: a job has a fixed number of records.",
                )
        self._sets = sets

    def __len__(self) -> int:
        return sum(len(data) for data in self._sets)

    def __getitem__(self, number: int) -> Any:
        for data in self._sets:
            if number < len(data):
                return data[number]
            number -= len(data)
        raise IndexError(number)


def _inputs(batch: Mapping[str, Tensor]) -> dict[str, Any]:
    """A batch that `compute_loss` may take apart: names with a point are dicts again."""
    found: dict[str, Any] = {}
    for name, tensor in batch.items():
        at, *rest = name.split(".")
        if not rest:
            found[at] = tensor
        else:
            inner = found.setdefault(at, {})
            for part in rest[:-1]:
                inner = inner.setdefault(part, {})
            inner[rest[-1]] = tensor
    return found
