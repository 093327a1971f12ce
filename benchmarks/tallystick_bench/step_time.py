"""A step's time, ours over torch's: eager and compiled, the faster counts.

All sides take their steps in turns in one process, on as many threads, and medians are compared.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tallystick import _core

# Each side's wait before its turn, so that the others' worker threads are asleep.
_PAUSE = 0.02
# A turn of a small model is as many steps as fill this time, so that the wait costs it no clock.
_TURN = 0.03
# Steps before the first measured one: a side allocates, and torch.compile compiles.
_WARM = 3


class Theirs(Protocol):
    """torch's step: call it to take one."""

    VARIANTS: tuple[str, ...]

    def use(self, variant: str) -> None:
        """Continue with another of torch's forms of the optimizer."""

    def compile(self, on: bool) -> None:
        """Take forward, loss and backward through torch.compile from now on, or eagerly."""

    def __call__(self) -> None: ...


def load() -> float | None:
    """Runnable processes on the machine, a minute's mean; None where the system has none."""
    try:
        return round(os.getloadavg()[0], 1)
    except (AttributeError, OSError):
        return None


def in_turns(
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    between: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of `repeats` calls of each side, each after one that is not counted; before them a
    turn to warm up. `between` is called after every round of all sides."""
    seconds: dict[str, list[float]] = {side: [] for side in calls}
    for repeat in range(repeats + 1):
        for side, call in calls.items():
            time.sleep(_PAUSE)
            call()
            began = time.perf_counter()
            call()
            if repeat:
                seconds[side].append(time.perf_counter() - began)
        between()
    return seconds


def _turn(call: Callable[[], object], steps: int = 1) -> tuple[float, float]:
    """Seconds of one step, the mean of a turn of `steps`: on the clock, and of the processor."""
    time.sleep(_PAUSE)
    start, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        call()
    return (time.perf_counter() - start) / steps, (time.process_time() - used) / steps


def _steps_in_a_turn(call: Callable[[], object]) -> int:
    return max(1, round(_TURN / max(min(_turn(call)[0] for _ in range(_WARM)), 1e-6)))


def _fastest(step: Theirs, repeats: int) -> dict[str, float]:
    """Median seconds of a step under each of torch's optimizer variants, measured in turns."""
    samples: dict[str, list[float]] = {name: [] for name in step.VARIANTS}
    for name in step.VARIANTS:
        step.use(name)
        step()
    steps = _steps_in_a_turn(step)
    for _ in range(repeats):
        for name in step.VARIANTS:
            step.use(name)
            samples[name].append(_turn(step, steps)[0])
    return {name: statistics.median(values) for name, values in samples.items()}


def why_not_compiled(step: Theirs) -> str:
    """Compiles the step; the reason where torch.compile does not work here, else empty."""
    step.compile(True)
    try:
        for _ in range(_WARM):
            step()
    except Exception as error:  # any failure of the compiler is its own
        return f"{type(error).__name__}: {str(error).strip()[:200]}"
    finally:
        step.compile(False)
    return ""


def _median(turns: list[tuple[float, float]], which: int) -> float:
    return statistics.median(turn[which] for turn in turns)


def time_rows(
    name: str,
    target: float | None,
    ours: Callable[[], object],
    theirs: Theirs,
    threads: int,
    repeats: int,
    compiled: bool = True,
) -> list[dict[str, Any]]:
    """Median seconds of a step, ours over the faster of torch eager and torch.compile.

    A row for the instruction set in use, and one for AVX2 where that is narrower. Without
    `compiled`, or where torch.compile fails (the row says why), eager is the anchor. The ratios of
    processor time mean more than the clock's where other work shares the machine and `threads` is
    1; with more, torch's waiting threads count as working.
    """
    default = str(_core.isa())
    isas = (default, "avx2") if default == "avx512" else (default,)
    samples: dict[str, list[tuple[float, float]]] = {isa: [] for isa in isas}
    anchors: dict[str, list[tuple[float, float]]] = {"eager": []}
    failure = "" if compiled else "not asked for"
    try:
        for isa in isas:
            _core.set_isa(isa)
            ours()
        variants = _fastest(theirs, max(2, repeats // 3))
        best = min(variants, key=lambda variant: variants[variant])
        theirs.use(best)
        if compiled:
            failure = why_not_compiled(theirs)
        if not failure:
            anchors["compile"] = []
        steps = _steps_in_a_turn(ours)
        for _ in range(repeats):
            for isa in isas:
                _core.set_isa(isa)
                samples[isa].append(_turn(ours, steps))
            for anchor, values in anchors.items():
                theirs.compile(anchor == "compile")
                values.append(_turn(theirs, steps))
    finally:
        theirs.compile(False)
        _core.set_isa(default)
    seconds, processor = ({k: _median(v, i) for k, v in anchors.items()} for i in range(2))
    faster = min(seconds, key=lambda anchor: seconds[anchor])
    common = {
        "unit": "ratio",
        "target": target,
        "anchor": f"torch {faster} float32, optimizer {best}",
        "faster": faster,
        "anchor_variants": variants,
        "anchors": seconds,
        "compile_failure": failure,
        "anchor_seconds": seconds[faster],
        "least_anchor_seconds": min(anchors[faster])[0],
        "anchor_processor_seconds": processor,
        "threads": threads,
        "repeats": repeats,
        "load": load(),
    }
    rows = []
    for isa in isas:
        own, used = _median(samples[isa], 0), _median(samples[isa], 1)
        rows.append(
            {
                "name": f"step/{name}{'' if isa == default else '/' + isa}/time_ratio",
                "value": own / seconds[faster],
                "ratios": {anchor: own / value for anchor, value in seconds.items()},
                "isa": isa,
                "seconds": own,
                "least_seconds": min(samples[isa])[0],
                "processor_seconds": used,
                "processor_ratios": {k: used / v for k, v in processor.items() if v},
                **common,
            }
        )
    return rows
