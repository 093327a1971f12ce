"""How long work on a GPU takes, by the GPU's own clock: ours and torch's, medians.

`bench gemm` and `bench step` with --device, and `make gpu-check`, measure by these functions.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

from tallystick.devices.context import find_device
from tallystick.devices.cuda.device import Cuda
from tallystick.errors import CannotCheckError, UsageError
from tallystick.numerics.contracts import find_contract

CONTRACT = "ordered/1"
# A sample of a recorded product is as much work as fills this time.
_SAMPLE = 0.03


def device_of(name: str) -> Cuda:
    """The GPU called `name`. Raises UsageError for another device, and as find_device."""
    found = find_device(name, find_contract(CONTRACT).text)
    if not isinstance(found, Cuda):
        raise UsageError(
            f"--device {name[:40]} is the device that a benchmark without --device measures.",
            "Leave --device out, or name a GPU: cuda or cuda:N.",
        )
    return found


def facts(device: Cuda) -> dict[str, Any]:
    """Of the device, for a row."""
    return {
        "device": device.name,
        "gpu": getattr(device.driver, "model", device.name),
        "isa": device.architecture,
    }


class _Timer(Protocol):
    def of(self, work: Callable[[], object], times: int) -> float:
        """Seconds of `times` calls."""


class _Clock:
    """The host's clock, for a driver that waits for its work."""

    def of(self, work: Callable[[], object], times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            work()
        return time.perf_counter() - began


class _Events:
    """The GPU's clock: two events around the work in the driver's queue."""

    def __init__(self, driver: Any) -> None:
        self._driver, self._api = driver, driver.api
        driver.enter()
        self._marks = [self._made(self._api.cuEventCreate(0)) for _ in range(2)]

    @staticmethod
    def _made(answer: Any) -> Any:
        result, *values = answer
        if result.value != 0:
            raise CannotCheckError(
                f"The GPU's clock failed: {result.name}.", "Run `tallystick doctor`."
            )
        return values[0] if values else None

    def of(self, work: Callable[[], object], times: int) -> float:
        self._driver.enter()
        first, last = self._marks
        self._made(self._api.cuEventRecord(first, self._driver.stream))
        for _ in range(times):
            work()
        self._made(self._api.cuEventRecord(last, self._driver.stream))
        self._made(self._api.cuEventSynchronize(last))
        return float(self._made(self._api.cuEventElapsedTime(first, last))) / 1e3


def timer_of(device: Cuda) -> _Timer:
    driver: Any = device.driver
    return _Events(driver) if hasattr(driver, "api") else _Clock()


def seconds(
    device: Cuda, work: Callable[[], None], samples: int = 9, filled: float = _SAMPLE
) -> float:
    """The median time of `work`, which starts kernels only: recorded once and started again, as
    often as fills `filled` seconds."""
    work()  # loads the kernels
    recorded = device.driver.record(work)
    recorded.replay()
    timer = timer_of(device)
    once = max(timer.of(recorded.replay, 1), 1e-6)
    times = max(1, round(filled / once))
    return statistics.median(timer.of(recorded.replay, times) for _ in range(samples)) / times


def call_seconds(
    device: Cuda, call: Callable[[], object], samples: int = 15, warm: int = 4
) -> float:
    """The median time of `call`, which may copy and wait. The first `warm` calls do not count: they
    load kernels and record."""
    for _ in range(warm):
        call()
    timer = timer_of(device)
    return statistics.median(timer.of(call, 1) for _ in range(samples))


def torch_on_gpu() -> Any:
    """torch with TF32 off, or None where it has no GPU here."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def torch_seconds(torch: Any, call: Callable[[], object], samples: int = 9) -> float:
    """The median time of `call` between two of torch's events, after three calls."""
    for _ in range(3):
        call()
    taken: list[float] = []
    for _ in range(samples):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        last.synchronize()
        taken.append(first.elapsed_time(last) / 1e3)
    return statistics.median(taken)


def row(name: str, kind: str, ours: float, unit: str, theirs: float | None) -> dict[str, Any]:
    """`name`/`kind`_ratio with both sides' values where torch has a GPU, else `name`/`kind`."""
    if theirs is None:
        return {"name": f"{name}/{kind}", "value": ours, "unit": unit, "target": None,
                "anchor": "none: torch has no GPU here"}  # fmt: skip
    return {"name": f"{name}/{kind}_ratio", "value": ours / theirs, "unit": "ratio"}
