"""The device that a part of the check runs on, and how long work on it takes."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.kernels.cuda.device import Cuda

ROOT = Path(__file__).resolve().parents[3]
EXPECTED = ROOT / "tests" / "gpu" / "expected"
# A sample is as much work as fills this time.
_SAMPLE = 0.03


@dataclass
class Where:
    """`small`: sizes for a device that the host emulates. `work`: a folder of the part's own."""

    device: Cuda
    small: bool
    work: Path

    def expected(self, name: str) -> Any:
        """What the processor made beforehand (make_expected.py)."""
        return json.loads((EXPECTED / f"{name}.json").read_text())

    def seconds(self, work: Callable[[], None], samples: int = 9) -> float:
        """The median time of `work`, recorded once and started again: by the GPU's own clock
        where there is one."""
        driver: Any = self.device.driver
        work()  # loads the kernels
        recorded = driver.record(work)
        recorded.replay()
        clock = _Events(driver) if hasattr(driver, "api") else _Clock()
        once = max(clock.of(recorded.replay, 1), 1e-6)
        times = 1 if self.small else max(1, round(_SAMPLE / once))
        taken = [clock.of(recorded.replay, times) for _ in range(1 if self.small else samples)]
        return statistics.median(taken) / times


class _Clock:
    """The host's clock, for a driver that waits for its work."""

    def of(self, work: Callable[[], None], times: int) -> float:
        """Seconds of `times` calls."""
        began = time.perf_counter()
        for _ in range(times):
            work()
        return time.perf_counter() - began


class _Events:
    """The GPU's clock."""

    def __init__(self, driver: Any) -> None:
        self._driver, self._api = driver, driver.api
        self._marks = [self._made(self._api.cuEventCreate(0)) for _ in range(2)]

    @staticmethod
    def _made(answer: Any) -> Any:
        assert answer[0].value == 0, answer[0]
        return answer[1] if len(answer) > 1 else None

    def of(self, work: Callable[[], None], times: int) -> float:
        """Seconds of `times` calls."""
        self._driver.enter()
        first, last = self._marks
        self._made(self._api.cuEventRecord(first, self._driver.stream))
        for _ in range(times):
            work()
        self._made(self._api.cuEventRecord(last, self._driver.stream))
        self._made(self._api.cuEventSynchronize(last))
        return float(self._made(self._api.cuEventElapsedTime(first, last))) / 1e3
