"""Which hashed states of a run stay on the disk: a few, evenly spread, as far as time allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Storing states may take this share of the time, and this much in any run.
STORE_SHARE = 0.015
STORE_ALLOWANCE_S = 0.2
_GUESSED_BYTES_PER_S = 400e6
DEFAULT_KEEP = 4


@dataclass
class StorePolicy:
    """Decides which hashed states are worth their time on the disk; `state_bytes` is one's size."""

    state_bytes: int
    clock: Callable[[], float]
    started: float = 0.0
    spent: float = 0.0
    slowest: float = 0.0

    def worth(self) -> bool:
        """Whether one more state may be stored now."""
        guess = self.slowest or self.state_bytes / _GUESSED_BYTES_PER_S
        elapsed = self.clock() - self.started
        return self.spent + guess <= STORE_ALLOWANCE_S + STORE_SHARE * elapsed

    def wrote(self, seconds: float) -> None:
        """A state was stored, which took so long."""
        self.spent += seconds
        self.slowest = max(self.slowest, seconds)


def spread(steps: int, interval: int, keep: int) -> frozenset[int]:
    """The checkpoints of a run of `steps` steps whose `keep` states lie evenly: the end, and
    before it no gap of more than steps / keep + interval."""
    at = (steps * k // keep // interval * interval for k in range(1, keep))
    return frozenset({steps, *at} - {0})


def to_drop(
    stored: list[int], keep: int, pauses: set[int], wanted: frozenset[int] = frozenset()
) -> int | None:
    """The stored step to give up so that `keep` remain, spread evenly; None if few enough.

    The newest always stays. States of pauses go first: no commitment covers them; then those
    that are not `wanted`.
    """
    if len(stored) <= max(1, keep):
        return None
    for step in stored[:-1]:
        if step in pauses:
            return step
    # Give up the one whose absence leaves the smallest gap; genesis (0) bounds the first.
    points = [0, *stored]
    gaps = {points[i]: points[i + 1] - points[i - 1] for i in range(1, len(points) - 1)}
    spare = {step: gap for step, gap in gaps.items() if step not in wanted} or gaps
    return min(spare, key=lambda step: (spare[step], step))
