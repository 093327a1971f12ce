"""The records that a job is made of: columns in memory, or a frozen data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.tensor import COMPUTED, STORED, Array, check_canonical, dtype_name
from tallystick.data.frozen import Frozen, load_frozen
from tallystick.errors import CounterpartyError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType

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
