"""The memory that this process has taken."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_bytes() -> int:
    """Peak resident memory of this process, in bytes.

    Linux's VmHWM begins anew at exec. ru_maxrss does not, so it serves on other systems only.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
