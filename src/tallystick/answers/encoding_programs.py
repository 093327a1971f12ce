"""The program of an encoding: the encoder's values of a text, as one step (ANSWERS 11.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.answers.layout import SALT_WORDS, AnyBucket, EncodingBucket, encoding_types
from tallystick.answers.programs import SALT as SALT
from tallystick.answers.programs import (
    answer_program,
    answer_programs,
    captured,
    checked,
)
from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program, split_batch

if TYPE_CHECKING:
    from tallystick.answers.model import Model

# The slot that an encoding's step fills, beside SALT.
VALUES = "buffer.answer.values"


def encoding_slots(bucket: EncodingBucket) -> dict[str, TensorType]:
    """The types of these slots; before the step they are zeros."""
    return {
        VALUES: TensorType("f32", (bucket.answer,)),
        SALT: TensorType("i64", (SALT_WORDS,)),
    }


def encoding_program(model: Model, length: int, contract: str) -> Program:
    """The program of the model's encodings of a text of at most `length` tokens.

    Raises RefusedModelError, UsageError.
    """
    from tallystick.answers.encoder_modules import encoded

    encoding = model.encoding
    if encoding is None or not 1 <= length <= model.longest:
        raise UsageError(
            f"A text of {length} places cannot be encoded with this model.",
            f"Use an encoder and a text of 1 to {model.longest} places.",
        )
    batch = {"text": ((length,), "i64"), "length": ((1,), "i64")}
    forward = captured(model, batch, encoded(encoding), contract)
    return checked(encoding_step(forward, EncodingBucket(length, encoding.values)))


def rows_program(model: Model, rows: int, contract: str) -> Program:
    """Inputs `token` and `place`, i64[rows, 1]; output `logits`, f32[rows, width]: what the encoder
    makes of each row, which is a text of one place. Raises as `encoding_program`."""
    from tallystick.answers.encoder_modules import of_rows

    assert model.encoding is not None
    shape = ((rows, 1), "i64")
    return captured(model, {"token": shape, "place": shape}, of_rows(model.encoding), contract)


def pooling_program(model: Model, places: int, contract: str) -> Program:
    """Inputs `rows`, f32[places, D], and `length`, i64[1]; output `logits`, f32[D]: the embedding
    of a text by its last hidden state, of which so many rows are there."""
    from tallystick.answers.encoder_modules import pooling

    assert model.encoding is not None
    return checked(pooling(model.encoding, places, contract))


def encoding_step(forward: Program, bucket: EncodingBucket) -> Program:
    """`forward`, whose inputs are `text` and `length` and whose output is `logits`, as the step of
    an encoding: every weight passes through, and the encoding's slots take its values."""
    b = Builder(forward.contract)
    state = {name: b.state(name, type_) for name, type_ in forward.state_types.items()}
    for name, type_ in encoding_slots(bucket).items():
        b.state(name, type_)
    types = encoding_types(bucket.length)
    # A batch of one record (COMMITMENTS 7.4).
    given = {n: b.batch(n, TensorType(t.dtype, (1, *t.shape))) for n, t in types.items()}
    fields = {n: b.one("aten.view", [given[n]], size=t.shape) for n, t in types.items()}
    inputs = [
        state[x.name] if x.kind == "state" else fields[split_batch(x.name)[0]]
        for x in forward.inputs
    ]
    values = b.copy(forward, inputs)(forward.output_values["logits"])
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    loss = b.one("aten.sub.Tensor", [zero, b.one("aten.sum", [values])], alpha=1.0)
    following = {**state, VALUES: values, SALT: fields["salt"]}
    b.commit(following)
    return b.finish({"loss": loss, **following})


def program_of(model: Model, bucket: AnyBucket, set_: str, contract: str) -> Program:
    """The program of a set of the model, of an encoder's or another's. Raises RefusedModelError,
    UsageError."""
    if isinstance(bucket, EncodingBucket):
        return encoding_program(model, bucket.length, contract)
    return answer_program(model, bucket, set_, contract)


def programs_of(model: Model, bucket: AnyBucket, contract: str) -> dict[str, Program]:
    """The programs of all sets of the model, by set, captured once. Raises as `program_of`."""
    if isinstance(bucket, EncodingBucket):
        assert model.encoding is not None
        return {model.encoding.set: encoding_program(model, bucket.length, contract)}
    return answer_programs(model, bucket, contract)
