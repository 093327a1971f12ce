"""A fresh virtual environment without a compiler, for the check of a wheel (check_wheel.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja")
# A server that still runs after so many seconds is killed, and the check fails.
PATIENCE = 900.0


class Environment:
    """A virtual environment and the commands run in it, with what each of them cost."""

    def __init__(self, python: str, directory: Path) -> None:
        self.directory = directory
        self.costs: dict[str, float] = {}
        subprocess.run([python, "-m", "venv", str(directory / "venv")], check=True)
        self.bin = directory / "venv" / "bin"
        # Only the environment's own programs: a build from source would find no compiler.
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "CC", "CXX", "VIRTUAL_ENV")
        } | {"PATH": str(self.bin), "PYTHONNOUSERSITE": "1"}
        found = [name for name in COMPILERS if (self.bin / name).exists()]
        assert not found, f"the environment has {found}"

    def spend(self, what: str, start: float) -> None:
        """Adds the seconds since `start` to those of `what`."""
        self.costs[what] = self.costs.get(what, 0.0) + time.perf_counter() - start

    def run(self, what: str, *command: str, code: int = 0) -> str:
        """What `command` printed; its seconds are added to those of `what`."""
        start = time.perf_counter()
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.directory,
            env=self.variables,
            capture_output=True,
            text=True,
        )
        self.spend(what, start)
        if done.returncode != code:
            sys.exit(
                f"{' '.join(command)}: exit code {done.returncode} instead of {code}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done.stdout

    @contextmanager
    def server(self, what: str, *command: str) -> Iterator[str]:
        """The first line that `command` prints. It gets SIGTERM at the end of the block.

        The seconds of `what` are those until that line. A server that prints none, does not end,
        or ends with another exit code than 0 fails the check.
        """
        log = self.directory / "server.log"
        start = time.perf_counter()
        with log.open("w") as errors:
            process = subprocess.Popen(
                [str(self.bin / command[0]), *command[1:]],
                cwd=self.directory,
                env=self.variables,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        # Reading a line has no limit of time of its own.
        late = threading.Timer(PATIENCE, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            self.spend(what, start)
            if not line:
                sys.exit(f"{' '.join(command)}: no line came\n{log.read_text()}")
            yield line
            start = time.perf_counter()
            process.terminate()
            code = process.wait()
            self.spend(f"{what}, its end", start)
            if code:
                sys.exit(f"{' '.join(command)}: exit code {code} at SIGTERM\n{log.read_text()}")
        finally:
            late.cancel()
            process.kill()
            process.wait()

    def megabytes(self) -> float:
        """The size of everything that is installed, pip included."""
        files = (self.directory / "venv" / "lib").rglob("*")
        return sum(f.stat().st_size for f in files if f.is_file() and not f.is_symlink()) / 1e6
