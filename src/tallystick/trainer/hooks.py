"""A rehearsal of a LightningModule's hooks: what they freeze, and what they write into the groups.

A copy of the module without values goes through the hooks of all steps, in the order of Lightning's
own loop. A hook that computes with tensors, or changes another attribute of the module, does what
no job can have beside its step, and is refused by name (PROGRAM 5.22).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tallystick.errors import TallystickError, UsageError
from tallystick.program.capture.moments import Live, Moments
from tallystick.program.capture.python_state import PythonState, is_flag
from tallystick.terminal.lines import note
from tallystick.trainer.numbers import Epochs
from tallystick.trainer.settings import (
    CourseSettings,
    Setting,
    flags_of,
    rates_of,
    without_values,
)
from tallystick.trainer.silence import effect, identities, put_back, rehearsing
from tallystick.trainer.watching import Watch, changed, is_carried

# Those before the first epoch were never called, and mostly report: one that fails is left out.
ONCE = ("on_fit_start", "on_train_start")
_OFTEN = "on_train_batch_start"
_TORCHS_OWN = frozenset(vars(nn.Module()))
REHEARSED = (*ONCE, "on_train_epoch_start", "on_train_batch_start", "on_train_epoch_end")


@dataclass(frozen=True)
class HookStep:
    """The plain numbers of a step."""

    step: int
    epoch: int
    batch: int
    steps: int
    batches: int


class _NoBatch:
    """In the place of a batch: a hook that reads it decides by records."""

    def _refuse(self, *_: Any) -> Any:
        raise UsageError("The hook reads its batch.", "Move this into training_step.")

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = _refuse


class _NoTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises UsageError for every computation."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise UsageError(
            f"The hook computes with tensors ({func}).", "Move this into training_step."
        )


@dataclass
class _HookRehearsal:
    module: nn.Module
    optimizer: Any
    scheduler: Any
    scheduler_every: str
    epochs: Epochs
    clip_norm: float | None
    hooks: Sequence[str]
    attached: Callable[[nn.Module, Any, Any], AbstractContextManager[Any]]
    live: Live | None = None
    found: list[tuple[Setting, tuple[float | None, ...]]] = field(default_factory=list)
    changes: bool = False

    def run(self) -> None:
        """All hooks of all steps. Raises HookError."""
        if self.live is not None:
            try:
                self._steps()
            finally:
                self.live.restore()
            return
        python = PythonState(self.module)
        before = python.look()
        self._steps()
        moved = _moved(before, python.look())
        if moved and _OFTEN in self.hooks:
            what = f"It changes the attribute {moved[0]}."
            raise HookError(self._who(_OFTEN), _OFTEN, self.epochs.steps - 1, what)

    def _steps(self) -> None:
        e = self.epochs
        for name in ONCE:
            self._call(name, self._at(0, 0))
        step = 0
        for epoch in range(e.count):
            self._call("on_train_epoch_start", self._at(step, 0))
            for first in range(0, max(1, e.batches), e.accumulate):
                if step == e.steps:
                    return
                for batch in range(first, min(first + e.accumulate, max(1, e.batches))):
                    before = Setting.now(self.module, self.optimizer, self.clip_norm)
                    self._call("on_train_batch_start", self._at(step, batch), _NoBatch(), batch)
                    now = Setting.now(self.module, self.optimizer, self.clip_norm)
                    if batch > first and now.trained != before.trained:
                        raise UsageError(
                            f"{self._who('on_train_batch_start')} changes requires_grad between "
                            f"the batches of one update (batch {batch} of epoch {epoch}).",
                            "Change it at the first batch of an update.",
                        )
                if self.found and self.found[-1][0] == now:
                    now = self.found[-1][0]  # one object for many steps
                self.found.append((now, rates_of(self.optimizer)))
                step += 1
                if self.scheduler is not None and self.scheduler_every == "step":
                    self.scheduler.step()
            self._call("on_train_epoch_end", self._at(step, 0))
            if self.scheduler is not None and self.scheduler_every == "epoch":
                self.scheduler.step()

    def _attributes(self) -> dict[str, Any]:
        """Those of the modules, for a hook of each batch: what lies deeper is looked at once."""
        found: dict[str, Any] = {}
        for path, child in self.module.named_modules():
            for key, value in vars(child).items():
                if key == "training" or key not in _TORCHS_OWN:
                    kept = identities(value) if type(value) in (list, dict, set) else None
                    found[f"module.{path}.{key}".replace("..", ".")] = id(value), kept
        return found

    def _held(self, name: str) -> Callable[[], dict[str, Any]]:
        """A look at what a hook may change beside flags and groups."""
        if self.live is None and name == _OFTEN:
            return self._attributes
        python = PythonState(self.module)
        if self.live is None:
            return python.look
        return lambda: {**python.look(), **self._attributes()}

    def _at(self, step: int, batch: int) -> HookStep:
        e = self.epochs
        last = min(step, e.steps - 1) if batch == 0 and step == e.steps else step
        return HookStep(step, last // e.updates, batch, e.steps, max(1, e.batches))

    def _who(self, name: str) -> str:
        return f"{type(self.module).__name__}.{name}"

    def _call(self, name: str, at: HookStep, *given: Any) -> None:
        if name not in self.hooks:
            return
        watch = Watch(self.module, self.optimizer, {})
        if self.live is not None:
            self.live.put(at.step)
        held = self._held(name)
        hook = getattr(self.module, name)
        arguments = given[: len(inspect.signature(hook).parameters)]
        with self.attached(self.module, at, self.optimizer) as trainer:
            before, attributes, asked = watch.look(), held(), dict(vars(trainer))
            try:
                with _NoTensors():  # type: ignore[no-untyped-call]
                    returned = hook(*arguments)
            except TallystickError as error:
                why = error.message
            except Exception as error:  # whatever a hook raises
                why = effect() or f"It raises {type(error).__name__} ({error})."
            else:
                why = "It leaves out an epoch." if returned == -1 else effect() or ""
            names = changed(before, watch.look())
            others = [n for n in names if not is_carried(n)]
            others += [f"the attribute {n}" for n in _moved(attributes, held())]
            others += [f"its trainer's {n}" for n in changed(asked, vars(trainer))]
        if others and not why:
            why = f"It changes {others[0]}."
        if why:
            raise HookError(self._who(name), name, at.step, why)
        self.changes |= bool(names)


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The attributes that changed, without what is looked at by itself: `requires_grad`, and the
    place of the trainer."""
    names = [name for name in changed(before, after) if not _is_trainer(name)]
    return [name for name in names if not any(map(is_flag, after.get(name, ())))]


def _is_trainer(attribute: str) -> bool:
    """The stand-in, which holds the optimizer, and is looked at by itself."""
    return not {"trainer", "_trainer"}.isdisjoint(attribute.split("."))


class HookError(UsageError):
    """A hook cannot be rehearsed."""

    def __init__(self, who: str, name: str, step: int, why: str) -> None:
        super().__init__(
            f"{who} does at step {step} what a job cannot have beside its steps. {why}",
            "A hook may set requires_grad and the groups of the optimizer, by numbers that are "
            "known before; move all else into training_step or configure_optimizers.",
        )
        self.name = name


def _copy_by(memo: Mapping[int, Any]) -> Callable[[Any], Any]:
    """The copy of an object that a deep copy has made; itself where it has made none."""
    return lambda value: memo.get(id(value), value)


def settings_of_hooks(
    module: nn.Module,
    optimizer: Any,
    scheduler: Any,
    scheduler_every: str,
    epochs: Epochs,
    clip_norm: float | None,
    hooks: Sequence[str],
    attached: Callable[[nn.Module, Any, Any], AbstractContextManager[Any]],
    moments: Moments | None = None,
) -> tuple[CourseSettings | None, Mapping[str, bool]]:
    """The settings of all steps, None where no hook changes them; and the flags at the end.

    `hooks` are those that the module has; `attached` puts the numbers of a step, an optimizer and a
    trainer's place into a module. With `moments` each hook finds what the steps before it have left
    in Python. Raises UsageError for a hook that does something else.
    """
    left = list(hooks)
    while left:
        memo = without_values(module)
        try:
            copies = copy.deepcopy((module, optimizer, scheduler), memo)
        except Exception as error:  # whatever the module's parts raise
            raise UsageError(
                f"{type(module).__name__} has {left[0]}, which cannot be rehearsed, because no "
                f"copy can be made ({error}).",
                "Freeze before the training, or move this into training_step.",
            ) from error
        live = None if moments is None else Live(moments, _copy_by(memo))
        rehearsal = _HookRehearsal(
            *copies, scheduler_every, epochs, clip_norm, left, attached, live
        )
        try:
            with rehearsing(), put_back({type(module).__name__: module}):
                rehearsal.run()
        except HookError as error:
            if error.name not in ONCE:
                raise
            if moments is None:  # the first rehearsal
                note(f"{error.message} It is not called.")
            left.remove(error.name)
            continue
        if not rehearsal.changes:
            break
        return CourseSettings.of(rehearsal.found), flags_of(rehearsal.module)
    return None, flags_of(module)
