"""The record of a receipt's job, as evidence shows it (ANSWERS 6.9.2).

The receipt has signed the job's digest. Statement, record and seed give it without a weight, and
without the request: so the record says which text was signed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import SETS, Bucket, batch_types, has_answers
from tallystick.answers.one_step import commitment_of
from tallystick.answers.programs import answer_slots
from tallystick.answers.receipt import AnswerReceipt
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.commit.data import DataSchema, Field, data_root, parse_record, record_bytes
from tallystick.commit.tensor import Array
from tallystick.errors import DigestMismatchError, UsageError

Refuse = Callable[[str], NoReturn]


@dataclass(frozen=True)
class SignedRecord:
    """A record's bytes, with the program and the seed of its job."""

    program: ProgramName
    seed: int
    record: bytes

    @staticmethod
    def of(answer: AnswerJob) -> SignedRecord:
        values = {name: array[0] for name, array in answer.columns.items()}
        return SignedRecord(answer.program_name, answer.seed, record_bytes(answer.schema, values))

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.program.length, self.program.answer)

    def fields(
        self, statement: ModelStatement, receipt: AnswerReceipt, refuse: Refuse, next_action: str
    ) -> dict[str, Array]:
        """The fields of the record, which is that of the receipt's job and laid out for its counts.

        The caller has compared the statement with the receipt, and the program is one of it.
        `refuse` raises for a record that no answer has; DigestMismatchError for another job."""
        name = self.program
        if name.set not in SETS or not has_answers(self.bucket, name.set, statement.vocabulary):
            refuse("its program has no answers")
        types = batch_types(self.bucket, name.set, statement.vocabulary)
        schema = DataSchema(tuple(Field(n, t.dtype, t.shape) for n, t in types.items()))
        try:
            fields = parse_record(schema, self.record)
            columns = {name: array[np.newaxis] for name, array in fields.items()}
            root, slots = data_root(schema, columns), answer_slots(self.bucket)
            job = commitment_of(statement, name, slots, root, self.seed).digest()
        except UsageError as error:
            refuse(error.message.rstrip("."))
        if job != receipt.job:
            raise DigestMismatchError(
                "The receipt's job is not that of this statement, record and seed.", next_action
            )
        if not _is_laid_out(fields, self.bucket, receipt.prompt, receipt.answer):
            refuse("its record is not laid out as an answer of the receipt's counts")
        return fields


def _is_laid_out(fields: dict[str, Array], bucket: Bucket, prompt: int, count: int) -> bool:
    """Whether place, live and the end of the text are those of ANSWERS 3.3."""
    rows = np.arange(bucket.answer)
    fits = count <= bucket.answer and prompt + count <= bucket.length
    return bool(
        fits
        and np.array_equal(fields["place"], prompt - 1 + np.minimum(rows, count - 1))
        and np.array_equal(fields["live"], (rows < count).astype(np.int64))
        and not fields["text"][prompt + count :].any()
    )
