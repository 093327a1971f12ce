"""metrics.jsonl of a run: the loss, the gradient norm and the author's own metrics of each step.

It is for people and their plots: no digest covers it, and no command believes it. A step that is
repeated after an interruption is written once, since the file is cut to the steps before it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from tallystick.disk.files import write_all, write_file
from tallystick.disk.regular import open_regular, os_errors, present, read_file
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS
from tallystick.program.ir import Program

PREFIX = "metric."


def has_metrics(programs: Iterable[Program]) -> bool:
    """True if a program reports more than the loss."""
    return any(name.startswith(PREFIX) for program in programs for name, _ in program.outputs)


def scalar_metrics(outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The metrics of one element among a step's outputs, by name."""
    return {
        name.removeprefix(PREFIX): float(np.asarray(value).reshape(-1)[0])
        for name, value in sorted(outputs.items())
        if name.startswith(PREFIX) and np.asarray(value).size == 1
    }


def _line(step: int, loss: float, values: Mapping[str, float]) -> bytes:
    named = {PREFIX + n if n in ("step", "loss") else n: v for n, v in values.items()}
    numbers = {"loss": loss, **named}
    shown = {name: v if math.isfinite(v) else None for name, v in numbers.items()}
    return json.dumps({"step": step, **shown}).encode("ascii") + b"\n"


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The step and the text of each intact line, up to the first that is none."""
    for line in data.splitlines(keepends=True):
        try:
            found = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(found, dict) or type(found.get("step")) is not int:
            return
        yield found["step"], line


class MetricLog:
    """The open file. `add` raises StorageError where it cannot be written."""

    def __init__(self, path: Path, start: int) -> None:
        """Keep the lines of steps before `start`, and go on behind them.

        Raises StorageError, CorruptFileError for a link in the place of the file.
        """
        self.path = path
        kept: list[bytes] = []
        if present(path):
            try:
                data = read_file(path, LIMITS.journal_bytes, "metrics file", path.parent)
            except CorruptFileError:
                if path.is_symlink():
                    raise
                data = b""
            kept = [line for step, line in _lines(data) if step < start]
        write_file(path, kept)
        self._file = open_regular(path, "metrics file", path.parent, os.O_WRONLY | os.O_APPEND)

    def add(self, step: int, loss: float, values: Mapping[str, float]) -> None:
        """Append the line of step `step`."""
        with os_errors(self.path):
            write_all(self._file, _line(step, loss, values))

    def close(self) -> None:
        os.close(self._file)


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """All intact lines, for a plot; [] where there is no file. Raises CorruptFileError."""
    if not present(path):
        return []
    data = read_file(path, LIMITS.journal_bytes, "metrics file", path.parent)
    found = []
    for _, line in _lines(data):
        numbers = json.loads(line)
        found.append({str(k): v for k, v in numbers.items() if type(v) in (int, float, type(None))})
    return found
