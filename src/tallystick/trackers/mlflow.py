"""Curves for MLflow, through its client: the active run of the process stays as it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tallystick.trackers.tracker import Tracker, tool

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
