"""Jobs of format 3 written from parts: a stream whose last batch of an epoch may be short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from format_two import WIDTH, micro_records, micro_state, micro_step, write_job

from tallystick.commit.stream import SHUFFLED, Stream
from tallystick.commit.timetable import Turn
from tallystick.job.job import Job
from tallystick.job.parts import Part, Parts
from tallystick.numerics.contracts import resolve_contract

BATCH, PARTS, COUNT = 4, 2, 11


def make_stream_job(
    path: Path,
    epoch: int | None = COUNT,
    order: str = SHUFFLED,
    contract: str = "ordered/1",
    *,
    steps: int = 9,
    interval: int = 3,
    count: int = COUNT,
) -> Job:
    """Batches of 4 records in two micro-batches; a short one in one, by a text of its own."""
    name = resolve_contract(contract)
    stream = Stream("step", 0, BATCH, epoch_records=epoch)
    programs = [Part("step", micro_step(name, BATCH // PARTS), stream, BATCH, PARTS)]
    turns = [Turn(0, 1)]
    if stream.epoch is not None and stream.is_uneven:
        last = stream.last_size
        programs.append(Part("step-short", micro_step(name, last), stream, last))
        turns = [Turn(0, stream.epoch - 1), Turn(1, 1)]
    records = replace(micro_records(count=count), order=order)
    rates = [0.05 / (1 + t) for t in range(steps)]
    return write_job(
        path,
        Parts(tuple(programs), (records,), tuple(turns)),
        micro_state(WIDTH),
        {"lr": rates},
        steps=steps,
        interval=interval,
    )
