"""What every tracker does: the course of a run as curves, and its digests beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from tallystick.commit.timetable import Timetable
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.run.show.summary import RunSummary

LOSS, VALIDATION = "loss", "validation_loss"


class Tracker(ABC):
    """A listener that logs to another tool, which its subclass knows.

    Curves count training steps done: the loss of the first step stands at 1, and a validation loss
    where its state is. A run that is resumed goes on at its step, in a log of its own unless the
    subclass is told which to continue.
    """

    def __init__(self) -> None:
        self._timetable: Timetable | None = None
        self._values: dict[str, float] = {}

    # -- what a tool does --------------------------------------------------------------------------
    @abstractmethod
    def opened(self, facts: Mapping[str, str]) -> None:
        """A run begins: `facts` say of which job, by name."""

    @abstractmethod
    def logged(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers at `step` training steps."""

    @abstractmethod
    def closed(self, facts: Mapping[str, str] | None) -> None:
        """The run has ended: `facts` are its digests by name, None where it is not finished."""

    # -- the listener ------------------------------------------------------------------------------
    def notice(self, text: str) -> None:
        return None

    def begin(self, job: Job, start: int) -> None:
        if self._timetable is None:  # a run that goes on with other workers begins again
            contract = job.commitment.contract
            self.opened({"job_digest": job.digest.hex(), "contract": contract})
            # Only now: what could not be opened is not closed, and its error is the one seen.
            self._timetable = job.commitment.timetable

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._values = dict(values)

    def step(self, step: int, loss: float, seconds: float) -> None:
        if self._timetable is None:
            return
        values, self._values = self._values, {}
        done = self._timetable.trained(step + 1)
        if self._timetable.trains(step):
            self.logged(done, {LOSS: loss, **values})
        elif self._timetable.ends_pass(step):
            self.logged(done, {VALIDATION: loss})

    def evaluated(self, step: int, loss: float) -> None:
        if self._timetable is not None:
            self.logged(self._timetable.trained(step), {VALIDATION: loss})

    def ended(self, result: RunSummary | None) -> None:
        """The last call: the run's summary, None where training has ended with an error."""
        if self._timetable is None and (result is None or not result.finished):
            return
        if self._timetable is None and result is not None:  # it was finished before
            digest = result.job_digest.hex()
            self.opened({"job_digest": digest, "contract": result.contract})
        self._timetable = None
        self.closed(None if result is None or not result.finished else _digests(result))


def _digests(result: RunSummary) -> dict[str, str]:
    return {
        "run_root": result.run_root.hex(),
        "final_state_root": result.final_state_root.hex(),
        "signer": result.signer,
        "steps": str(result.steps),
    }


def tool(name: str, package: str) -> ModuleType:
    """The module `name` of another tool. Raises CannotCheckError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise CannotCheckError(
            f"{package} is not installed ({error}).", f"Install it: pip install {package}."
        ) from error
