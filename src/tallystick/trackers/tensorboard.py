"""Curves for TensorBoard, written by its own package: neither torch nor TensorFlow is needed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.trackers.tracker import Tracker, tool


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
