"""transformers' events of a training, in the order of its own loop, and who hears them.

Callbacks hear the numbers of each step and each pass of validation, after the step. They see the
job's rates of that step; where one of them changes what the job has by step, they see rates,
options and flags as transformers' loop has them at each event. They do not see weights: `model` has
the first ones until the run has ended, and no gradients: those that name them between the backward
pass and the update are refused, as are those that hear of each micro-batch.

`on_train_begin` comes before the job is made, which takes over what it changes. After a resume they
hear it again, at step 0, and then the steps after the state from which the run goes on: also those
that the journal knows already. A callback whose changes the job has then gets the plain attributes
(counters) that it would have there. The history of the log begins anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

from transformers.trainer_callback import TrainerCallback

from tallystick.errors import CallbackError
from tallystick.program.capture.places import names_in

BETWEEN = ("on_pre_optimizer_step", "on_optimizer_step")
SUBSTEP = "on_substep_end"
_FLAGS = ("requires_grad", "requires_grad_", "no_grad", "max_grad_norm", "set_grad_enabled")


def is_own(callback: Any) -> bool:
    """Whether a person wrote the callback: those of transformers only report."""
    return not type(callback).__module__.startswith("transformers.")


def hears(callback: Any, event: str) -> bool:
    """Whether the callback has a method for the event."""
    inherited = getattr(TrainerCallback, event)
    return getattr(getattr(callback, event), "__func__", None) is not inherited


def refuse_unheard(callbacks: Sequence[Any], micro_batches: int) -> None:
    """Raises CallbackError for a person's callback that waits for what a run does not have: the end
    of a micro-batch, and gradients between the backward pass and the update."""
    for callback in filter(is_own, callbacks):
        who = type(callback).__name__
        if micro_batches > 1 and _names(callback, SUBSTEP):
            raise CallbackError(
                f"{who}.{SUBSTEP} waits for each micro-batch, but a run has only whole updates.",
                "Use on_step_end, or leave it out.",
            )
        for event in BETWEEN:
            found = sorted(n for n in _names(callback, event) if "grad" in n and n not in _FLAGS)
            if found:
                raise CallbackError(
                    f"{who}.{event} reads gradients ({found[0]}), which live parameters do not "
                    "have while a signed run computes them.",
                    "Clip with max_grad_norm. The run itself reports the norm of the gradients.",
                )


def _names(callback: Any, event: str) -> frozenset[str]:
    """What the callback's method for an event names; nothing where it has none of its own."""
    function = getattr(getattr(callback, event), "__func__", getattr(callback, event))
    code = getattr(function, "__code__", None)
    if not hears(callback, event) or (code is not None and not names_in(code)):
        return frozenset()
    return frozenset(["__call__"]) if code is None else names_in(code)


class _Catches(TrainerCallback):
    """Keeps what a trainer logs."""

    def __init__(self) -> None:
        self.logs: list[Any] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logs.append(logs)


# The number of a callback, an event, the step, and how often it was heard there before.
Heard = tuple[int, str, int, int]


class Events(ABC):
    """Calls the callbacks of `trainer` as its own loop would; an epoch has `epoch` updates."""

    def __init__(self, trainer: Any, epoch: int) -> None:
        self.trainer, self.epoch = trainer, epoch
        self._window: list[Any] = []
        self._in_epoch = False
        self._count: Counter[tuple[int, str, int]] = Counter()

    # -- what differs between a rehearsal and a run ------------------------------------------------
    @abstractmethod
    def before_step(self) -> None:
        """An update's events begin."""

    @abstractmethod
    def before_backward(self) -> None:
        """The forward and the backward pass are made here."""

    @abstractmethod
    def before_update(self) -> None:
        """The optimizer steps here."""

    @abstractmethod
    def scheduled(self) -> None:
        """The scheduler steps here."""

    @abstractmethod
    def called(self, callback: Any, heard: Heard, given: tuple[Any, ...]) -> None:
        """Call a callback that a person wrote."""

    # -- the loop ----------------------------------------------------------------------------------
    def goes_on(self, step: int) -> None:
        """Update `step` is the next one."""
        state = self.trainer.state
        state.global_step, state.epoch = step, step / self.epoch

    def trained(self, loss: Any) -> None:
        """The events of an update whose loss is this."""
        trainer, state = self.trainer, self.trainer.state
        self.before_step()
        if not self._in_epoch:
            self.tell("on_epoch_begin")
            self._in_epoch = True
        self.tell("on_step_begin")
        self.before_backward()
        self.tell(BETWEEN[0])
        self.before_update()
        self.tell(BETWEEN[1])
        self.scheduled()
        state.global_step += 1
        before = int((state.global_step - 1) / self.epoch)
        state.epoch = state.global_step / self.epoch
        self._window.append(loss)
        self.tell("on_step_end")
        if int(state.epoch) > before:
            self.tell("on_epoch_end")
            self._in_epoch = False
        if trainer.control.should_log:
            window, self._window = self._window, []
            self._logged({"loss": sum(window) / len(window), **self.rates()})

    @abstractmethod
    def rates(self) -> dict[str, Any]:
        """The rate of the last update, as the log has it."""

    def _logged(self, logs: dict[str, Any]) -> None:
        """`log` of the trainer, whose callbacks hear of it one by one."""
        trainer = self.trainer
        handler, heard = trainer.callback_handler, _Catches()
        every, handler.callbacks = handler.callbacks, [heard]
        try:
            trainer.log(logs)
        finally:
            handler.callbacks = every
        for given in heard.logs:
            self.tell("on_log", given)

    def validated(self, loss: Any) -> None:
        """The events of a pass of validation whose loss is this."""
        metrics = {"eval_loss": loss}
        self._logged(metrics)
        self.tell("on_evaluate", metrics)

    def tell(self, event: str, *given: Any) -> None:
        """Call `event` of each callback."""
        trainer = self.trainer
        handler = trainer.callback_handler
        every = handler.callbacks
        step = trainer.state.global_step
        try:
            for number, callback in enumerate(every):
                if not hears(callback, event):
                    continue
                handler.callbacks = [callback]
                if is_own(callback):
                    times = self._count[number, event, step]
                    self._count[number, event, step] += 1
                    self.called(callback, (number, event, step, times), given)
                elif event not in BETWEEN:
                    self.call(event, given)
                    if not self.ends():
                        trainer.control.should_training_stop = False
        finally:
            handler.callbacks = every

    def call(self, event: str, given: tuple[Any, ...]) -> None:
        """The event of the handler's one callback."""
        trainer = self.trainer
        trainer.control = getattr(trainer.callback_handler, event)(
            trainer.args, trainer.state, trainer.control, *given
        )

    def ends(self) -> bool:
        return bool(self.trainer.state.global_step >= self.trainer.state.max_steps)
