"""transformers' callbacks beside a run: what they hear, and what they may not do.

What a callback changes is compared with its rehearsal: a change that the job has is made again, and
another one ends the run, by the callback's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.cli.output import note
from tallystick.job.job import Job
from tallystick.run.show.series import decides, trained, trains
from tallystick.trainer.arguments import HONOURED
from tallystick.trainer.listening import BETWEEN, Events, Heard
from tallystick.trainer.rehearsal import Rehearsed
from tallystick.trainer.watching import (
    FLAG,
    Watch,
    changed,
    fields_of,
    is_carried,
    refusal,
    stop,
    told,
)

_FLAGS = ("should_training_stop", "should_epoch_stop", "should_evaluate", "should_save")


def watch_of(trainer: Any, names: Sequence[str]) -> Watch:
    """A watch over a Trainer; `names` are its attributes that the loss may be reached from beside
    the model."""

    def more() -> dict[str, Any]:
        flags = {f"{FLAG}{flag}": getattr(trainer.control, flag) for flag in _FLAGS}
        return fields_of(trainer.args, HONOURED) | flags

    roots = {name: getattr(trainer, name) for name in names}
    return Watch(trainer.model, trainer.optimizer, roots, trainer, more)


class Calls(Events):
    """A `Listener` that calls the callbacks of `trainer` as its own loop would.

    `rates` has the learning rates of each training step, by group; `epoch` the updates of an epoch;
    `rehearsed` what the callbacks are to change.
    """

    def __init__(
        self,
        trainer: Any,
        rates: Sequence[Sequence[float | None]],
        epoch: int,
        out: str,
        watch: Watch,
        rehearsed: Rehearsed | None,
    ) -> None:
        super().__init__(trainer, epoch)
        self._rates, self._out, self._watch, self._rehearsed = rates, out, watch, rehearsed
        self._job: Job | None = None
        self._told: set[tuple[str, str]] = set()

    # -- what the run says -------------------------------------------------------------------------
    def notice(self, text: str) -> None:
        note(text)

    def begin(self, job: Job, start: int) -> None:
        self._job = job
        step = trained(job.commitment.timetable, start)
        self.trainer.state.global_step = step
        self._show_rates(step)
        goes_on = step > 0 and self._carries
        if goes_on:
            self._seen.put_attributes(self.trainer.callback_handler.callbacks, step)
        self.start(step)
        if goes_on:
            self._seen.put(self.trainer, step)

    def step(self, step: int, loss: float, seconds: float) -> None:
        assert self._job is not None
        timetable = self._job.commitment.timetable
        if trains(timetable, step):
            self.trained(loss)
        elif decides(timetable, step):
            self.validated(loss)

    def evaluated(self, step: int, loss: float) -> None:
        self.validated(loss)

    # -- the loop ----------------------------------------------------------------------------------
    @property
    def _seen(self) -> Rehearsed:
        assert self._rehearsed is not None
        return self._rehearsed

    @property
    def _carries(self) -> bool:
        """Whether the job has changes of the callbacks."""
        return self._rehearsed is not None and bool(self._rehearsed.changes)

    def before_step(self) -> None:
        if not self._carries:
            self._show_rates(self.trainer.state.global_step)

    def before_backward(self) -> None:
        return None

    def before_update(self) -> None:
        return None

    def scheduled(self) -> None:
        step = self.trainer.state.global_step
        if not self._carries:
            self._show_rates(step + 1)
            return
        groups = self.trainer.optimizer.param_groups
        for group, rate in zip(groups, self._seen.scheduled[step], strict=True):
            group["lr"] = rate

    def _show_rates(self, step: int) -> None:
        """The rates of an update, in the groups of the optimizer."""
        for group, rates in zip(self.trainer.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rates[min(step, len(rates) - 1)]

    def rate(self) -> float:
        done = self.trainer.state.global_step
        if self._carries:
            return self._seen.updates[done - 1][1][0] or 0.0
        return self._rates[0][min(done, len(self._rates[0])) - 1] or 0.0

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
        expected = self._expected(heard)
        if event in BETWEEN and not expected:
            return
        before = self._watch.look()
        self.call(event, given)
        after = self._watch.look()
        names = [name for name in changed(before, after) if not name.startswith(FLAG)]
        made = {name: after[name] for name in names if is_carried(name)}
        others = [name for name in names if name not in made]
        ended = event in ("on_train_end", "on_save")
        who = f"{type(callback).__name__}.{event}"
        if others or (made != expected and not ended):
            wrong = others or [n for n in {**made, **expected} if made.get(n) != expected.get(n)]
            why = "" if others else self._why(heard[0], expected)
            raise refusal(who, step, told(wrong, before, after), why)
        self._flags(callback, who, step, before, ended)

    def _expected(self, heard: Heard) -> dict[str, Any]:
        if self._rehearsed is None:
            return {}
        _, event, step, _ = heard
        if event == "on_train_begin" and step:
            # The scene of the step is put after it.
            heard = (heard[0], event, 0, 0)
        return self._rehearsed.changes.get(heard, {})

    def _why(self, number: int, expected: Mapping[str, Any]) -> str:
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
