"""The memory that this process may still take, as Linux tells it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def spare_memory() -> int:
    """Bytes that may still be taken without pushing anything out; 0 where nobody says."""
    found = 0
    with suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) << 10
    with suppress(OSError, ValueError):  # no limit says "max"
        most = int((_GROUP / "memory.max").read_text("ascii"))
        used = int((_GROUP / "memory.current").read_text("ascii"))
        found = min(found, max(0, most - used))
    return found
