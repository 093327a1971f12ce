"""The command line in a process that finds the emulated GPU (emulation/libcuda.cpp)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

from emulated_gpu import built
from forking import Forker

_EMULATED = """
import tallystick.devices.cuda.nvidia as nvidia
nvidia.compiled = lambda name, architecture: b"code"
nvidia.compiler_version = lambda: (13, 0)
"""
_PROGRAM = """
import sys
from tallystick.cli.main import main
sys.exit(main())
"""
# What the commands import when they need it.
_IMPORTS = """
import tallystick.cli.audit, tallystick.cli.train, tallystick.run.execute.trainer
import tallystick.run.execute.auditor, tallystick.devices.cuda.device, cuda.bindings.driver
"""
_MEASURES = "import torch, tallystick.cli.bench"
_SECONDS = 300


def _environment(**settings: object) -> dict[str, str]:
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(built().parent),
        **{f"TALLYSTICK_EMULATED_GPU_{k.upper()}": str(v) for k, v in settings.items()},
    }


@cache
def _forker(imports: str) -> Forker:
    """One for all tests of this process; it ends with it."""
    return Forker(_EMULATED + imports, _environment())


def command(*arguments: object, code: int = 0, **settings: object) -> Any:
    """The JSON of a command line in a process that finds the emulated GPU."""
    forker = _forker(_MEASURES if arguments[0] == "bench" else _IMPORTS)
    started = forker.start([*arguments, "--json"], _environment(**settings))
    said, errors = started.communicate(_SECONDS)
    return _found(started.returncode, said, errors, code)


def command_of_its_own(*arguments: object, code: int = 0, **settings: object) -> Any:
    """The same in an interpreter that starts for it alone."""
    done = subprocess.run(
        [sys.executable, "-c", _EMULATED + _PROGRAM, *map(str, arguments), "--json"],
        env=_environment(**settings),
        capture_output=True,
        text=True,
    )
    return _found(done.returncode, done.stdout, done.stderr, code)


def _found(ended: int | None, said: str, errors: str, code: int) -> Any:
    assert ended == code, (ended, said[-2000:], errors[-2000:])
    return json.loads(said)
