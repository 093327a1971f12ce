"""The author's records, as columns in memory or a frozen data set, and how the programs of a new
job go through them: in training, and in passes over held-out records.
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
from tallystick.job.job import Evaluation
from tallystick.job.parts import HELD_OUT, TRAIN, Parts, Records, batch_size_of, with_validation
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.validation import StopRule

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


@dataclass(frozen=True)
class HeldOut:
    """Held-out records, and the pass over them after every `every` training steps.

    With a `rule` the run commits to the passes and may end by them (PROGRAM 7). Then `short`, the
    evaluation of a last batch that has fewer records, lets them read every record (PROGRAM 7.4).
    """

    data: Data
    evaluation: Program
    every: int
    rule: StopRule | None = None
    short: Program | None = None

    def checked(self, schema: DataSchema | None) -> tuple[Evaluation, Records]:
        """What the manifest says of validation, and the records; `schema`, if given, is theirs.
        Raises UsageError."""
        columns, kept = taken(self.data, "validation data")
        found = schema_for(self.evaluation.batch_types, columns)
        if schema is not None and found != schema:
            raise UsageError(
                "The validation records do not have the fields of the training data.",
                "Give both the same fields.",
            )
        size = batch_size_of(self.evaluation.batch_types)
        records = Records(HELD_OUT, found, columns, 0, kept)
        if records.count < size:
            raise UsageError(
                f"There are {records.count} validation records, fewer than a batch of {size}.",
                "Hold out more records.",
            )
        if self.every < 0:
            raise UsageError(
                f"evaluate_every is {self.every}, which is negative.",
                "Give a number of steps, or 0 for never.",
            )
        digest = self.evaluation.digest()
        return Evaluation(self.every, digest, records.root, records.count, size), records

    def committed(self, parts: Parts, rule: StopRule, records: Records, steps: int) -> Parts:
        """`parts` of `steps` training steps with the passes. Raises UsageError."""
        size = batch_size_of(self.evaluation.batch_types)
        if self.short is not None:
            _check_short(self.short, records, size)
        return with_validation(
            parts, self.evaluation, records, size, self.every, rule, steps, self.short
        )


def held_of(
    data: Data | None,
    evaluation: Program | None,
    every: int,
    rule: StopRule | None,
    short: Program | None = None,
) -> HeldOut | None:
    """What is held out, if anything is. Raises UsageError for a rule without records."""
    if data is not None and evaluation is not None:
        return HeldOut(data, evaluation, every, rule, short)
    if rule is not None:
        raise UsageError(
            "Committed validation needs held-out records.", "Pass validation=... as well."
        )
    return None


def _check_short(program: Program, held: Records, size: int) -> None:
    """Raises UsageError unless `program` evaluates the last batch of `held` in batches of `size`,
    which has fewer records."""
    last = held.count % size
    if schema_for(program.batch_types, held.columns) != held.schema:
        raise UsageError(
            "The short evaluation does not have the fields of the validation records.",
            "Capture it with the same fields.",
        )
    if batch_size_of(program.batch_types) != last:
        raise UsageError(
            f"The last batch of {held.count} held-out records in batches of {size} has "
            f"{last or size} records, but the short evaluation has "
            f"{batch_size_of(program.batch_types)}.",
            f"Capture it with an example batch of {last}." if last else "Leave it out.",
        )
