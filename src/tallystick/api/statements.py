"""A model's statement, made and derived again (ANSWERS 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tallystick.answers.derive import derive, stated_model
from tallystick.answers.files import read_statement, write_statement
from tallystick.answers.layout import AnyBucket, Bucket
from tallystick.answers.model import open_model
from tallystick.answers.statement import ModelStatement
from tallystick.api.answering import statement_place
from tallystick.errors import DigestMismatchError, UsageError
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore

Tell = Callable[[str], None] | None
Compared = tuple[Mapping[Any, object], Mapping[Any, object]]


def make_statement(
    directory: Path,
    place: Path | None,
    buckets: Sequence[Bucket | int],
    contract: str,
    run: Path | None,
    overwrite: bool,
    tell: Tell,
    adapter: Path | None = None,
    merge: bool = False,
) -> tuple[ModelStatement, Path]:
    """Write a model's statement and programs to `place`; the statement, and where it is. With an
    `adapter`, `merge` puts its products into the weights.

    Raises UsageError for a bucket that the model has no room for, and where there is a
    statement already, RefusedModelError, and as `read_claim` for a `run` whose root is to stand
    in it.
    """
    if not buckets:
        raise UsageError(
            "A model statement needs a bucket.",
            "Pass --bucket L:A, such as 256:64. For an encoder, pass --bucket L.",
        )
    if merge and adapter is None:
        raise UsageError("--merge needs an adapter.", "Pass it with --adapter DIR.")
    target = statement_place(directory, adapter) if place is None else place
    made, programs = derive(
        open_model(directory, adapter, merge),
        buckets,
        contract,
        run=None if run is None else _root_of(run),
        each=_telling(tell),
    )
    write_statement(target, made, programs, overwrite)
    return made, target


def _root_of(run: Path) -> bytes:
    """The run root of a finished run, whose claim has been read."""
    store = RunStore(run)
    store.require()
    return read_claim(store, store.job()).run_root


def _telling(tell: Tell) -> Callable[[AnyBucket], None]:
    if tell is None:
        return lambda _: None
    return lambda bucket: tell(f"capturing {bucket.length}:{bucket.answer}")


def verify_statement(
    place: Path, directory: Path, tell: Tell, adapter: Path | None = None
) -> tuple[ModelStatement, list[str]]:
    """The statement at `place`, and what of it differs from the one that the directories of model
    and adapter give again. Only the sets that it states are compared, and none of what `unproved`
    names."""
    stated = read_statement(place)
    model = stated_model(directory, adapter, stated)
    if (stated.encodes is None) != (model.encoding is None):
        raise DigestMismatchError(
            "Either the statement or the model is an encoder's, but not both.",
            "Name the model that the statement is about.",
        )
    sizes = sorted({(name.length, name.answer) for name in stated.programs})
    buckets = [size[0] if stated.encodes else Bucket(*size) for size in sizes]
    made, _ = derive(model, buckets, stated.contract, each=_telling(tell))
    compared = ("contract", "vocabulary", "files", "template", "special", "stop", "adapter")
    differing = [name for name in compared if getattr(made, name) != getattr(stated, name)]
    programs = {name: made.programs.get(name) for name in stated.programs}
    slots: Compared = (made.weights, stated.weights)
    for name, (own, theirs) in {"weights": slots, "programs": (programs, stated.programs)}.items():
        odd = sorted(str(k) for k in {*own, *theirs} if own.get(k) != theirs.get(k))
        differing += [f"{name}: {len(odd)} of {len(theirs)}, first {odd[0]}"] if odd else []
    return stated, differing


def unproved(statement: ModelStatement) -> list[str]:
    """What a statement says that follows from no model directory: the root of a run (ANSWERS
    4.5)."""
    return [name for name in ("run",) if getattr(statement, name) is not None]
