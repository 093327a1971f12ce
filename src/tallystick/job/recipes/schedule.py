"""Learning-rate tables, made with the job from IEEE operations and our own cosine only."""

from __future__ import annotations

import numpy as np

from tallystick.contracts.ordered.cpu import run_of

SCHEDULES = ("constant", "cosine")


def _cosine(x: float) -> float:
    """RN32(cos(RN32(x))), by the contract's own operator (NUMERICS 5)."""
    out = np.empty((), dtype=np.float32)
    run_of("aten.cos")({}, [np.array(x, dtype=np.float32)], [out])
    return float(out)


def warmup_cosine(steps: int, peak: float, warmup: int, floor: float) -> list[float]:
    """A table of `steps` rates: linear to `peak` over `warmup` steps, then half a cosine down to
    peak * floor."""
    table = []
    for step in range(steps):
        if step < warmup:
            table.append(peak * (step + 1) / warmup)
            continue
        progress = (step - warmup) / max(1, steps - warmup)
        low = peak * floor
        table.append(low + 0.5 * (1.0 + _cosine(progress * 3.141592653589793)) * (peak - low))
    return table


def learning_rate(
    steps: int, peak: float, warmup: int, schedule: str, floor: float = 0.1
) -> float | list[float]:
    """A constant, or the table of `schedule` (`constant` or `cosine`)."""
    if schedule == "cosine":
        return warmup_cosine(steps, peak, min(warmup, steps), floor)
    if warmup:
        return [peak * min(1.0, (step + 1) / warmup) for step in range(steps)]
    return peak
