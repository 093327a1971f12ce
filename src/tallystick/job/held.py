"""Held-out records and the passes over them, as the author gives them: checked, and in the job."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit.data import DataSchema
from tallystick.errors import UsageError
from tallystick.job.job import Evaluation
from tallystick.job.parts import HELD_OUT, Parts, Records, batch_size_of, with_validation
from tallystick.job.reading import Data, schema_for, taken
from tallystick.program.ir import Program
from tallystick.program.validation import StopRule


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
