"""From a model directory to its statement, and a statement against the directory (ANSWERS 4, 8.5).

Weights are hashed and programs captured.

A statement comes from whoever signs answers. A program that echoes the claimed tokens has the slots
of an answer's program too: only deriving it again shows that it is the model's. Weights, files,
template and special tokens are compared where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tallystick.answers.encoding_programs import program_of, programs_of
from tallystick.answers.layout import SETS, AnyBucket, Bucket, EncodingBucket, has_answers
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.special import model_tokenizer, special_tokens
from tallystick.answers.statement import ModelStatement, ProgramName, Weight
from tallystick.commit.encoding import sha256
from tallystick.commit.tensor import first_non_canonical, header_of, tensor_digest
from tallystick.errors import DigestMismatchError, RefusedModelError, UsageError
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


def stated_model(directory: Path, adapter: Path | None, statement: ModelStatement) -> Model:
    """The model in a directory, with the adapter in another one, merged if the statement says so.
    Raises as `open_model`."""
    return open_model(directory, adapter, statement.merged)


def check_adapter(model: Model, statement: ModelStatement) -> None:
    """Raise DigestMismatchError where the statement names another adapter than the model has, or
    none (ANSWERS 4.7.4)."""
    own = None if model.adapter is None else model.adapter.stated
    if statement.adapter == own:
        return
    if statement.adapter is None:
        what = "The statement names no adapter, and one is given."
    elif own is None:
        what = "The statement names an adapter, and none is given (--adapter)."
    else:
        what = "The statement names another adapter than the one that is given."
    raise DigestMismatchError(
        what, "Use the adapter that the statement names, or reject its answers."
    )


def check_vocabulary(model: Model, statement: ModelStatement) -> None:
    """Raise DigestMismatchError where vocabulary or stop tokens are not the model's."""
    if statement.vocabulary != model.vocabulary:
        _not_the_models("vocabulary", f"it counts {statement.vocabulary} tokens")
    if statement.stop != model.stop:
        _not_the_models("stop tokens", f"they are {list(statement.stop)[:8]}")


def check_program_of(model: Model, statement: ModelStatement, name: ProgramName) -> None:
    """Derive one program of the statement again, and compare. The model is captured for it.

    Raises DigestMismatchError where it is not the model's; RefusedModelError."""
    what = f"program of {name.length}:{name.answer}, {name.set}"
    if name.length > model.longest:
        _not_the_models(what, f"the model has {model.longest} places")
    encodes = None if model.encoding is None else (model.encoding.set, model.encoding.values)
    if statement.encodes is None and encodes is not None:
        _not_the_models(what, "the model is an encoder")
    if statement.encodes is not None and (name.set, name.answer) != encodes:
        _not_the_models(what, "the model gives no such values")
    derived = program_of(model, name.bucket, name.set, statement.contract)
    if derived.digest() != statement.programs[name]:
        _not_the_models(what, "the model's directory gives another one")


def _not_the_models(what: str, why: str) -> NoReturn:
    raise DigestMismatchError(
        f"The statement's {what} is not the model's: {why}.",
        "Name the directory of the model that the statement is about, or reject its answers.",
    )
