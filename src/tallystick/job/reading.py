"""The author's records, as columns in memory or a frozen data set, and how the programs of a new
job go through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.stream import ENDS, RUN_ON, SHORT, check_choice
from tallystick.commit.tensor import COMPUTED, STORED, Array, check_canonical, dtype_name
from tallystick.data.frozen import Frozen, load_frozen
from tallystick.errors import CounterpartyError, UsageError
from tallystick.job.parts import TRAIN, Records
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep

# Columns by name (arrays or torch tensors), a frozen data set, or the directory of one.
Data = Mapping[str, Any] | Frozen | str | Path


def taken(data: Data, what: str) -> tuple[dict[str, Array], Frozen | None]:
    """The columns of `data`, and the frozen data set that they are of, if it is one.

    The records of a frozen set are hashed, so that no job names a root that its file has not.
    Raises UsageError, and what `Frozen.verify` raises.
    """
    if isinstance(data, (str, Path)):
        data = load_frozen(data)
    if isinstance(data, Frozen):
        data.verify()
        return data.columns, data
    return as_columns(data, what), None


def as_columns(data: Mapping[str, Any], what: str) -> dict[str, Array]:
    """Columns as numpy arrays, from arrays or torch tensors. The function does not narrow
    float64."""
    columns: dict[str, Array] = {}
    for name, column in data.items():
        array = np.asarray(column.detach().cpu().numpy() if hasattr(column, "detach") else column)
        try:
            is_record = dtype_name(array.dtype) not in STORED
        except UsageError:
            is_record = False
        if not is_record:
            raise UsageError(
                f"Column {name!r} of the {what} has the type {array.dtype}.",
                f"Convert it to one of {', '.join(COMPUTED)}.",
            )
        if array.ndim == 0:
            raise UsageError(
                f"Column {name!r} of the {what} is a single value.",
                "Pass an array with one record per row.",
            )
        try:
            check_canonical(array, f"column {name!r} of the {what}")
        except CounterpartyError as error:
            # COMMITMENTS 3.3: every operator's NaN has one pattern, and so has every NaN of a job.
            raise UsageError(error.message, "Write every NaN as numpy.nan.") from None
        columns[name] = np.asarray(array, order="C")
    lengths = {len(c) for c in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(
            f"The columns of the {what} have different numbers of records: {sorted(lengths)}.",
            "Give every field the same number of records, at least one.",
        )
    return columns


def schema_for(batch: Mapping[str, TensorType], columns: Mapping[str, Array]) -> DataSchema:
    """The record fields of a program's batch; the columns must have them. Raises UsageError."""
    if set(batch) != set(columns):
        raise UsageError(
            f"The data has the fields {sorted(columns)}, but the captured batch has "
            f"{sorted(batch)}.",
            "Give the columns the names of the batch's tensors.",
        )
    fields = []
    for name, type_ in batch.items():
        column = columns[name]
        found = TensorType(dtype_name(column.dtype), tuple(map(int, column.shape[1:])))
        if not type_.shape or (found.dtype, found.shape) != (type_.dtype, type_.shape[1:]):
            raise UsageError(
                f"Records of {name!r} are {found}, but the captured batch has {type_}.",
                "The batch stacks the records along its first axis. Convert or reshape the "
                "records.",
            )
        fields.append(Field(name, type_.dtype, type_.shape[1:]))
    return DataSchema(tuple(fields), LIMITS.long_record_bytes)


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
