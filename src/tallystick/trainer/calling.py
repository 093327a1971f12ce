"""transformers' callbacks beside a run: what they hear, and what they may not do.

What a callback changes is compared with its rehearsal: a change that the job has is made again, and
another one ends the run, by the callback's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.errors import CallbackError
from tallystick.job.job import Job
from tallystick.program.capture.places import KeptPlace
from tallystick.terminal.lines import note
from tallystick.trainer.arguments import HONOURED
from tallystick.trainer.course import Course
from tallystick.trainer.listening import BETWEEN, Events, Heard
from tallystick.trainer.python_watch import PythonWatch
from tallystick.trainer.rehearsal import Rehearsed
from tallystick.trainer.watching import (
    FLAG,
    Watch,
    fields_of,
    is_carried,
    refusal,
    stop,
    told,
)

_LOOPS_OWN = ("state", "control", "callback_handler")
_FLAGS = ("should_training_stop", "should_epoch_stop", "should_evaluate", "should_save")


def watch_of(trainer: Any, names: Sequence[str]) -> Watch:
    """A watch over a Trainer; `names` are its attributes that the loss may be reached from beside
    the model."""

    def more() -> dict[str, Any]:
        flags = {f"{FLAG}{flag}": getattr(trainer.control, flag) for flag in _FLAGS}
        return fields_of(trainer.args, HONOURED) | flags

    roots = {name: getattr(trainer, name) for name in names}
    return Watch(trainer.model, trainer.optimizer, roots, trainer, more)


def python_watch_of(trainer: Any, course: Course) -> PythonWatch:
    """A watch over what the loss of a Trainer reads. Callbacks by themselves are not looked at; nor
    what the loop writes, and the arguments that `watch_of` sees. transformers' own loop sets the
    model's modes before each step."""

    def past() -> list[Any]:
        state = trainer.state
        return [
            trainer.callback_handler, trainer.control, trainer.lr_scheduler, state.log_history,
            trainer.train_dataset, trainer.eval_dataset,
        ]  # fmt: skip

    def skips(place: KeptPlace) -> bool:
        if place.holder is trainer.args:
            return place.key in HONOURED
        return place.holder is trainer and place.key in _LOOPS_OWN

    return PythonWatch(
        course.module, course.runs, course.calls, past, skips, True, lambda: course.live
    )


def rate_names(job: Job, groups: int) -> list[str]:
    """The scalars of `job` that are the rates of an optimizer's groups, in their order."""
    width = len(str(groups - 1))
    names = ["lr"] if groups == 1 else [f"lr.{i:0{width}d}" for i in range(groups)]
    return names if set(names) <= set(job.scalars) else []


def show_rates(trainer: Any, rates: Sequence[float | None]) -> None:
    """Let callbacks find the rates of the optimizer's groups where transformers has them."""
    if rates:
        for group, rate in zip(trainer.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        trainer.lr_scheduler._last_lr = list(rates)


class CallbackCalls(Events):
    """A `Listener` that calls the callbacks of `trainer` as its own loop would.

    `epoch` is the number of updates of one; `rehearsed` what the callbacks are to change.
    """

    def __init__(self, trainer: Any, epoch: int, watch: Watch, out: str = "") -> None:
        super().__init__(trainer, epoch)
        self.watch, self._out = watch, out
        self.rehearsed: Rehearsed | None = None
        self._job: Job | None = None
        self._rate_names: list[str] = []
        self._rates: Sequence[float | None] = []  # of the last step, by group
        self._told: set[tuple[str, str]] = set()

    # -- what the run says -------------------------------------------------------------------------
    def notice(self, text: str) -> None:
        note(text)

    def begin(self, job: Job, start: int) -> None:
        self._job = job
        self._rate_names = rate_names(job, len(self.trainer.optimizer.param_groups))
        step = job.commitment.timetable.trained(start)
        if step and self._carries:
            self._seen.put(self.trainer, self.trainer.callback_handler.callbacks, step)
        self.goes_on(step)

    def step(self, step: int, loss: float, seconds: float) -> None:
        assert self._job is not None
        timetable = self._job.commitment.timetable
        if timetable.trains(step):
            self._rates = [self._job.terms.scalar(name, step) for name in self._rate_names]
            if self._carries:
                self._rates = self._seen.updates[self.trainer.state.global_step][1]
            self.trained(loss)
        elif timetable.ends_pass(step):
            self.validated(loss)

    def evaluated(self, step: int, loss: float) -> None:
        self.validated(loss)

    # -- the loop ----------------------------------------------------------------------------------
    @property
    def _seen(self) -> Rehearsed:
        assert self.rehearsed is not None
        return self.rehearsed

    @property
    def _carries(self) -> bool:
        """Whether the job has changes of the callbacks."""
        return self.rehearsed is not None and bool(self.rehearsed.changes)

    def before_step(self) -> None:
        if not self._carries:
            show_rates(self.trainer, self._rates)

    def before_backward(self) -> None:
        return None

    def before_update(self) -> None:
        return None

    def scheduled(self) -> None:
        if self._carries:
            show_rates(self.trainer, self._seen.scheduled[self.trainer.state.global_step])

    def rates(self) -> dict[str, Any]:
        # Whatever a callback has written into the optimizer's groups.
        return {"learning_rate": self._rates[0]} if self._rates else {}

    def validated(self, loss: Any) -> None:
        state = self.trainer.state
        if state.best_metric is None or loss < state.best_metric:
            state.best_metric, state.best_model_checkpoint = loss, self._out
            state.best_global_step = state.global_step
        super().validated(loss)

    # -- what callbacks change ---------------------------------------------------------------------
    def called(self, callback: Any, heard: Heard, given: tuple[Any, ...]) -> None:
        """Raises CallbackError, naming the callback, where it changes what the job does not have,
        or asks to stop."""
        _, event, step, _ = heard
        if self._job is None:  # the job takes over what is changed before it
            self.call(event, given)
            return
        expected = self._expected(heard)
        # Between forward and update, Python is as the forward pass has left it.
        self.watch.at(self.trainer.state.global_step + (event in BETWEEN))
        before = self.watch.look(marks=True)
        self._call(callback, event, step, given)
        after = self.watch.look(marks=True)
        ended = event in ("on_train_end", "on_save")
        found, reason = self.watch.changes(before, after, python=not ended)
        names = [name for name in found if not name.startswith(FLAG)]
        made = {name: after[name] for name in names if is_carried(name)}
        others = [name for name in names if name not in made]
        who = f"{type(callback).__name__}.{event}"
        if others or (made != expected and not ended):
            wrong = others or [n for n in {**made, **expected} if made.get(n) != expected.get(n)]
            why = reason if others else self._why(heard[0])
            raise refusal(who, step, told(wrong, before, after), why)
        self._flags(callback, who, step, before, ended)

    def _call(self, callback: Any, event: str, step: int, given: tuple[Any, ...]) -> None:
        """Raises CallbackError where a callback fails that finds another update than a plain one:
        it may read what only that has."""
        try:
            self.call(event, given)
        except Exception as error:
            if event not in BETWEEN:
                raise
            raise CallbackError(
                f"{type(callback).__name__}.{event} raised {type(error).__name__} ({error}) at "
                f"step {step}. There, the live parameters have no gradients. The run ends here, "
                "unsigned.",
                "Leave the callback out. The same call then continues from the last stored state.",
            ) from error

    def _expected(self, heard: Heard) -> dict[str, Any]:
        if self.rehearsed is None:
            return {}
        return self.rehearsed.changes.get(heard, {})

    def _why(self, number: int) -> str:
        reason = self._seen.reasons.get(number)
        if reason is not None:
            return f"It could not be rehearsed before that: {reason}."
        return "In the rehearsal before that it made other changes."

    def _flags(
        self, callback: Any, who: str, step: int, before: Mapping[str, Any], ended: bool
    ) -> None:
        state, control = self.trainer.state, self.trainer.control
        if control.should_training_stop and not (ended or self.ends()):
            raise stop(who, step)
        if control.should_epoch_stop and state.epoch != int(state.epoch or 0):
            raise refusal(who, step, [f"{FLAG}should_epoch_stop"])
        for flag, what in (("should_evaluate", "validation"), ("should_save", "a stored state")):
            known = (type(callback).__name__, flag)
            asked = getattr(control, flag) and not before[f"{FLAG}{flag}"]
            if asked and known not in self._told:
                self._told.add(known)
                note(
                    f"{known[0]} asks for {what} at step {step}: that comes by the job's schedule "
                    "alone, and changes no number."
                )
