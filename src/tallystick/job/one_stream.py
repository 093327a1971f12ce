"""Captured steps that go through the records together, as one stream (COMMITMENTS 7.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tallystick.commit.stream import ENDS, RUN_ON, SHORT, Stream, check_choice
from tallystick.errors import UsageError
from tallystick.job.parts import Part, Parts, Records, batch_size_of
from tallystick.job.turns import turns_of
from tallystick.numerics.contracts import find_contract

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep

# What becomes of an epoch's end, in a word; or the number of records that an epoch reads.
End = str | int


def epoch_records(records: int, size: int, end: End) -> int | None:
    """The records that an epoch reads of so many, in batches of `size`; None where it runs on.

    So it does where the batches fill an epoch: then all ends are one. Raises UsageError.
    """
    if isinstance(end, str):
        check_choice("epoch_end", end, ENDS)
        if end == RUN_ON:
            return None
        end = records if end == SHORT else records // size * size
    if not end:
        raise UsageError(
            f"{records} records have no whole batch of {size}.", "Make the batch smaller."
        )
    return None if end == records and records % size == 0 else end


def stream_with_short(
    name: str, size: int, short: int | None, records: int, end: End, steps: int
) -> tuple[Stream, int]:
    """The stream of batches of `size`, and the steps of an epoch that ends with one of `short`; 0
    where no epoch of the run does. Raises UsageError as `with_short`."""
    stream = Stream(name, 0, size, epoch_records=epoch_records(records, size, end))
    last, epoch = stream.last_size, stream.epoch
    if epoch is None or not stream.is_uneven:
        if short is not None:
            raise UsageError("No batch of an epoch is short.", "Leave the short step out.")
        return stream, 0
    if epoch == 1:
        raise UsageError(
            f"An epoch has {last} records, fewer than a batch of {size}.",
            f"Capture the step with an example batch of {last}.",
        )
    if steps < epoch:  # the run ends before the short batch
        return stream, 0
    if short != last:
        raise UsageError(
            f"The last batch of an epoch has {last} records, and "
            + ("no step is given for it." if short is None else "the short step has others."),
            f"Capture the step once more with an example batch of {last}, and pass it as short; "
            "or let epoch_end be 'drop' or 'run on'.",
        )
    return stream, epoch


def with_short(
    name: str,
    step: CapturedStep,
    short: CapturedStep | None,
    records: Records,
    end: End,
    steps: int,
) -> Parts:
    """`step` in each of `steps` steps, but `short` where an epoch's last batch is a short one.

    Raises UsageError unless `short` is the step of such a batch, or none where there is none.
    """
    size = batch_size_of(step.batch)
    of_short = None if short is None else batch_size_of(short.batch)
    stream, epoch = stream_with_short(name, size, of_short, records.count, end, steps)
    if not epoch or short is None:
        return one_stream(stream, {name: step}, records, [0] * (steps if stream.is_uneven else 1))
    if short.scalars != step.scalars:
        raise UsageError(
            "The short step has other rates than the step.", "Capture both with one optimizer."
        )
    if find_contract(step.program.contract).keeps_log:
        raise UsageError(
            f"Under {step.program.contract}, which keeps logs, a job has one program, and a short "
            "batch is one of its own.",
            "Drop the last batch (drop_last=True), or choose a batch that divides the records.",
        )
    return one_stream(
        stream, {name: step, f"{name}-short": short}, records, [0] * (epoch - 1) + [1]
    )


def by_step(
    steps: Mapping[str, CapturedStep], names: Sequence[str], records: Records, end: End
) -> Parts:
    """The programs `steps`, of which each step of the run executes the one that `names` says."""
    order = list(steps)
    if strange := sorted(set(names) - set(order)):
        raise UsageError(
            f"programs_of_steps names {strange[0]!r}, which is no program of the job.",
            f"They are {', '.join(order)}.",
        )
    size = max(batch_size_of(step.batch) for step in steps.values())
    stream = Stream(order[0], 0, size, epoch_records=epoch_records(records.count, size, end))
    return one_stream(stream, steps, records, [order.index(name) for name in names])


def one_stream(
    stream: Stream, steps: Mapping[str, CapturedStep], records: Records, numbers: Sequence[int]
) -> Parts:
    """The parts of steps in one stream; `numbers` has the program of each step, or of each step of
    an epoch that is repeated."""
    unit = stream.epoch if stream.epoch is not None and stream.is_uneven else 1
    programs = tuple(
        Part(name, step.program, stream, batch_size_of(step.batch), step.micro_batches or 1)
        for name, step in steps.items()
    )
    return Parts(programs, (records,), turns_of(numbers, unit))
