"""How a command starts another interpreter beside itself, watches it and ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

# `python -m` would look for every module in the current directory first, and that may be a run
# of another party, which must not bring a `json.py` with it.
_BEGIN = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_KEPT_LINES, _KEPT = 12, 500
# For what a child has written before its end, and is not yet read.
_READ_S = 5.0


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that executes `module` with `arguments`, and imports nothing from the current
    directory."""
    return [sys.executable, "-c", _BEGIN, module, *arguments]


class Child:
    """An interpreter that executes `module` with `arguments`, in `environment` or ours.
    OPENBLAS_THREAD_TIMEOUT is set as the command line sets it (cli/__init__.py), unless it is set
    already.

    Its standard input is ours to write. The module ends when that closes, so a child does not
    outlive us, however we end. With `answering` we read its standard output, and keep the last
    lines of its standard error; else it writes where we do. Raises OSError where no process can be
    made.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        answering: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        pipe = subprocess.PIPE if answering else None
        given = os.environ if environment is None else environment
        self._process = subprocess.Popen(
            command_of(module, *arguments),
            stdin=subprocess.PIPE, stdout=pipe, stderr=pipe,
            env={"OPENBLAS_THREAD_TIMEOUT": "4", **given},
        )  # fmt: skip
        self.pid = self._process.pid
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._keeper: threading.Thread | None = None
        if self._process.stderr is not None:
            self._keeper = threading.Thread(
                target=self._keep, args=(self._process.stderr,), daemon=True
            )
            self._keeper.start()

    def _keep(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(4096):
                self._lines.append(line)

    @property
    def output(self) -> IO[bytes]:
        """The standard output of one that is answering."""
        assert self._process.stdout is not None
        return self._process.stdout

    def write(self, data: bytes) -> None:
        """Write to its standard input. Raises OSError where it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def code(self) -> int | None:
        """Its exit code, or minus the number of the signal that killed it; None while it runs."""
        return self._process.poll()

    def said(self) -> str:
        """The end of what it wrote to its standard error, in one line."""
        lines = b" ".join(line.strip() for line in self._lines)
        return lines.decode("utf-8", "replace")[-_KEPT:]

    def dismiss(self) -> None:
        """Close its standard input, by which it is to end."""
        with suppress(OSError):  # what was not written to one that has ended
            if self._process.stdin is not None:
                self._process.stdin.close()

    def kill(self) -> None:
        """Kill it, and do not wait."""
        self._process.kill()

    def end(self, grace: float = 0.0) -> int:
        """Wait `grace` seconds for it to end by itself, and kill it where it does not. Its code."""
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
        found = self._process.wait()
        if self._keeper is not None:
            self._keeper.join(_READ_S)
        self.dismiss()
        return found
