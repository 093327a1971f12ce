"""Modules of the benchmarks as processes of their own: `python -m` one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.errors import CannotCheckError

# The directory of this package.
_HOME = Path(__file__).resolve().parents[1]


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs `module`, a module of the benchmarks by its full name."""
    return [sys.executable, "-m", module, *arguments]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment and `more`.

    With it, `command` finds the benchmarks, even if they are not installed.
    """
    found = {**os.environ, **(more or {})}
    if Path(sysconfig.get_paths()["purelib"]).resolve() != _HOME:
        paths = [str(_HOME), found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return found


def answer(module: str, *arguments: str, failed: str, next_action: str) -> Any:
    """The JSON that `module` prints.

    Raises CannotCheckError, which says that `failed` and why, where it does not end well.
    """
    done = subprocess.run(
        command(module, *arguments),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotCheckError(f"{failed}: {done.stderr.strip()[-800:]}", next_action)
    return json.loads(done.stdout)


def row(script: str, name: str) -> dict[str, Any]:
    """What `script --measure name` prints as JSON, in a process of its own; with `error` where that
    fails."""
    done = subprocess.run(
        [sys.executable, script, "--measure", name],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr.strip()[-600:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
