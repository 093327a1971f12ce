"""Real kills: a process that ends itself by SIGKILL at a write of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tallystick.disk import files


class Killing(files.OsCalls):  # type: ignore[misc]
    """Ends the process by SIGKILL at its `at`-th call, after half of a write."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _count(self, before: Callable[[], object] = lambda: None) -> None:
        self.left -= 1
        if not self.left:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, descriptor: int, data: memoryview) -> int:  # type: ignore[override]
        self._count(lambda: os.write(descriptor, data[: len(data) // 2]))
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:  # type: ignore[override]
        self._count()

    def replace(self, source: Path, target: Path) -> None:  # type: ignore[override]
        self._count()
        os.replace(source, target)
