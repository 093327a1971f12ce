"""The machine that a benchmark runs on: what its figures depend on."""

from __future__ import annotations

import os
import platform
from typing import Any

from tallystick import _core


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "isa": _core.isa(),
        "threads": _core.threads(),
        "compiler": _core.compiler(),
        "python": platform.python_version(),
    }
