"""A request for an encoding, and the job that it implies: a run of one step, as an answer's is
(ANSWERS 11). It has a text or tokens, and what is to be made of them (11.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallystick.answers.beside_receipt import Encoded
from tallystick.answers.encoding_programs import SALT, VALUES, encoding_slots
from tallystick.answers.layout import ENCODINGS, EncodingBucket, encoding_types
from tallystick.answers.one_step import OneStepJob
from tallystick.answers.request import (
    KIND,
    RECORD_SALT,
    ModelRequest,
    malformed,
    part_digest,
    request_digest,
    salt_of,
)
from tallystick.answers.statement import ModelStatement, ProgramName, integers
from tallystick.commit.encoding import JsonValue, canonical_json, check_hash, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.tensor import DTYPES, Array
from tallystick.errors import CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType

_PARTS = ("input", "model", "output")


@dataclass(frozen=True)
class EncodingRequest:
    """What a client asks of an encoder. Raises UsageError for parts that are out of range.

    `model` is the model digest, `output` the set. Exactly one of `tokens` and `text` is given.
    """

    model: bytes
    output: str
    tokens: tuple[int, ...] | None = None
    text: str | None = None
    secret: bytes = b""

    choices = 1  # nothing is drawn

    def __post_init__(self) -> None:
        check_hash(self.model, "model digest")
        check_hash(self.secret, "secret of a request")
        given = [x for x in (self.tokens, self.text) if x is not None]
        why = None
        if self.output not in ENCODINGS:
            why = f"its output is none of {', '.join(ENCODINGS)}"
        elif len(given) != 1:
            why = "it needs exactly one of tokens and text"
        elif not given[0]:
            why = "its input is empty"
        if why is not None:
            raise UsageError(
                f"This request is not valid: {why}.", "Correct what the message names."
            )

    @cached_property
    def parts(self) -> dict[str, JsonValue]:
        """The parts by name, as their salted digests take them."""
        asked: dict[str, JsonValue]
        asked = {"text": self.text} if self.tokens is None else {"tokens": list(self.tokens)}
        return {"input": asked, "model": self.model.hex(), "output": self.output}

    @property
    def record_salt(self) -> Array:
        """The salt of the encoding's record: i64[4] (ANSWERS 11.3)."""
        return np.frombuffer(salt_of(self.secret, RECORD_SALT), "<i8").astype(np.int64)

    @cached_property
    def digest(self) -> bytes:
        """The request digest (ANSWERS 5.4)."""
        return request_digest({
            name: part_digest(name, salt_of(self.secret, name), value)
            for name, value in self.parts.items()
        })  # fmt: skip

    def to_bytes(self) -> bytes:
        """The file, with the secret: canonical JSON."""
        return canonical_json({"kind": KIND, "parts": self.parts, "secret": self.secret.hex()})


AnyRequest = ModelRequest | EncodingRequest


def read_request(data: bytes) -> AnyRequest:
    """The request in untrusted bytes, of either kind. Raises CorruptFileError."""
    top = Members(parse_canonical_json(data, "request", LIMITS.request_bytes), malformed)
    parts = top.value.get("parts")
    if not isinstance(parts, dict) or "output" not in parts:
        return ModelRequest.from_bytes(data)
    top.only("kind", "parts", "secret")
    if top.of("kind", str) != KIND:
        malformed(f"its kind is {top.value['kind']!r}")
    try:
        found = _request(top)
    except CorruptFileError:
        raise
    except TallystickError as error:
        malformed(error.message.rstrip("."))
    if found.to_bytes() != data:
        malformed("a part is not in its canonical form")
    return found


def _request(top: Members) -> EncodingRequest:
    parts = top.child("parts")
    parts.only(*_PARTS)
    asked = parts.child("input")
    if set(asked.value) not in ({"tokens"}, {"text"}):
        malformed("its input needs exactly one of tokens and text")
    is_text = "text" in asked.value
    return EncodingRequest(
        model=parts.hex("model"),
        output=parts.of("output", str),
        tokens=None if is_text else integers(asked, "tokens"),
        text=asked.of("text", str) if is_text else None,
        secret=top.hex("secret"),
    )


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
