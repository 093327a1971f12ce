"""The job of an answer, and the run that its claim implies (ANSWERS 2).

An answer is a run of one step. Model statement, request and tokens give its job, and with the
log-probabilities the roots of its run. Neither needs a weight: a statement has their digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.layout import Bucket, Settings, choice_seed, record
from tallystick.answers.one_step import OneStepJob
from tallystick.answers.programs import LOGPROBS as LOGPROBS
from tallystick.answers.programs import SALT as SALT
from tallystick.answers.programs import TOKENS as TOKENS
from tallystick.answers.programs import answer_slots
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.commit.tensor import Array, tensor_digest
from tallystick.errors import DigestMismatchError
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.text import parse_text, text_digest


@dataclass(frozen=True)
class AnswerJob(OneStepJob):
    """The job of an answer (ANSWERS 2), from the model, the request and the tokens alone.

    `choice` numbers the answers of one request. Raises UsageError for tokens that fit no bucket of
    the model, and for settings that are out of range.
    """

    statement: ModelStatement
    request: ModelRequest
    spoken: Spoken
    choice: int = 0

    @property
    def settings(self) -> Settings:
        return self.request.settings

    @cached_property
    def bucket(self) -> Bucket:
        """The program's sizes (ANSWERS 2.3)."""
        sizes = len(self.spoken.prompt), len(self.spoken.tokens)
        return self.statement.bucket(*sizes, self.settings.set)

    @property
    def program_name(self) -> ProgramName:
        return ProgramName(self.bucket.length, self.bucket.answer, self.settings.set)

    @cached_property
    def seed(self) -> int:
        """The job's random-number seed: that of the choice (ANSWERS 2.6)."""
        return choice_seed(self.request.seed, self.choice)

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The job's one record, by field (ANSWERS 2.4). A token outside of the vocabulary stands in
        it as it is: its job can be signed, and convicts by itself (ANSWERS 6.3)."""
        spoken, most = self.spoken, self.statement.vocabulary
        text = np.array([*spoken.prompt, *spoken.tokens], np.int64)
        known = np.where((text >= 0) & (text < most), text, 0).tolist()
        count = len(spoken.prompt)
        values = record(
            self.bucket, self.settings, known[:count], known[count:], self.request.record_salt, most
        )
        values["text"][: len(text)] = text
        return {name: array[np.newaxis] for name, array in values.items()}

    @property
    def scores(self) -> str:
        return LOGPROBS

    @property
    def text(self) -> tuple[int, ...]:
        return (*self.spoken.prompt, *self.spoken.tokens)

    def slot_types(self) -> dict[str, TensorType]:
        return answer_slots(self.bucket)

    def claimed_slots(self) -> dict[str, Array]:
        """The slots of the answer in state[1], as the tokens and log-probabilities claim."""
        slots, count = self.first_slots(), len(self.spoken.tokens)
        slots[TOKENS][:count] = self.spoken.tokens
        slots[LOGPROBS][:count] = self.spoken.logprobs
        slots[SALT][:] = self.request.record_salt
        return slots


def check_weights(statement: ModelStatement, weights: Mapping[str, Array]) -> None:
    """Compare weights with the statement, all of them. Raises DigestMismatchError."""
    if odd := set(weights) ^ set(statement.weights):
        raise DigestMismatchError(
            "The weights here are not those of the model statement: only one of the two has "
            f"{min(odd)[:80]!r}.",
            "Name the directory of the model that the statement is about.",
        )
    for name, weight in statement.weights.items():
        if tensor_digest(weights[name]) != weight.digest:
            raise DigestMismatchError(
                f"The weights here are not those of the model statement: {name[:80]!r} differs.",
                "Name the directory of the model that the statement is about.",
            )


def checked_program(data: bytes, digest: bytes) -> Program:
    """The program in a text that another party may have written. Raises DigestMismatchError for
    another one than `digest` names, CorruptFileError."""
    if text_digest(data) != digest:
        raise DigestMismatchError(
            "The program here is not the one that the model statement names.",
            "Derive it again with `tallystick model statement`.",
        )
    return parse_text(data)
