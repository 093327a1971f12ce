"""The memory that this process may still take, as Linux tells it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

MEMINFO = Path("/proc/meminfo")
_OWN_PAGES = Path("/proc/self/statm")
OWN_GROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
# The files of a limit and of what is used: of control groups version 2, and 1.
_Files = tuple[tuple[str, str], ...]
_FILES: _Files = (("memory.max", "memory.current"), ("memory.high", "memory.current"))
_FILES_1: _Files = (("memory.limit_in_bytes", "memory.usage_in_bytes"),)


def spare_memory() -> int:
    """Bytes that may still be taken without pushing anything out; 0 where nobody says.

    A control group bounds all groups below it, so this process's and all above it count."""
    found = 0
    with suppress(OSError, ValueError, IndexError):
        for line in MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) << 10
    for directory, files in _groups():
        for limit, usage in files:
            with suppress(OSError, ValueError):  # no limit says "max"
                most = int((directory / limit).read_text("ascii"))
                used = int((directory / usage).read_text("ascii"))
                found = min(found, max(0, most - used))
    return found


def own_addresses() -> int:
    """The bytes of addresses that this process has; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(_OWN_PAGES.read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _groups() -> Iterator[tuple[Path, _Files]]:
    """The directories of this process's control groups for memory, with the files to read there.

    A container may see its own group as the root, under whatever name it has outside: directories
    that are not there say nothing.
    """
    try:
        lines = OWN_GROUP.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:
            root, files = CGROUPS, _FILES
        elif "memory" in controllers.split(","):
            root, files = CGROUPS / "memory", _FILES_1
        else:
            continue
        group = PurePosixPath("/" + name.lstrip("/"))
        parts = [] if ".." in group.parts else group.parts[1:]  # outside of what is mounted here
        for count in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:count]), files
