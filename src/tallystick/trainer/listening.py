"""transformers' callbacks beside a run: what they hear, and what they may not do.

They hear the numbers of each step and each pass of validation, after the step, and see the job's
rates of that step, in the log, in the optimizer's groups and in the scheduler, none of which takes
a step here. They do not see weights: `model` has the first ones until the run has ended. A change
of what decides numbers ends the run, by name.

`on_train_begin` comes before the job is made, which takes over what it changes. After a resume they
hear it again, at step 0, and then the steps after the state from which the run goes on: also those
that the journal knows already. The history of the log begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers.trainer_callback import TrainerCallback

from tallystick.cli.output import note
from tallystick.job.job import Job
from tallystick.run.show.series import decides, trained, trains
from tallystick.trainer.watching import Watch, changes, is_own, refusal, stop


class _Catches(TrainerCallback):
    """Keeps what a trainer logs."""

    def __init__(self) -> None:
        self.logs: list[Any] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logs.append(logs)


def rate_names(job: Job, groups: int) -> list[str]:
    """The scalars of `job` that are the rates of an optimizer's groups, in their order."""
    width = len(str(groups - 1))
    names = ["lr"] if groups == 1 else [f"lr.{i:0{width}d}" for i in range(groups)]
    return names if set(names) <= set(job.scalars) else []


def show_rates(trainer: Any, rates: Sequence[float]) -> None:
    """Let callbacks find the rates of the optimizer's groups where transformers has them."""
    if rates:
        for group, rate in zip(trainer.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        trainer.lr_scheduler._last_lr = list(rates)


class Calls:
    """A `Listener` that calls the callbacks of `trainer` as its own loop would.

    `epoch` is the number of updates of one.
    """

    def __init__(self, trainer: Any, epoch: int, out: str, watch: Watch) -> None:
        self._trainer, self._epoch, self._out = trainer, epoch, out
        self._watch = watch
        self._rate_names: list[str] = []
        self._rates: list[float] = []  # of the last step, for each group of the optimizer
        self._job: Job | None = None
        self._window: list[float] = []
        self._told: set[tuple[str, str]] = set()
        self._in_epoch = False

    # -- what the run says -------------------------------------------------------------------------
    def notice(self, text: str) -> None:
        note(text)

    def begin(self, job: Job, start: int) -> None:
        self._job = job
        self._rate_names = rate_names(job, len(self._trainer.optimizer.param_groups))
        state = self._trainer.state
        state.global_step = trained(job.commitment.timetable, start)
        state.epoch = state.global_step / self._epoch

    def step(self, step: int, loss: float, seconds: float) -> None:
        assert self._job is not None
        timetable = self._job.commitment.timetable
        if trains(timetable, step):
            self._trained(step, loss)
        elif decides(timetable, step):
            self._validated(loss)

    def evaluated(self, step: int, loss: float) -> None:
        self._validated(loss)

    # -- what the callbacks hear -------------------------------------------------------------------
    def _trained(self, step: int, loss: float) -> None:
        trainer, state = self._trainer, self._trainer.state
        assert self._job is not None
        self._rates = [self._job.terms.scalar(name, step) for name in self._rate_names]
        show_rates(trainer, self._rates)
        if not self._in_epoch:
            self.tell("on_epoch_begin")
            self._in_epoch = True
        self.tell("on_step_begin")
        state.global_step += 1
        before = int((state.global_step - 1) / self._epoch)
        state.epoch = state.global_step / self._epoch
        self._window.append(loss)
        self.tell("on_step_end")
        if int(state.epoch) > before:
            self.tell("on_epoch_end")
            self._in_epoch = False
        if trainer.control.should_log:
            self._log()

    def _log(self) -> None:
        window, told = self._window, {}
        if self._rates:  # whatever a callback has written into the optimizer's groups
            told["learning_rate"] = self._rates[0]
        self._logged({"loss": sum(window) / len(window), **told})
        self._window = []

    def _logged(self, logs: dict[str, float]) -> None:
        """`log` of the trainer, whose callbacks hear of it one by one."""
        trainer = self._trainer
        handler, heard = trainer.callback_handler, _Catches()
        every, handler.callbacks = handler.callbacks, [heard]
        try:
            trainer.log(logs)
        finally:
            handler.callbacks = every
        for given in heard.logs:
            self.tell("on_log", given)

    def _validated(self, loss: float) -> None:
        state = self._trainer.state
        if state.best_metric is None or loss < state.best_metric:
            state.best_metric, state.best_model_checkpoint = loss, self._out
            state.best_global_step = state.global_step
        metrics = {"eval_loss": loss}
        self._logged(metrics)
        self.tell("on_evaluate", metrics)

    def tell(self, event: str, *given: Any) -> None:
        """Call `event` of each callback. Raises CallbackError, naming the callback, where one of
        them changes what the job fixes, or asks to stop."""
        trainer = self._trainer
        handler = trainer.callback_handler
        every = handler.callbacks
        try:
            for callback in every:
                handler.callbacks = [callback]
                own = is_own(callback) and self._job is not None
                before = self._watch.look() if own else {}
                heard = getattr(handler, event)(
                    trainer.args, trainer.state, trainer.control, *given
                )
                trainer.control = heard
                if own:
                    self._check(callback, event, before)
                elif not self._ends():
                    trainer.control.should_training_stop = False
        finally:
            handler.callbacks = every

    def _ends(self) -> bool:
        return bool(self._trainer.state.global_step >= self._trainer.state.max_steps)

    def _check(self, callback: Any, event: str, before: Mapping[str, Any]) -> None:
        state, control = self._trainer.state, self._trainer.control
        changed = changes(before, self._watch.look())
        flags = [c for c in changed if c.startswith("control.")]
        if others := [c for c in changed if c not in flags]:
            raise refusal(callback, event, state.global_step, others)
        at_end = self._ends() or event in ("on_train_end", "on_save")
        if control.should_training_stop and not at_end:
            raise stop(callback, event, state.global_step)
        if control.should_epoch_stop and state.epoch != int(state.epoch or 0):
            raise refusal(callback, event, state.global_step, ["control.should_epoch_stop"])
        self._announce(callback, before)

    def _announce(self, callback: Any, before: Mapping[str, Any]) -> None:
        """Say once that a callback's wish for validation or a stored state changes nothing."""
        state, control = self._trainer.state, self._trainer.control
        for flag, what in (("should_evaluate", "validation"), ("should_save", "a stored state")):
            known = (type(callback).__name__, flag)
            asked = getattr(control, flag) and not before[f"control.{flag}"]
            if asked and known not in self._told:
                self._told.add(known)
                note(
                    f"{known[0]} asks for {what} at step {state.global_step}: that comes by the "
                    "job's schedule alone, and changes no number."
                )
