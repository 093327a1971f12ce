"""A job under `replay/1` with choices in most of its steps, and logs that are not honest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tallystick.commit.log import Section
from tallystick.contracts.replay.entries import Blocks, Entries, decode, encode
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.products.engines import ProductEngine, using
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.logs.writer import LogWriter

SETTINGS = {
    "features": "32", "classes": "4", "records": "256", "hidden": "96", "layers": "2",
    "batch_size": "64", "dropout": "0.1",
}  # fmt: skip

Forgery = Callable[[int, Section, Entries], Entries | None]


def replay_job(
    directory: Path, steps: int = 20, interval: int = 10, contract: str = "replay/1"
) -> Job:
    """An mlp; choices are few in one step, and there are some in 20."""
    return new_job(
        "mlp", directory, SETTINGS, steps=steps, checkpoint_interval=interval, contract=contract,
        evaluate_every=0,
    )  # fmt: skip


def trained(
    job: Job, out: Path, engine: ProductEngine, options: Options | None = None
) -> RunSummary:
    """A run whose products come from `engine`."""
    with using(engine):
        return train_job(job, out, options)


@contextmanager
def forging(change: Forgery) -> Iterator[None]:
    """A trainer whose log says what `change(step, section, entries)` gives, where it gives any."""
    honest = LogWriter.bounded

    def forged(self: LogWriter, number: int, blocks: Blocks) -> None:
        section = self.sections[number]
        entries = change(self.step, section, decode(section, blocks)[0])
        honest(self, number, blocks if entries is None else encode(section, entries))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogWriter, "bounded", forged)
        yield


def with_entry(entries: Entries, position: int, direction: int) -> Entries:
    """`entries` and one more, or another one at its place."""
    keep = entries.positions != position
    positions = np.append(entries.positions[keep], position)
    directions = np.append(entries.directions[keep], direction).astype(np.uint8)
    order = np.argsort(positions)
    return Entries(positions[order], directions[order])


def some_more(step: int, node: int, elements: Sequence[int] = range(5, 13)) -> Forgery:
    """Entries at elements that have a boundary nowhere near, almost surely. Those that read the
    nearer one of an element's boundaries, about half, are not forged (NUMERICS 14.7)."""

    def change(at: int, section: Section, entries: Entries) -> Entries | None:
        if (at, section.node, section.output) != (step, node, 0):
            return None
        for element in elements:
            entries = with_entry(entries, element, 1)
        return entries

    return change
