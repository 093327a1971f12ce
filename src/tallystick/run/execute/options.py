"""How to train a run: what a caller may choose, none of which changes a bit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.run.execute.maker import Maker
from tallystick.run.store.keeping import DEFAULT_KEEP
from tallystick.run.store.trace import TraceRange


@dataclass
class Options:
    """How to train. No option but the maker of a cheat changes a bit of the run.

    The trainer stores `keep` states, evenly over the run, however long that takes. By default it
    stores a few, as long as that takes little time. `maker` makes the parts of the run.
    """

    context: ExecutionContext = DEFAULT
    keep: int | None = None
    key: PrivateKey | None = None
    trace: TraceRange | None = None
    # Under a contract that keeps logs: follow the rounding logs of this run; compress our own.
    replay: Path | None = None
    compress: bool = False
    overwrite: bool = False  # begin anew: a run that is there is removed
    maker: Maker = field(default_factory=Maker)
    # Stop before this step as if interrupted; for tests and demonstrations.
    stop_before: int | None = None
    clock: Callable[[], float] = time.monotonic

    @property
    def kept(self) -> int:
        """The number of states to keep."""
        return DEFAULT_KEEP if self.keep is None else self.keep
