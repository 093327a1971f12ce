"""transformers' callbacks beside a run: what they see, and what they may ask for.

They see the numbers of each step and each pass of validation, and the job's rates of each step, in
the log, in the optimizer's groups and in the scheduler, none of which takes a step here. They do
not see weights: `model` has the first ones until the run has ended. A callback that asks to stop
is told no, by name: the job says when a run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.cli.output import note
from tallystick.job.job import Job
from tallystick.run.show.series import decides, trained, trains


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

    `epoch` has the records of an epoch divided by those of a batch.
    """

    def __init__(self, trainer: Any, epoch: float, out: str) -> None:
        self._trainer, self._epoch, self._out = trainer, epoch, out
        self._rate_names: list[str] = []
        self._rates: list[float] = []  # of the last step, for each group of the optimizer
        self._job: Job | None = None
        self._window: list[float] = []
        self._refused: set[str] = set()
        self._in_epoch = False

    # -- what the run says -------------------------------------------------------------------------
    def notice(self, text: str) -> None:
        note(text)

    def begin(self, job: Job, start: int) -> None:
        self._job = job
        self._rate_names = rate_names(job, len(self._trainer.optimizer.param_groups))
        self._trainer.state.global_step = trained(job.commitment.timetable, start)

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
        self._trainer.log({"loss": sum(window) / len(window), **told})
        self._window = []

    def _validated(self, loss: float) -> None:
        trainer, state = self._trainer, self._trainer.state
        if state.best_metric is None or loss < state.best_metric:
            state.best_metric, state.best_model_checkpoint = loss, self._out
            state.best_global_step = state.global_step
        metrics = {"eval_loss": loss}
        trainer.log(metrics)
        self.tell("on_evaluate", metrics)

    def tell(self, event: str, *given: Any) -> None:
        """Call `event` of each callback. A wish to stop is taken back, and announced once."""
        trainer = self._trainer
        handler = trainer.callback_handler
        every = handler.callbacks
        try:
            for callback in every:
                handler.callbacks = [callback]
                heard = getattr(handler, event)(
                    trainer.args, trainer.state, trainer.control, *given
                )
                trainer.control = heard
                self._take_back(type(callback).__name__)
        finally:
            handler.callbacks = every

    def _take_back(self, name: str) -> None:
        trainer = self._trainer
        if not trainer.control.should_training_stop:
            return
        trainer.control.should_training_stop = False
        ended = trainer.state.global_step >= trainer.state.max_steps
        if not ended and name not in self._refused:
            self._refused.add(name)
            note(
                f"{name} asks to stop at step {trainer.state.global_step}. The run goes on: the "
                "job alone says when it ends. EarlyStoppingCallback and max_steps are part of it."
            )
