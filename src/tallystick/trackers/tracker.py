"""The course of a run as curves in MLflow, TensorBoard and Weights & Biases, its digests beside
them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

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


# Numbers that are sent at once: a server is not asked after each step.
_TOGETHER = 100


class MLflow(Tracker):
    """Logs to a run of `experiment`, on the server or the directory `uri` (by default MLflow's own
    setting). The run root is the tag `tallystick.run_root`.

    `run` is the id of an MLflow run to go on with, for a training that is resumed.
    """

    def __init__(
        self, experiment: str = "tallystick", *, uri: str | None = None, run: str | None = None
    ) -> None:
        super().__init__()
        # Not the top of the package: the client alone, which changes no global setting.
        self._client: Any = tool("mlflow.tracking", "mlflow").MlflowClient(tracking_uri=uri)
        self._entities: Any = tool("mlflow.entities", "mlflow")
        self._experiment, self.run = experiment, run
        self._waiting: list[Any] = []

    def opened(self, facts: Mapping[str, str]) -> None:
        if self.run is None:
            known = self._client.get_experiment_by_name(self._experiment)
            number = (
                self._client.create_experiment(self._experiment)
                if known is None
                else known.experiment_id
            )
            self.run = str(self._client.create_run(number).info.run_id)
        self._told(facts)

    def logged(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._waiting += [
            self._entities.Metric(name, value, now, step) for name, value in values.items()
        ]
        if len(self._waiting) >= _TOGETHER:
            self._send()

    def closed(self, facts: Mapping[str, str] | None) -> None:
        self._send()
        self._told(facts or {})
        self._client.set_terminated(self.run, "KILLED" if facts is None else "FINISHED")

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._client.log_batch(self.run, metrics=waiting)

    def _told(self, facts: Mapping[str, str]) -> None:
        for name, value in facts.items():
            self._client.set_tag(self.run, f"tallystick.{name}", value)


class TensorBoard(Tracker):
    """Writes event files into `directory`. The run root stands among the texts, as
    `tallystick/run_root`.

    TensorBoard holds float32: a curve is for the eye, and the run's own journal has the bits.
    """

    def __init__(self, directory: str | Path) -> None:
        super().__init__()
        writer = tool("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._events = tool("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = tool("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._texts = tool("tensorboard.plugins.text.summary_v2", "tensorboard")
        self._new_writer = writer.EventFileWriter
        self._directory = str(directory)
        self._writer: Any = None

    def opened(self, facts: Mapping[str, str]) -> None:
        self._writer = self._new_writer(self._directory)
        self._told(facts)

    def logged(self, step: int, values: Mapping[str, float]) -> None:
        summary = self._summaries.Summary()
        for name, value in values.items():
            summary.value.add(tag=name, simple_value=value)
        self._written(summary, step)

    def closed(self, facts: Mapping[str, str] | None) -> None:
        self._told(facts or {})
        self._writer.close()

    def _told(self, facts: Mapping[str, str]) -> None:
        for name, value in facts.items():
            self._written(self._texts.text_pb(f"tallystick/{name}", value), 0)

    def _written(self, summary: Any, step: int) -> None:
        event = self._events.Event(wall_time=time.time(), step=step, summary=summary)
        self._writer.add_event(event)


class WandB(Tracker):
    """Logs to a run of `project`, in `directory`. The run root is `tallystick/run_root` in the
    summary of that run, and the job digest stands in its config.

    `mode` "offline" sends nothing: `wandb sync` does it later. `run` is the id of a run to go on
    with, for a training that is resumed.
    """

    def __init__(
        self,
        project: str = "tallystick",
        *,
        directory: str | Path | None = None,
        mode: str = "offline",
        run: str | None = None,
    ) -> None:
        super().__init__()
        self._wandb: Any = tool("wandb", "wandb")
        self._project, self._mode, self._id = project, mode, run
        self._directory = None if directory is None else str(directory)
        self._run: Any = None

    def opened(self, facts: Mapping[str, str]) -> None:
        self._run = self._wandb.init(
            project=self._project,
            dir=self._directory,
            mode=self._mode,
            id=self._id,
            resume=None if self._id is None else "allow",
            config={f"tallystick/{name}": value for name, value in facts.items()},
            # It would watch the terminal, the machine and the sources of this process.
            settings=self._wandb.Settings(
                console="off", x_disable_stats=True, save_code=False, disable_git=True, silent=True
            ),
        )

    def logged(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def closed(self, facts: Mapping[str, str] | None) -> None:
        for name, value in (facts or {}).items():
            self._run.summary[f"tallystick/{name}"] = value
        self._run.finish(exit_code=1 if facts is None else 0)
