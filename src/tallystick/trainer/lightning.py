"""`tallystick.fit_lightning`: a LightningModule's steps and optimizer, as a signed run.

No import of Lightning: a module is known by its methods. What Lightning's loop would call beside
`training_step`, `validation_step` and `configure_optimizers` is refused by name where the module
overrides it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tallystick.api import PathLike, PrivateKey
from tallystick.errors import UsageError
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture.moments import Moments
from tallystick.program.capture.plain import original
from tallystick.program.capture.source import here
from tallystick.program.validation import StopRule
from tallystick.run.execute.listener import Listener
from tallystick.run.show.summary import RunSummary
from tallystick.terminal.lines import note
from tallystick.trainer.course import carry_out
from tallystick.trainer.hooks import REHEARSED, settings_of_hooks
from tallystick.trainer.loop import course_of, epochs_of, watched
from tallystick.trainer.python_watch import PythonWatch
from tallystick.trainer.settings import CourseSettings, set_flags
from tallystick.trainer.watching import Watch

_PACKAGES = ("lightning", "pytorch_lightning", "torch", "lightning_fabric")
_TRANSFER = ("transfer_batch_to_device", "on_before_batch_transfer", "on_after_batch_transfer")
_CHANGES_NUMBERS = (
    *_TRANSFER,
    "backward", "optimizer_step", "optimizer_zero_grad", "clip_gradients",
    "configure_gradient_clipping", "lr_scheduler_step", "manual_backward", "configure_model",
    "configure_sharded_model", "on_train_batch_end",
    "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_validation_model_eval",
    "on_validation_model_train",
)  # fmt: skip
_NOT_CALLED = (
    "on_fit_end", "on_train_end", "on_validation_start",
    "on_validation_end",
    "on_validation_batch_start", "on_validation_batch_end", "on_validation_epoch_start",
    "on_validation_epoch_end", "configure_callbacks",
)  # fmt: skip


def _own(module: object, name: str) -> bool:
    """Whether the module's class itself has the method, and not Lightning."""
    for kind in type(module).__mro__:
        if name in vars(kind):
            return kind.__module__.partition(".")[0] not in _PACKAGES
    return False


def _check(module: nn.Module) -> None:
    kind = type(module).__name__
    for name in ("training_step", "configure_optimizers"):
        if not callable(getattr(module, name, None)):
            raise UsageError(f"{kind} has no {name}.", "Pass a LightningModule.")
    if not getattr(module, "automatic_optimization", True):
        raise UsageError(
            f"{kind} uses manual optimization (automatic_optimization=False).",
            "Write its step as a function with updates for tallystick.capture.",
        )
    if found := [name for name in _CHANGES_NUMBERS if _own(module, name)]:
        raise UsageError(
            f"{kind} overrides {found[0]}, which a job never calls.",
            "Move its contents into training_step or configure_optimizers.",
        )
    if found := [name for name in _NOT_CALLED if _own(module, name)]:
        note(f"{kind}: {', '.join(found)} is not called: the run goes on without hooks.")


@contextmanager
def _logged(module: nn.Module) -> Iterator[dict[str, Any]]:
    """`self.log` and `self.log_dict` of the module fill a dict within the block."""
    found: dict[str, Any] = {}

    def log(name: str, value: Any, *_: Any, **__: Any) -> None:
        found[name] = value

    def log_dict(values: Mapping[str, Any], *_: Any, **__: Any) -> None:
        found.update(values)

    own: dict[str, Any] = vars(module)
    before: dict[str, Any] = {name: own[name] for name in ("log", "log_dict") if name in own}
    own["log"], own["log_dict"] = log, log_dict
    try:
        yield found
    finally:
        for name in ("log", "log_dict"):
            own.pop(name, None)
        own.update(before)


_COUNTS = ("global_step", "current_epoch")


class _NoTrainerError(UsageError, AttributeError):
    """An attribute that the stand-in lacks; `hasattr` answers False for it."""


class _AsTrainer:
    """In the place of Lightning's trainer: the numbers that a job knows of a step.

    Raises UsageError for everything else that a step asks it for.
    """

    def __init__(self, at: Any, max_epochs: float | None, max_steps: int | None) -> None:
        self.global_step, self.current_epoch = at.step, at.epoch
        self.max_epochs = -1 if max_epochs is None else max_epochs
        self.max_steps = -1 if max_steps is None else max_steps
        self.estimated_stepping_batches = at.steps
        self.num_training_batches = at.batches
        self.logger, self.global_rank, self.local_rank, self.world_size = None, 0, 0, 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _NoTrainerError(
            f"The module asks its trainer for {name}{here()}, and a job has no trainer.",
            "A step may read global_step, current_epoch, max_epochs, max_steps, "
            "num_training_batches and estimated_stepping_batches.",
        )


@contextmanager
def _attached(module: nn.Module, trainer: _AsTrainer) -> Iterator[None]:
    """The module reads its numbers from `trainer` within the block."""
    put: list[tuple[dict[str, Any], str, Any]] = []
    for child in module.modules():
        own: dict[str, Any] = vars(child)
        if "_trainer" in own:
            put.append((own, "_trainer", own["_trainer"]))
            own["_trainer"] = trainer
    if "_trainer" not in vars(module):  # no module of Lightning's, but of its form
        own = vars(module)
        read = {"trainer": trainer, **{n: getattr(trainer, n) for n in _COUNTS}}
        for name, value in read.items():
            put.append((own, name, own.get(name, put)))
            own[name] = value
    try:
        yield
    finally:
        for own, name, before in put:
            if before is put:
                own.pop(name, None)
            else:
                own[name] = before


@contextmanager
def _hooked(module: nn.Module, trainer: _AsTrainer, optimizer: Any) -> Iterator[_AsTrainer]:
    """The module may log, and ask for its numbers and its optimizer, within the block."""
    own: dict[str, Any] = vars(module)
    before = own.get("optimizers", own)
    own["optimizers"] = lambda use_pl_optimizer=True: optimizer
    vars(trainer)["optimizers"] = [optimizer]
    try:
        with _logged(module), _attached(module, trainer):
            yield trainer
    finally:
        del own["optimizers"]
        if before is not own:
            own["optimizers"] = before


Attach = Callable[[Any], _AsTrainer]


def _step(
    module: nn.Module, name: str, monitor: str, attach: Attach
) -> Callable[[nn.Module, Any, Any], Tensor]:
    """The loss of `training_step` or `validation_step`: what it returns, or logs as `monitor`."""

    def loss(_: nn.Module, batch: Any, at: Any) -> Tensor:
        # In a trace Lightning's own `log` would look for a trainer.
        with _logged(module) as logged, _attached(module, attach(at)):
            step = getattr(module, name)
            returned = step(batch, at.batch) if _takes_number(step) else step(batch)
        if isinstance(returned, Mapping):
            returned = returned.get("loss")
        if returned is None:
            returned = logged.get(monitor)
        if not isinstance(returned, Tensor):
            raise UsageError(
                f"{type(module).__name__}.{name} returns no loss.",
                f"Return a scalar tensor or {{'loss': tensor}}, or log it as {monitor!r}.",
            )
        return returned

    return loss


def _takes_number(step: Callable[..., Any]) -> bool:
    """Whether a step takes the number of the batch, which Lightning leaves to it."""
    return (
        "batch_idx" in inspect.signature(step).parameters
        or len(inspect.signature(step).parameters) > 1
    )


def _optimizer(module: nn.Module) -> tuple[Any, Any, str]:
    """The one optimizer, its scheduler if there is one, and when that steps."""
    given: Any = module.configure_optimizers()  # type: ignore[operator]
    schedulers: Sequence[Any] = []
    if isinstance(given, Mapping):
        found = given.get("lr_scheduler")
        optimizers, schedulers = [given["optimizer"]], [] if found is None else [found]
    elif isinstance(given, (tuple, list)) and given and isinstance(given[0], (tuple, list)):
        optimizers, schedulers = list(given[0]), list(given[1])
    else:
        optimizers = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(optimizers) != 1 or optimizers[0] is None or len(schedulers) > 1:
        raise UsageError(
            f"configure_optimizers returns {len(optimizers)} optimizers and {len(schedulers)} "
            "schedulers.",
            "Return one optimizer and at most one scheduler. For several, write a step function "
            "for tallystick.capture.",
        )
    if not schedulers:
        return optimizers[0], None, "step"
    found = schedulers[0]
    if not isinstance(found, Mapping):
        return optimizers[0], found, "epoch"
    if int(found.get("frequency", 1)) != 1:
        raise UsageError("A scheduler's frequency is not 1.", "Set its frequency to 1.")
    return optimizers[0], found["scheduler"], str(found.get("interval", "epoch"))


def fit_lightning(
    module: nn.Module,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: Any = None,
    *,
    out: PathLike,
    max_epochs: float | None = None,
    max_steps: int | None = None,
    gradient_clip_val: float | None = None,
    gradient_clip_algorithm: str = "norm",
    accumulate_grad_batches: int = 1,
    val_check_interval: int | None = None,
    monitor: str = "val_loss",
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
    """Train a LightningModule as `lightning.Trainer(...).fit(module, ...)` would, as a signed run.

    `training_step`, `validation_step` and `configure_optimizers` are read; `self.log` keeps no
    numbers. A training step may read `batch_idx`, `self.global_step`, `self.current_epoch` and the
    trainer's `max_epochs`, `max_steps`, `num_training_batches` and `estimated_stepping_batches`.
    Validation takes the loss that `validation_step` returns or logs as `monitor`, after
    each epoch or each `val_check_interval` steps; `stop` is EarlyStopping's rule, and `best` loads
    the weights of the best pass. As Lightning does it, each loss is divided by
    `accumulate_grad_batches`, also where an epoch has fewer batches left. The other arguments are
    those of `tallystick.fit`, and so are the errors: UsageError, by name, for what no job can
    honour.
    """
    module = original(module)  # hooks are read from its class, and `self.log` is its own
    _check(module)
    if datamodule is not None:
        if train_dataloaders is not None or val_dataloaders is not None:
            raise UsageError("Both dataloaders and a datamodule were given.", "Pass one of them.")
        if found := [name for name in _TRANSFER if _own(datamodule, name)]:
            raise UsageError(
                f"{type(datamodule).__name__} overrides {found[0]}, which a job never calls.",
                "Move its contents into training_step.",
            )
        for name, given in (("prepare_data", ()), ("setup", ("fit",))):
            if callable(getattr(datamodule, name, None)):
                getattr(datamodule, name)(*given)
        train_dataloaders = datamodule.train_dataloader()
        if _own(datamodule, "val_dataloader"):
            val_dataloaders = datamodule.val_dataloader()
    if train_dataloaders is None and _own(module, "train_dataloader"):
        train_dataloaders = module.train_dataloader()  # type: ignore[operator]
        if val_dataloaders is None and _own(module, "val_dataloader"):
            val_dataloaders = module.val_dataloader()  # type: ignore[operator]
    train_dataloaders = _one(train_dataloaders, "train_dataloaders")
    if val_dataloaders is not None:
        val_dataloaders = _one(val_dataloaders, "val_dataloaders")
    if gradient_clip_algorithm not in ("norm", "value"):
        raise UsageError(
            f"gradient_clip_algorithm is {gradient_clip_algorithm!r}.", "Use 'norm' or 'value'."
        )
    optimizer, scheduler, interval = _optimizer(module)

    def attach(at: Any) -> _AsTrainer:
        return _AsTrainer(at, max_epochs, max_steps)

    def validating(at: Any) -> _AsTrainer:
        found = _AsTrainer(at, max_epochs, max_steps)
        # A pass is of the epoch whose update was the last one.
        found.current_epoch = (at.step - 1) // -(-at.batches // accumulate_grad_batches)
        return found

    clip = gradient_clip_val or None
    clip_norm = clip if gradient_clip_algorithm == "norm" else None
    loss = _step(module, "training_step", "loss", attach)
    validation_loss = _step(module, "validation_step", monitor, validating)
    course = course_of(
        module,
        loss,
        train_dataloaders,
        optimizer,
        epochs=max_epochs,
        steps=max_steps,
        scheduler=scheduler,
        scheduler_every=interval,
        accumulate=accumulate_grad_batches,
        shrink_last=True,
        clip_norm=clip_norm,
        clip_value=clip if gradient_clip_algorithm == "value" else None,
        validation=val_dataloaders,
        validation_loss=validation_loss,
        evaluate_every=val_check_interval,
        stop=stop,
        best=best,
        seed=seed,
        contract=contract,
        frozen_collator=frozen_collator,
    )
    hooks = [name for name in REHEARSED if _own(module, name)]

    def rehearsed(
        moments: Moments | None = None,
    ) -> tuple[CourseSettings | None, Mapping[str, bool]]:
        return settings_of_hooks(
            module,
            optimizer,
            scheduler,
            interval,
            epochs_of(course),
            clip_norm,
            hooks,
            lambda copied, at, own: _hooked(copied, attach(at), own),
            moments,
        )

    settings, flags = rehearsed()
    course = replace(course, settings=settings)
    moments = course.programs.moments if hooks else None
    if moments is not None and rehearsed(moments) != (settings, flags):
        raise UsageError(
            f"{type(module).__name__}.{' or '.join(hooks)} depends on what training_step keeps in "
            "Python, but the job's steps are made without it.",
            "Use the numbers of the step instead (global_step, current_epoch).",
        )
    python = PythonWatch(module, course.runs, course.calls, live=lambda: course.live)
    roots = {"loss": loss, "validation_loss": validation_loss}
    summary = carry_out(
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
    set_flags(module, flags)  # as the hooks leave them
    return summary


def _one(loaders: Any, what: str) -> Any:
    """The one loader of a list of one."""
    if isinstance(loaders, (tuple, list)) and len(loaders) == 1:
        return loaders[0]
    if loaders is None or isinstance(loaders, (tuple, list, Mapping)):
        raise UsageError(
            f"{what} is not a single DataLoader.",
            "Pass a single DataLoader, or a datamodule with one.",
        )
    return loaders
