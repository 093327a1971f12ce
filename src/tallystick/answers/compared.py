"""What a model statement says, against the model's own directory (ANSWERS 4.5, 8.5).

A statement comes from whoever signs answers. A program that echoes the claimed tokens has the slots
of an answer's program too: only deriving it again shows that it is the model's. Weights, files,
template and special tokens are compared where they are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from tallystick.answers.encoding_programs import program_of
from tallystick.answers.model import Model, open_model
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.errors import DigestMismatchError


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
