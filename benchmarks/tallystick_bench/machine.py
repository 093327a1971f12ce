"""The machine that a benchmark runs on. Its figures depend on it."""

from __future__ import annotations

import os
import platform
from typing import Any

from tallystick import _core


def machine() -> dict[str, Any]:
    """The facts on which the figures depend."""
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "isa": _core.isa(),
        "threads": _core.threads(),
        "compiler": _core.compiler(),
        "python": platform.python_version(),
    }
