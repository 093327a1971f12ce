"""Jobs of format 3 written from parts: a stream whose last batch of an epoch may be short, and
passes that read every held-out record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from format_two import WIDTH, f32, micro_records, micro_state, micro_step, write_job

from tallystick.commit.stream import SHUFFLED, Stream
from tallystick.commit.timetable import ScheduleTurn
from tallystick.job.job import Job
from tallystick.job.parts import Parts, ProgramPart, with_validation
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program
from tallystick.program.validation import StopRule

ROWS, PARTS, COUNT = 2, 2, 11  # records of a micro-batch, micro-batches, records
HELD, HELD_BATCH, EVERY = 7, 3, 3
# With validation a cycle is an epoch, a pass and a decision.
SHORT, PASS, SHORT_PASS, DECISION, CYCLE = 2, 3, 5, 6, 7


def make_stream_job(
    path: Path,
    epoch: int | None = COUNT,
    order: str = SHUFFLED,
    contract: str = "ordered/1",
    *,
    steps: int = 9,
    interval: int = 3,
    validates: bool = False,
    patience: int | None = None,
    rate: float = 0.05,
    parts: int = PARTS,
    count: int = COUNT,
) -> Job:
    """Batches of `parts` micro-batches of two records; a short one in as many as it has, or where
    its number is odd in one, by a text of its own.

    With `validates` there is a pass after each three steps, over seven records in batches of three.
    """
    name = resolve_contract(contract)
    batch = ROWS * parts
    stream = Stream("step", 0, batch, epoch_records=epoch)
    programs = [ProgramPart("step", micro_step(name, ROWS), stream, batch, parts)]
    turns = [ScheduleTurn(0, 1)]
    if stream.epoch is not None and stream.is_uneven:
        last = stream.last_size
        rows = last if last % ROWS else ROWS
        programs.append(
            ProgramPart("step-short", micro_step(name, rows), stream, last, last // rows)
        )
        turns = [ScheduleTurn(0, stream.epoch - 1), ScheduleTurn(1, 1)]
    records = replace(micro_records(count=count), order=order)
    made = Parts(tuple(programs), (records,), tuple(turns))
    rates = [rate / (1 + t) for t in range(steps)]
    if validates:
        whole, last_one = (evaluation(name, n) for n in (HELD_BATCH, HELD % HELD_BATCH))
        held, rule = micro_records("validation", HELD), StopRule(patience, 1.0)
        made = with_validation(made, whole, held, HELD_BATCH, EVERY, rule, steps, last_one)
    return write_job(
        path,
        made,
        micro_state(WIDTH),
        {"lr": rates},
        steps=made.timetable.training_steps(steps),
        interval=interval,
    )


def evaluation(contract: str, rows: int) -> Program:
    """The mean squared error of `rows` held-out records."""
    b = Builder(contract)
    w, x, y = (
        b.state("param.w", f32(WIDTH, 1)),
        b.batch("x", f32(rows, WIDTH)),
        b.batch("y", f32(rows, 1)),
    )
    error = b.one("aten.sub.Tensor", [b.one("aten.mm", [x, w]), y], alpha=1.0)
    return canonicalize(b.finish({"loss": b.one("aten.mean", [b.one("aten.square", [error])])}, {}))
