"""From a model directory to its statement: weights hashed, programs captured (ANSWERS 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tallystick.answers.encoding_programs import programs_of
from tallystick.answers.layout import SETS, AnyBucket, Bucket, EncodingBucket, has_answers
from tallystick.answers.model import Model, weights
from tallystick.answers.special import model_tokenizer, special_tokens
from tallystick.answers.statement import ModelStatement, ProgramName, Weight
from tallystick.commit.encoding import sha256
from tallystick.commit.tensor import first_non_canonical, header_of, tensor_digest
from tallystick.errors import RefusedModelError, UsageError
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.ir import Program


def derive(
    model: Model,
    buckets: Sequence[Bucket | int],
    contract: str,
    run: bytes | None = None,
    about: Mapping[str, str] | None = None,
    each: Callable[[AnyBucket], None] = lambda _: None,
) -> tuple[ModelStatement, dict[ProgramName, Program]]:
    """The statement of a model, and the programs that it names; `each` is told a bucket
    before its programs are captured. Of an encoder a bucket is given by its length alone.

    A program whose record is over the limit is left out (ANSWERS 10.2). Raises UsageError for
    buckets that the model or a record has no room for, RefusedModelError.
    """
    if not buckets:
        raise UsageError("A model statement needs a bucket.", "Pass at least one bucket.")
    full = resolve_contract(contract)
    programs: dict[ProgramName, Program] = {}
    sets = SETS if model.encoding is None else (model.encoding.set,)
    sized = [_sized(model, bucket) for bucket in buckets]
    for bucket in sorted(sized, key=lambda b: (b.length, b.answer)):
        if bucket.length > model.longest:
            raise UsageError(
                f"The model has {model.longest} places, fewer than the bucket's {bucket.length}.",
                "Choose a smaller bucket.",
            )
        fit = [set_ for set_ in sets if has_answers(bucket, set_, model.vocabulary)]
        if not fit:
            raise UsageError(
                f"With a bucket of {bucket.length} places, the record is larger than the limit.",
                "Choose a smaller bucket.",
            )
        each(bucket)
        captured = programs_of(model, bucket, full)
        programs |= {ProgramName(bucket.length, bucket.answer, s): captured[s] for s in fit}
    slots = weights(model)
    for name, array in slots.items():
        if first_non_canonical(array) is not None:
            raise RefusedModelError(
                f"The weight {name} contains a NaN that is not the canonical one.",
                "Write every NaN of the model's weights as numpy.nan.",
            )
    return ModelStatement(
        contract=full,
        vocabulary=model.vocabulary,
        weights={n: Weight(header_of(a), tensor_digest(a)) for n, a in slots.items()},
        programs={name: program.digest() for name, program in programs.items()},
        files={name: sha256(data) for name, data in model.files.items()},
        template=None if model.chat_template is None else sha256(model.chat_template.encode()),
        special=special_tokens(model.files, model_tokenizer(model.files)),
        stop=model.stop,
        adapter=None if model.adapter is None else model.adapter.stated,
        run=run,
        about=dict(about or {}),
    ), programs


def _sized(model: Model, given: Bucket | int) -> AnyBucket:
    """A bucket of the model. Raises UsageError for one of another kind of model."""
    if model.encoding is None and isinstance(given, Bucket):
        return given
    if model.encoding is not None and isinstance(given, int):
        return EncodingBucket(given, model.encoding.values)
    what = "a length and the room of an answer, L:A" if model.encoding is None else "a length, L"
    raise UsageError(f"A bucket of this model must be {what}.", "Change --bucket.")
