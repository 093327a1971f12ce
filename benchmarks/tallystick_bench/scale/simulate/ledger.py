"""Where a simulated run's time went, by cause. A second stands under one cause only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

AGAIN_FAILURE, AGAIN_LIE = "steps done again after failures", "steps done again after lies"
RESTART, CUT, DISPUTE = "restarts", "steps cut off", "disputes"
WAITING = "waiting for checkpoints"


@dataclass
class Ledger:
    """Seconds by cause. Those of steps stand in chunks, one for each checkpoint interval, since
    going back to a checkpoint makes the steps after it lost time."""

    lost: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    chunks: dict[int, dict[str, float]] = field(default_factory=dict)

    def begin(self, step: int) -> None:
        """The steps from `step` on are of a new chunk."""
        self.chunks[step] = defaultdict(float)

    def step(self, seconds: Mapping[str, float]) -> None:
        """A step, by cause."""
        chunk = self.chunks[next(reversed(self.chunks))]
        for cause, spent in seconds.items():
            chunk[cause] += spent

    def back_to(self, step: int, cause: str) -> float:
        """The run goes back to `step`, where a chunk begins: later steps were for nothing. Their
        seconds."""
        gone = 0.0
        while (last := next(reversed(self.chunks))) > step:
            gone += sum(self.chunks.pop(last).values())
        gone += sum(self.chunks[step].values())
        self.chunks[step] = defaultdict(float)
        self.lost[cause] += gone
        return gone

    def totals(self) -> dict[str, float]:
        """Seconds by cause."""
        found: dict[str, float] = defaultdict(float)
        for part in (self.lost, *self.chunks.values()):
            for cause, seconds in part.items():
                found[cause] += seconds
        return dict(found)
