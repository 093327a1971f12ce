"""Curves for Weights & Biases, offline unless its user says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.trackers.tracker import Tracker, tool


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
