"""A rehearsal of transformers' callbacks: what they change at each step, before the job is written.

Copies of the callbacks hear all events of all steps, after `on_train_begin`. The model is a copy
without values, and nothing is trained. Losses and metrics are numbers whose use is seen: what a
callback decides by them, or by a weight, is not known before the training (PROGRAM 5.22).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers.trainer_callback import DefaultFlowCallback, TrainerCallback

from tallystick.errors import CallbackError
from tallystick.program.capture.recorded import NumberRecord
from tallystick.trainer.listening import Events, Heard, is_own
from tallystick.trainer.settings import (
    CourseSettings,
    Setting,
    flags_of,
    rates_of,
    set_flags,
    without_values,
)
from tallystick.trainer.silence import effect, put_back, rehearsing
from tallystick.trainer.watching import CLIP, Watch, changed, fields_of, is_carried


@dataclass(frozen=True)
class Scene:
    """Flags, groups and the bound for the norm at one time."""

    flags: Mapping[str, bool]
    groups: Sequence[Mapping[str, Any]]
    clip_norm: Any

    @classmethod
    def of(cls, trainer: Any) -> Scene:
        groups = trainer.optimizer.param_groups
        kept = [{k: copy.deepcopy(v) for k, v in g.items() if k != "params"} for g in groups]
        return cls(flags_of(trainer.model), kept, trainer.args.max_grad_norm)

    def put(self, trainer: Any) -> None:
        set_flags(trainer.model, self.flags)
        for group, kept in zip(trainer.optimizer.param_groups, self.groups, strict=True):
            group.update(copy.deepcopy(dict(kept)))
        trainer.args.max_grad_norm = self.clip_norm


@dataclass
class Rehearsed:
    """What was seen: the setting and rates of each update, the rates that the scheduler leaves, and
    the changes of each call of a callback. `reasons` says which callbacks could not be rehearsed,
    by number, and why. `until` rehearses once more, and gives the scene before an update, and by
    callback its plain attributes there."""

    updates: list[tuple[Setting, tuple[float | None, ...]]] = field(default_factory=list)
    scheduled: list[tuple[float | None, ...]] = field(default_factory=list)
    changes: dict[Heard, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    until: Callable[[int], tuple[Scene, dict[int, dict[str, Any]]]] | None = None

    def put(self, trainer: Any, callbacks: Sequence[Any], step: int) -> None:
        """A run goes on before update `step`: the scene, and the callbacks that change something,
        are as there."""
        assert self.until is not None
        scene, held = self.until(step)
        scene.put(trainer)
        for number in {number for number, *_ in self.changes}:
            vars(callbacks[number]).update(held[number])

    def settings(self) -> CourseSettings | None:
        """Those of the job; None where no callback changes what a job can have."""
        return CourseSettings.of(self.updates) if self.changes else None


class _FailedError(Exception):
    """A callback cannot be rehearsed: its number, and a reason."""


class _Rehearsal(Events):
    def __init__(self, trainer: Any, epoch: int, found: Rehearsed) -> None:
        super().__init__(trainer, epoch)
        self.found, self.record = found, NumberRecord()
        self._clip: float | None = None
        self._trained: frozenset[str] = frozenset()
        self._watch = Watch(
            trainer.model,
            trainer.optimizer,
            {},
            more=lambda: fields_of(trainer.args, frozenset([CLIP.removeprefix("args.")])),
        )

    def before_step(self) -> None:
        return None

    def before_backward(self) -> None:
        now = Setting.now(self.trainer.model, self.trainer.optimizer, None)
        self._trained, self._clip = now.trained, self.trainer.args.max_grad_norm or None

    def before_update(self) -> None:
        optimizer = self.trainer.optimizer
        now = Setting.now(self.trainer.model, optimizer, None)
        setting = Setting(self._trained, now.options, self._clip)
        if self.found.updates and self.found.updates[-1][0] == setting:
            setting = self.found.updates[-1][0]  # one object for many steps
        self.found.updates.append((setting, rates_of(optimizer)))

    def scheduled(self) -> None:
        self.trainer.lr_scheduler.step()
        self.found.scheduled.append(rates_of(self.trainer.optimizer))

    def rates(self) -> dict[str, Any]:
        return {"learning_rate": self.found.updates[-1][1][0]}

    def validated(self, loss: Any) -> None:
        state = self.trainer.state
        state.best_metric = self.record.source("the best loss", 1.0)
        state.best_global_step = self.record.source("the best step", state.global_step)
        super().validated(loss)

    def called(self, callback: Any, heard: Heard, given: tuple[Any, ...]) -> None:
        before = self._watch.settings()
        self.record.uses.clear()
        try:
            self.call(heard[1], given)
        except Exception as error:
            found = effect() or f"there it raises {type(error).__name__} ({error})"
            raise _FailedError(heard[0], found) from error
        if (wanted := effect()) is not None:
            raise _FailedError(heard[0], wanted)
        if self.record.uses:
            place = self.record.uses[0].place
            raise _FailedError(heard[0], f"it reads a loss, a metric or a best step{place}")
        after = self._watch.settings()
        names = [name for name in changed(before, after) if is_carried(name)]
        if names:
            self.found.changes[heard] = {name: after[name] for name in names}
        control = self.trainer.control
        control.should_training_stop = control.should_epoch_stop = False


def _plain_attributes(callback: Any) -> dict[str, Any]:
    """Those attributes that are numbers, texts, or containers of them."""
    held = getattr(callback, "__dict__", {})
    return {name: copy.deepcopy(value) for name, value in held.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if type(value) in (bool, int, float, str, type(None)):  # a recorded number is none of them
        return True
    if type(value) is dict:
        return all(_is_plain(part) for item in value.items() for part in item)
    return type(value) in (list, tuple, set) and all(map(_is_plain, value))


def _staged(trainer: Any, callbacks: Sequence[Any], left_out: Mapping[int, str]) -> Any:
    """A trainer of copies. Of the callbacks it has those of a person's that are not left out, and
    transformers' own flow. Raises _FailedError."""
    stage = copy.copy(trainer)
    memo: dict[int, Any] = {id(trainer): stage, **without_values(trainer.model)}
    for kept in (trainer.train_dataset, trainer.eval_dataset, trainer.data_collator):
        memo[id(kept)] = kept
    stage.args = memo[id(trainer.args)] = copy.copy(trainer.args)
    for name in ("model", "optimizer", "lr_scheduler", "state", "control"):
        setattr(stage, name, copy.deepcopy(getattr(trainer, name), memo))
    handler = stage.callback_handler = copy.copy(trainer.callback_handler)
    handler.model, handler.optimizer = stage.model, stage.optimizer
    handler.lr_scheduler = stage.lr_scheduler
    handler.callbacks = []
    for number, callback in enumerate(callbacks):
        heard = is_own(callback) and number not in left_out
        copied: Any = TrainerCallback()
        if heard or isinstance(callback, DefaultFlowCallback):
            try:
                copied = copy.deepcopy(callback, memo)
            except Exception as error:  # whatever its parts raise
                raise _FailedError(number, f"no copy of it can be made ({error})") from error
        handler.callbacks.append(copied)
    return stage


@dataclass(frozen=True)
class _Play:
    """What is rehearsed: the callbacks, and the numbers of the training."""

    trainer: Any
    callbacks: Sequence[Any]
    watch: Watch
    epoch: int
    every: int
    roots: Mapping[str, Any]

    def once(self, steps: int, found: Rehearsed) -> tuple[Scene, dict[int, dict[str, Any]]]:
        """All events of `steps` updates, for the callbacks without a reason, and their end.
        Raises _FailedError."""
        with rehearsing(), put_back(self.roots), self.watch.kept():
            stage = _staged(self.trainer, self.callbacks, found.reasons)
            rehearsal = _Rehearsal(stage, self.epoch, found)
            rehearsal.goes_on(0)
            for step in range(steps):
                rehearsal.trained(rehearsal.record.source("the loss", 1.0))
                if self.every and (step + 1) % self.every == 0:
                    rehearsal.validated(rehearsal.record.source("the validation loss", 1.0))
            callbacks = enumerate(stage.callback_handler.callbacks)
            return Scene.of(stage), {n: _plain_attributes(c) for n, c in callbacks}


def rehearsed(
    trainer: Any, callbacks: Sequence[Any], watch: Watch, steps: int, epoch: int, every: int
) -> Rehearsed | None:
    """What the callbacks of a person's change in `steps` updates with a pass of validation after
    each `every`; None where there are none. `watch` looks at the trainer itself.

    Raises CallbackError where they change a weight during the rehearsal, past their arguments.
    """
    own = {number: c for number, c in enumerate(callbacks) if is_own(c)}
    if not own:
        return None
    began, before = Scene.of(trainer), watch.look()
    reasons: dict[int, str] = {}
    kinds = sorted({type(callback).__name__ for callback in own.values()})
    roots = {f"callback {number}": callback for number, callback in own.items()}
    play = _Play(trainer, callbacks, watch, epoch, every, roots)
    while True:
        found = Rehearsed(reasons=reasons)
        try:
            play.once(steps, found)
        except _FailedError as failed:
            reasons[failed.args[0]] = failed.args[1]
            continue
        except Exception as error:  # whatever the model's parts raise
            reasons |= dict.fromkeys(own, f"no copy of the model can be made ({error})")
            found = Rehearsed(reasons=reasons)
        break
    past = changed(before, watch.look())
    began.put(trainer)
    if lasting := changed(before, watch.look()):
        raise CallbackError(
            f"{' or '.join(kinds)} changes {lasting[0]}, which is not one of its arguments, so it "
            "cannot be rehearsed before the job is written.",
            "Let it change only the model and the optimizer that an event passes.",
        )
    if past:
        why = f"it changes {past[0]} past its arguments"
        return Rehearsed(reasons=reasons | dict.fromkeys(own, why))
    found.until = lambda step: play.once(step, Rehearsed(reasons=reasons))
    return found
