"""The job of an encoding (ANSWERS 11): a run of one step, as an answer's is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallystick.answers.encoded import Encoded
from tallystick.answers.encoding_programs import SALT, VALUES, encoding_slots
from tallystick.answers.encoding_request import EncodingRequest
from tallystick.answers.layout import EncodingBucket, encoding_types
from tallystick.answers.one_step import OneStepJob
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.commit.tensor import DTYPES, Array
from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType


@dataclass(frozen=True)
class EncodingJob(OneStepJob):
    """The job of an encoding, from the model, the request and the tokens alone.

    Raises UsageError for a text that fits no bucket of the model, and for values of another number
    than the bucket's.
    """

    statement: ModelStatement
    request: EncodingRequest
    encoded: Encoded
    choice: int = 0

    @cached_property
    def bucket(self) -> EncodingBucket:
        """The program's sizes (ANSWERS 11.2)."""
        found = self.statement.encoding_bucket(len(self.encoded.prompt))
        if found.answer != len(self.encoded.values):
            raise UsageError(
                f"The model gives {found.answer} values, but the encoding has "
                f"{len(self.encoded.values)}.",
                "Use the encoding as it was sent.",
            )
        return found

    @property
    def program_name(self) -> ProgramName:
        bucket = self.bucket
        assert self.statement.encodes is not None  # it has a bucket
        return ProgramName(bucket.length, bucket.answer, self.statement.encodes)

    @property
    def seed(self) -> int:
        return 0  # nothing is drawn (ANSWERS 11.7)

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The job's one record, by field (ANSWERS 11.3). A token outside of the vocabulary stands
        in it as it is."""
        types = encoding_types(self.bucket.length)
        values = {n: np.zeros((1, *t.shape), DTYPES[t.dtype]) for n, t in types.items()}
        values["text"][0, : len(self.encoded.prompt)] = self.encoded.prompt
        values["length"][:] = len(self.encoded.prompt)
        values["salt"][:] = self.request.record_salt
        return values

    @property
    def scores(self) -> str:
        return VALUES

    @property
    def text(self) -> tuple[int, ...]:
        return self.encoded.prompt

    def slot_types(self) -> dict[str, TensorType]:
        return encoding_slots(self.bucket)

    def claimed_slots(self) -> dict[str, Array]:
        """The slots of the encoding in state[1], as the values claim."""
        slots = self.first_slots()
        slots[VALUES][:] = self.encoded.values
        slots[SALT][:] = self.request.record_salt
        return slots
