"""The command line in a process that finds the emulated GPU (emulation/libcuda.cpp)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from emulated_gpu import built

_PROGRAM = """
import sys
import tallystick.devices.cuda.nvidia as nvidia
nvidia.compiled = lambda name, architecture: b"code"
nvidia.compiler_version = lambda: (13, 0)
from tallystick.cli.main import main
sys.exit(main())
"""


def command(*arguments: object, code: int = 0, **settings: object) -> Any:
    """The JSON of a command line in a process that finds the emulated GPU."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(built().parent),
        **{f"TALLYSTICK_EMULATED_GPU_{k.upper()}": str(v) for k, v in settings.items()},
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, arguments), "--json"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)
