"""From a model and data to a job (DESIGN 9): `capture`, `save_job`, `freeze`, `from_onnx`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tallystick.api import given
from tallystick.api.given import PathLike, with_torch
from tallystick.commit.stream import RUN_ON, SHUFFLED
from tallystick.data.freeze import Progress
from tallystick.data.freeze import freeze as freeze_records
from tallystick.data.frozen import Frozen
from tallystick.devices.environment import exact_environment
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.reading import Data, HeldOut, held_of
from tallystick.job.save import Schedules, save_later
from tallystick.job.save import save_job as write_job
from tallystick.job.scalars import Schedule
from tallystick.job.step_records import StepRecords, step_records
from tallystick.program.ir import Program
from tallystick.program.update import EMA, Clip, Optimizers
from tallystick.program.validation import StopRule

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer as TorchOptimizer

    from tallystick.program.capture.api import CapturedStep, Pass
    from tallystick.program.capture.later import Later
    from tallystick.program.capture.trace import BatchLoss
    from tallystick.program.capture.updates import StepFunction

    AnyOptimizer = Optimizers | TorchOptimizer


@dataclass(frozen=True)
class Capture:
    """A captured training step with its evaluation programs, ready to become a job.

    Where the loss keeps state of Python that decides about the program, `save_job` settles the
    programs of its steps (PROGRAM 5.25); what needs one program before raises MovingStateError.
    """

    found: tuple[CapturedStep, Program] | Later
    forward: Program | None
    passes: Pass | None = field(default=None, repr=False, compare=False)

    @property
    def step(self) -> CapturedStep:
        """The captured step. Raises MovingStateError where no single one is all steps."""
        return self._settled()[0]

    @property
    def evaluation(self) -> Program:
        """The loss of a batch in evaluation mode. Raises as `step`."""
        return self._settled()[1]

    def _settled(self) -> tuple[CapturedStep, Program]:
        if isinstance(self.found, tuple):
            return self.found
        raise self.found.refusal

    @property
    def program(self) -> Program:
        """The training step's program; the program digest covers `.text()`. Raises as `step`."""
        return self.step.program

    def save_job(
        self,
        directory: PathLike,
        data: Data,
        *,
        steps: int,
        seed: int = 0,
        checkpoint_interval: int | None = None,
        schedules: Mapping[str, Schedule] | Any | None = None,
        order: str = SHUFFLED,
        epoch_end: str = RUN_ON,
        short: Capture | None = None,
        validation: Data | None = None,
        evaluate_every: int = 0,
        stop_rule: StopRule | None = None,
        validation_short: Capture | None = None,
        compare_first_step: bool = True,
        overwrite: bool = False,
    ) -> Job:
        """Write the job directory; returns the loaded job. A job that is there already is refused,
        or with `overwrite` replaced.

        `data` maps each batch tensor's name to an array (N, *shape of one record), or is a data set
        of `tallystick.freeze` or its directory, as `validation` may be too. `seed` keys
        dropout and the order of the data. `schedules` has a table of `steps` numbers, a function
        of the step or a torch scheduler for a learning rate given by name; or it is the scheduler
        of the torch optimizer that was captured. `validation` are held-out records of the same
        fields, whose loss is taken every `evaluate_every` steps. With `stop_rule` the run commits
        to these losses: `StopRule(patience=3)` ends it after three that are no better than the
        best one, `StopRule()` commits and never stops.

        `order` is "shuffled" by the seed, anew in each epoch, or "sequential". `epoch_end` says
        what becomes of records that make no whole batch: "run on" (the batch takes more of the next
        epoch), "drop", or "short": the last batch of an epoch has fewer records, and `short` is the
        same step captured with a batch of so many. `validation_short` is a capture with a batch of
        what is left of the held-out records; with `stop_rule` a pass then reads all of them.

        The first step is compared with the module in float64, which takes the memory and the time
        of such a step; without `compare_first_step` the job's `about` says that it was not. Raises
        UsageError for data that does not fit the program, and for a first step that differs beyond
        the threshold (it names the module), StorageError where the directory cannot be written.

        Where the loss keeps state of Python that decides (a counter in a closure), the `steps`
        steps are traced one by one from the state that Python has now, and each gets the program
        that its call computes. Then the module is the captured one still, and there is no
        validation: a pass would call the loss too.
        """
        evaluation = None
        if validation is not None:
            evaluation = self.evaluation
            _refuse_shared(self.passes, [self, *([short] if short else [])], validation_short)
        settled = isinstance(self.found, tuple)  # else there is no validation
        last = validation_short.evaluation if validation_short and settled else None
        held = held_of(validation, evaluation, evaluate_every, stop_rule, last)
        common: dict[str, Any] = {
            "steps": steps,
            "seed": seed,
            "checkpoint_interval": checkpoint_interval,
            "schedules": schedules,
            "order": order,
            "epoch_end": epoch_end,
            "compare_first_step": compare_first_step,
            "overwrite": overwrite,
        }
        if not isinstance(self.found, tuple):
            if short is not None and isinstance(short.found, tuple):
                raise self.found.refusal
            moving = None if short is None else cast("Later", short.found)
            return save_later(self.found, directory, data, short=moving, **common)
        return write_job(
            self.step,
            directory,
            data,
            short=None if short is None else short.step,
            held=held,
            forward_program=self.forward,
            **common,
        )


@exact_environment()
def capture(
    module: nn.Module,
    loss: BatchLoss | StepFunction,
    batch: Mapping[str, Any],
    optimizer: AnyOptimizer | Mapping[str, AnyOptimizer],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    grad_norm: bool = False,
    ema: EMA | float | None = None,
    forward: BatchLoss | None = None,
    outputs_grads: bool = False,
    contract: str = "ordered/1",
    mode: str = "train",
    micro_batches: int | None = None,
    loss_over: str = "mean",
    trains: str | None = None,
) -> Capture:
    """Capture a training step of `module`: forward, loss, backward, optimizer update.

    `loss(module, batch)` gets a dict of tensors and returns a scalar f32 tensor; `batch` gives
    an example of every tensor (its first axis is the batch). `optimizer` is one of
    `tallystick.SGD`, `Adam`, `AdamW`, `RMSprop`, `Adagrad`, `Lion`, `LAMB`, `Adafactor`,
    `TransformersAdafactor` and `Muon`, or `ParameterGroups` of them; or an optimizer of torch.optim
    or transformers' Adafactor, read with its groups. `clip_norm` and `clip_value` clip gradients,
    as torch's `clip_grad_norm_` and `clip_grad_value_`; `grad_norm` reports their norm without.
    `ema`, a decay or `EMA`, keeps an average of the parameters. With a dict of optimizers, each for
    a submodule or a parameter by name, `loss` is a step function `loss(module, batch, update)`. It
    calls `update("discriminator", loss)` where torch's loop would call `backward()` and that
    optimizer's `step()`; in validation `update` does nothing. `forward(module, batch)`, if given,
    becomes the inference program that `tallystick sample` and users of the exported model can run.
    `contract` fixes the meaning of every operator: "ordered/1", "rounded/1", "exact/1", "replay/1",
    with numbers as in "rounded/1;b=28".
    `mode` says whether `module` is in training mode ("train") or after `module.eval()` ("eval").
    Capture refuses the other mode and switches none; submodules keep theirs.

    `micro_batches` divides the batch into this many parts, which are computed one after the other
    in the memory of one, with one update at the end. `loss_over="mean"` takes the mean of their
    losses. With "sum" the loss function returns (sum, count), or (sum, count, metrics), and the
    step's loss is the sum of all sums divided by the sum of all counts.

    `trains`, the path of a submodule, says which parameters this step trains, of a module that
    several programs of one job train by turns (`tallystick.save_job`). The others stay.

    What a program cannot carry (autocast, the clock, a file that changes) is refused by name, with
    the model's file and line. Two traces are compared for it. Where the loss keeps state of Python
    that decides (a counter in a closure, a schedule in an object), no one program is all steps:
    then `Capture.save_job` traces its `steps` steps one by one, in the order in which a loop calls
    the loss: once for each micro-batch. `.program`, `.step` and `.evaluation`, held-out records,
    `forward` and `tallystick.save_job` raise MovingStateError, which says what moves and where.

    A parameter that is in no group of a torch optimizer is state that no update changes. It is
    refused where the loss gives it a gradient.

    Raises UsageError when the model cannot become a program, UnsupportedOperatorError (naming
    operator and module path) for an operator the contract does not define, CannotCheckError
    without PyTorch.
    """
    captures = with_torch("tallystick.program.capture.api", "capture")
    later = with_torch("tallystick.program.capture.later", "capture")
    memory = with_torch("tallystick.program.capture.rewriting", "capture")
    several = isinstance(optimizer, Mapping)
    for name, limit in (("clip_norm", clip_norm), ("clip_value", clip_value)):
        if limit is not None and not 0 < limit < float("inf"):
            raise UsageError(
                f"{name} is {limit}, which is not a positive finite number.",
                "Give a positive number, or None.",
            )
    if isinstance(ema, float):
        ema = EMA(ema)
    with memory.SET_ASIDE:
        step = later.capture_or_later(
            module,
            loss,
            batch,
            optimizer,
            clip=Clip(clip_norm, clip_value, grad_norm),
            ema=ema,
            outputs_grads=outputs_grads,
            contract=contract,
            mode=mode,
            micro_batches=micro_batches,
            loss_over=loss_over,
            trains=trains,
        )
        if isinstance(step, later.Later):
            if forward is not None:
                raise step.refusal
            return Capture(step, None)
        passes = captures.capture_pass(
            module, loss, batch, contract, has_updates=several, loss_over=loss_over, step=step
        )
        inference = None
        if forward is not None:
            inference = captures.capture_forward(module, batch, forward, contract, step=step)
    return Capture((step, passes.program), inference, passes)


def save_job(
    directory: PathLike,
    data: Data | None = None,
    *,
    programs: Mapping[str, Capture],
    schedule: Sequence[tuple[str, int]] | None = None,
    programs_of_steps: Sequence[str] | None = None,
    steps: int,
    seed: int = 0,
    own_data: Mapping[str, Data] | None = None,
    checkpoint_interval: int | None = None,
    schedules: Schedules | None = None,
    order: str = SHUFFLED,
    epoch_end: str = RUN_ON,
    validation: Data | None = None,
    evaluate: str | None = None,
    evaluate_every: int = 0,
    stop_rule: StopRule | None = None,
    validation_short: Capture | None = None,
    compare_first_step: bool = True,
    overwrite: bool = False,
) -> Job:
    """Write a job whose captured `programs` take turns over one state, as the two nets of a GAN do.

    Capture each from the same module, with `trains="..."` for what it trains. `schedule` has pairs
    of a name and a number of steps, repeated until `steps` steps are made: `[("discriminator", 2),
    ("generator", 1)]`; None is one step of each. `data` are the records of all programs, each of
    which goes through them in an order of the same seed; `own_data` gives a program others, and a
    program whose batch is empty reads none. `schedules` has by program what `Capture.save_job`
    takes. With `validation` the run commits to the loss of held-out records, of the program
    `evaluate` (the first one, if None) in evaluation mode, after every `evaluate_every` steps;
    `stop_rule` may end it by them.

    With `programs_of_steps`, the name of each step's program, in the place of `schedule`, the
    programs are forms of one step: they go through `data` together, with one count of batches, one
    row of a table and one random key for each step, and `schedules` are those of one program. A job
    has at most 64 programs, and at most 1024 turns from one to another before they repeat.
    `order`, `epoch_end` and `validation_short` are those of `Capture.save_job`.

    A program's name is at most 40 of a-z, 0-9 and -. A job that is there
    already is refused, or with `overwrite` replaced. Errors: see `job.save.save_job`.
    """
    held = None
    if validation is not None:
        chosen = next(iter(programs), "") if evaluate is None else evaluate
        if chosen not in programs:
            raise UsageError(
                f"evaluate={chosen!r} is not the name of a program.",
                "Use a name that `programs` contains.",
            )
        _refuse_shared(programs[chosen].passes, programs.values(), validation_short)
        of = programs[chosen].evaluation
        short = None if validation_short is None else validation_short.evaluation
        held = HeldOut(validation, of, evaluate_every, stop_rule or StopRule(), short)
    elif stop_rule is not None or evaluate is not None or evaluate_every:
        raise UsageError(
            "Committed validation needs held-out records.", "Pass validation=... as well."
        )
    calls = {name: captured.step.calls for name, captured in programs.items()}
    if len(calls) > 1:
        between = with_torch("tallystick.program.capture.between", "save_job")
        between.refuse_shared_programs({n: c for n, c in calls.items() if c is not None})
    return write_job(
        {name: captured.step for name, captured in programs.items()},
        directory,
        data,
        steps=steps,
        schedule=schedule,
        programs_of_steps=programs_of_steps,
        order=order,
        epoch_end=epoch_end,
        seed=seed,
        own_data=own_data,
        checkpoint_interval=checkpoint_interval,
        schedules=schedules,
        held=held,
        compare_first_step=compare_first_step,
        overwrite=overwrite,
    )


def _refuse_shared(passes: Pass | None, programs: Iterable[Capture], short: Capture | None) -> None:
    """Raises UsageError where passes of validation between the steps of the programs would share
    Python state with them (PROGRAM 5.19 f); `short` evaluates the last held-out records."""
    for program in programs:
        if passes is not None:
            last = None if short is None else short.passes
            passes.refuse_shared([program.step], in_loop=True, short=last)


def records_of(job: Job | PathLike, step: int) -> StepRecords:
    """Which records step `step` of `job` reads: their numbers in order, and of which data set.

    Steps count from 0, those of passes over held-out records with them. The numbers are rows of
    the columns that the job was saved with. No record is read, and PyTorch is not needed. Raises
    UsageError for a step that the job has not, and the errors of `load_job`.
    """
    c = given.job(job).commitment
    return step_records(c.timetable, c.steps, step)


def from_onnx(
    file: PathLike,
    *,
    frozen: Sequence[str] = (),
    fixed: Mapping[str, Any] | None = None,
    training: bool = False,
    check_sizes: bool = True,
) -> nn.Module:
    """A trainable torch module from the ONNX file `file`, to be captured like any other.

    Call it with the graph's inputs in their order or by name; it returns the output, or a dict of
    all by name. Float32 initializers become parameters under the file's names
    (`module.parameter_names` maps those that no attribute can have). Running statistics, integer
    constants, and float ones that match a name or pattern in `frozen`, become buffers. `fixed`
    gives values of inputs that fix a shape or the program's form. Dropout and batch normalisation
    do what the file says, mostly inference; with `training` they follow the module's mode, as
    torch's do. Sizes that the file states of inputs are checked; `check_sizes=False` allows others.

    Nothing in the file is trusted: sizes are checked before allocation, and external data lie
    below the file's directory. Raises UsageError for a file that is damaged, too large or needs
    such a value, and where the package onnx is missing; UnsupportedOperatorError with the names of
    all nodes that are not covered; CannotCheckError without PyTorch.
    """
    room = with_torch("tallystick.program.capture.onnx", "from_onnx")
    module: nn.Module = room.from_onnx(
        file, frozen=frozen, fixed=fixed, training=training, check_sizes=check_sizes
    )
    return module


def reproducible(
    contract: str = "ordered/1",
    *,
    seed: int | None = None,
    record: PathLike | AbstractContextManager[Any] | None = None,
) -> AbstractContextManager[Any]:
    """Within the block, eager CPU PyTorch computes with the bits of `contract`.

    Covers forward, backward, torch.optim and loaders of data. Dropout and torch's other random
    calls draw from Philox (PROGRAM 5.23). Without `seed=` a block goes on where the last one ended:
    each call takes a key from torch's default generator, so `torch.manual_seed` begins anew and
    `torch.get_rng_state` and `set_rng_state` hold the position. With `seed=` the numbers are those
    of a capture with this seed, from step 0 on; call `.next_step()` on the object that the block
    yields, after each step. With `record=` the block is also a `tallystick.trace` of that
    directory; give `record=tallystick.trace(...)` to choose what is kept.

    Raises, as the block begins, UnsupportedVersionError for an unknown contract or one that keeps a
    log; within it UnsupportedOperatorError by name for an operator outside of the contract and
    UsageError for tensors that are not on the CPU. CannotCheckError without PyTorch.
    """
    eager = with_torch("tallystick.program.capture.eager", "reproducible")
    found: AbstractContextManager[Any] = eager.reproducible(contract, seed=seed)
    return found if record is None else _recorded(found, record)


@contextmanager
def _recorded(
    block: AbstractContextManager[Any], record: PathLike | AbstractContextManager[Any]
) -> Iterator[Any]:
    """The block with its operators recorded. The recorder comes first in every call, so that it
    sees what the contract has made of it."""
    recording = with_torch("tallystick.comparing.recording", "reproducible")
    trace: Any = record
    if isinstance(record, (str, Path)):  # a Path is a context manager before Python 3.13, too
        trace = recording.trace(given.path(record))
    with block as streams, trace as recorder:
        yield recording.RecordedStreams(streams, recorder)


def freeze(
    source: Any,
    directory: PathLike,
    *,
    progress: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    **rules: Any,
) -> Frozen:
    """Write the records of `source` once into `directory`, for `save_job(data=...)`.

    `source` is a mapping of columns (N, ...), a list, a torch Dataset, IterableDataset or
    DataLoader, a `datasets.Dataset`, or the path of Parquet, .safetensors or .npz files, tar
    shards, text or a folder of images. `rules` (fields, dtype, pad, hold_out, tokenizer, block,
    size, overwrite, ...) and errors: see `data.freeze.freeze`. The memory is that of a few blocks
    of 16 MiB. Progress is drawn on standard error, unless `progress` is false or `on_progress` gets
    it.
    """
    from tallystick.terminal.freezing import FreezeBar

    with FreezeBar(quiet=not progress or on_progress is not None) as bar:
        return freeze_records(source, directory, on_progress=on_progress or bar, **rules)
