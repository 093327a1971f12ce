"""`tallystick serve` and `tallystick referee` as processes, and files that they need."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from forking import Forked, Forker

_COMMAND = [sys.executable, "-m", "tallystick"]


def command(*arguments: object) -> list[str]:
    return [*_COMMAND, *map(str, arguments)]


def run(*arguments: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=seconds, check=False
    )


# What a server of models imports, and what torch and transformers import when they are asked.
_MODELS = """
import tallystick.cli.serve_model, tallystick.serving.app, tallystick.serving.models
import tallystick.answers.modules, tallystick.answers.programs, tallystick.program.capture.api
import torch, transformers.models.llama.modeling_llama, uvicorn.protocols.http.h11_impl
"""


@cache
def _models() -> Forker:
    """One for all tests of this process; it ends with it."""
    return Forker(_MODELS, {**os.environ, "PYTHONUNBUFFERED": "1"})


class Served:
    """A process of `serve`, or of another `verb` that serves; `url` is what it prints.

    `forked`: from a process that has the imports of `serve-model` behind it (tests/forking.py).
    """

    def __init__(
        self,
        *arguments: object,
        prefix: Sequence[str] = (),
        verb: str = "serve",
        forked: bool = False,
    ) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process: subprocess.Popen[str] | Forked
        if forked:
            assert not prefix
            self.process = _models().start([verb, *arguments], environment)
        else:
            self.process = subprocess.Popen(
                [*prefix, *command(verb, *arguments)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"(https?://\S+)", line)
        assert found, (line, self.process.stderr and self.process.stderr.read())
        self.url = found[1]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it: exit code and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextmanager
def served(*arguments: object, prefix: Sequence[str] = ()) -> Iterator[Served]:
    found = Served(*arguments, prefix=prefix)
    try:
        yield found
    finally:
        found.stop()
