"""The states that a run stores: the file of one, written while the run goes on, and the choice of
those that stay on the disk: a few, evenly spread, as time allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tallystick.disk.files import Replacement, sync_path
from tallystick.disk.snapshot import Snapshot
from tallystick.disk.tensorfile import tensor_chunks

STATE_FORMAT = "tallystick-state/1"


class StateFile:
    """state[`step`] at `path`: `write`, and once its root is in the journal, `finish`.

    Until then it has a temporary name, and is no stored state. One thread calls all methods. They
    raise StorageError; then no file is left.
    """

    def __init__(self, path: Path, step: int) -> None:
        self._path, self._step = path, step
        self._file: Replacement | None = None

    def write(self, snapshot: Snapshot, dropped: Callable[[], bool]) -> None:
        """Write the state's bytes, and flush them. Once `dropped()`, stop: the file is not to be
        finished."""
        self._file = Replacement(self._path)
        chunks = tensor_chunks(snapshot, state_metadata(self._step))
        self._file.write_chunks(takewhile(lambda _: not dropped(), chunks))
        snapshot.forget()
        if not dropped():
            self._file.sync()

    def finish(self) -> None:
        """Give the file its name."""
        assert self._file is not None
        self._file.finish(durable=False)
        sync_path(self._path.parent)

    def discard(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            self._file.discard()


def state_metadata(step: int) -> dict[str, str]:
    """The metadata of the file of state[`step`]."""
    return {"format": STATE_FORMAT, "step": str(step)}


# To store states may take this share of the time, and this many seconds in any run.
STORE_SHARE = 0.015
STORE_ALLOWANCE_S = 0.2
_GUESSED_BYTES_PER_S = 400e6
DEFAULT_KEEP = 4


@dataclass
class StorePolicy:
    """Decides which hashed states are worth the time of a write. `state_bytes` is the size of one
    state."""

    state_bytes: int
    clock: Callable[[], float]
    started: float = 0.0
    spent: float = 0.0
    slowest: float = 0.0

    def worth(self) -> bool:
        """True if the trainer may store one more state now."""
        guess = self.slowest or self.state_bytes / _GUESSED_BYTES_PER_S
        elapsed = self.clock() - self.started
        return self.spent + guess <= STORE_ALLOWANCE_S + STORE_SHARE * elapsed

    def wrote(self, seconds: float) -> None:
        """Count a state that the trainer stored. `seconds` are those that the steps lost: they
        waited so long, or another thread took as much of the processor from them."""
        self.spent += seconds
        self.slowest = max(self.slowest, seconds)


def spread(steps: int, interval: int, keep: int) -> frozenset[int]:
    """The checkpoints at which a run of `steps` steps keeps its `keep` states, evenly spread: the
    last one is the end, and no gap before it is more than steps / keep + interval."""
    at = (steps * k // keep // interval * interval for k in range(1, keep))
    return frozenset({steps, *at} - {0})


def to_drop(
    stored: list[int], keep: int, pauses: set[int], wanted: frozenset[int] = frozenset()
) -> int | None:
    """The stored step to give up so that `keep` remain, evenly spread; None if few enough remain.

    The newest always stays. States of pauses go first, since no commitment covers them. Then go
    the states that are not `wanted`.
    """
    if len(stored) <= max(1, keep):
        return None
    for step in stored[:-1]:
        if step in pauses:
            return step
    # Give up the state whose absence leaves the smallest gap; genesis (0) bounds the first gap.
    points = [0, *stored]
    gaps = {points[i]: points[i + 1] - points[i - 1] for i in range(1, len(points) - 1)}
    spare = {step: gap for step, gap in gaps.items() if step not in wanted} or gaps
    return min(spare, key=lambda step: (spare[step], step))
