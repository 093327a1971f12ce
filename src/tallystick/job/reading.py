"""The author's records, and how the programs of a new job go through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.commit.stream import ENDS, RUN_ON, SHORT, check_choice
from tallystick.errors import UsageError
from tallystick.job.columns import Data, schema_for, taken
from tallystick.job.parts import TRAIN, Records

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
            f"The data has {records} records, fewer than one batch of {size}.",
            "Use a smaller batch.",
        )
    return None if end == records and records % size == 0 else end


@dataclass(frozen=True)
class Reading:
    """`data` are the records of every program that is not in `own`, which has others by program.
    All are read in one `order`, to one `end` of epochs."""

    data: Data | None
    own: Mapping[str, Data]
    order_seed: int
    order: str
    end: End

    def shared(self, *steps: CapturedStep) -> Records:
        """The records of steps in one stream. Raises UsageError."""
        if self.data is None:
            raise UsageError(
                "A job with a short batch or several steps needs a single data set.", "Pass data."
            )
        first, *others = steps
        records = self._records(TRAIN, first, self.data, "data")
        for step in others:
            schema_for(step.batch, records.columns)  # the same fields
        return records

    def by_program(
        self, steps: Mapping[str, CapturedStep]
    ) -> tuple[tuple[Records, ...], dict[str, int | None]]:
        """The data sets, and the number of the one that each program reads; a program whose batch
        is empty reads none. Raises UsageError."""
        own = self.own
        if strange := sorted(set(own) - set(steps)):
            raise UsageError(
                f"own_data names {strange[0]!r}, which is not a program.",
                "Use a name that `programs` contains.",
            )
        sets: list[Records] = []
        reads: dict[str, int | None] = {}
        shared: int | None = None
        for name, step in steps.items():
            if not step.batch:
                if name in own:
                    raise UsageError(
                        f"The program {name} has no batch, so it reads no data.",
                        "Leave its data out.",
                    )
                reads[name] = None
                continue
            given = own.get(name, self.data)
            if given is None:
                raise UsageError(f"The program {name} has no data.", "Pass data or own_data.")
            if name not in own and shared is not None:
                schema_for(step.batch, sets[shared].columns)  # the same fields
                reads[name] = shared
                continue
            reads[name] = len(sets)
            if name not in own:
                shared = len(sets)
            known = TRAIN if name not in own else name
            sets.append(self._records(known, step, given, f"data of {name}"))
        if self.data is not None and shared is None:
            raise UsageError(
                "data was given, but no program reads it.",
                "Leave data out, or capture a program with a batch.",
            )
        return tuple(sets), reads

    def _records(self, name: str, step: CapturedStep, data: Data, what: str) -> Records:
        columns, kept = taken(data, what)
        schema = schema_for(step.batch, columns)
        return Records(name, schema, columns, self.order_seed, kept, self.order)
