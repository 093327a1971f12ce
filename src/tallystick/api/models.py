"""A model's statement made and derived again; the run of an answer (ANSWERS 4, 7.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.answers.derive import derive
from tallystick.answers.files import AnswerFiles, read_statement, write_statement
from tallystick.answers.job import check_weights
from tallystick.answers.layout import Bucket
from tallystick.answers.model import open_model, weights
from tallystick.answers.receipt import AnswerReceipt
from tallystick.answers.statement import ModelStatement
from tallystick.api.answering import statement_place
from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import ExecutionContext
from tallystick.disk.files import new_directory, remove_tree
from tallystick.errors import UsageError
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore

Tell = Callable[[str], None] | None
Compared = tuple[Mapping[Any, object], Mapping[Any, object]]


def bucket_of(text: str) -> Bucket:
    """A bucket as a person writes it, L:A. Raises UsageError."""
    length, colon, answer = text.partition(":")
    if not colon or not (length.isdecimal() and answer.isdecimal()) or len(text) > 20:
        raise UsageError(f"{text[:40]!r} is not a bucket.", "Write L:A, as 256:64.")
    return Bucket(int(length), int(answer))


def make_statement(
    directory: Path,
    place: Path | None,
    buckets: Sequence[str],
    contract: str,
    run: Path | None,
    overwrite: bool,
    tell: Tell,
) -> tuple[ModelStatement, Path]:
    """Write a model's statement and programs to `place`; the statement, and where it is.

    Raises UsageError for a malformed bucket and where there is a statement already,
    RefusedModelError, and as `read_claim` for a `run` whose root is to stand in it.
    """
    if not buckets:
        raise UsageError("A model statement needs a bucket.", "Give --bucket L:A, as 256:64.")
    sizes, model = [bucket_of(text) for text in buckets], open_model(directory)
    target = statement_place(directory) if place is None else place
    made, programs = derive(
        model,
        sizes,
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


def _telling(tell: Tell) -> Callable[[Bucket], None]:
    if tell is None:
        return lambda _: None
    return lambda bucket: tell(f"capturing {bucket.length}:{bucket.answer}")


def verify_statement(place: Path, directory: Path, tell: Tell) -> tuple[ModelStatement, list[str]]:
    """The statement at `place`, and what of it differs from the one that the model's directory
    gives again. Only the sets that it states are compared, and none of what `unproved` names."""
    stated = read_statement(place)
    sizes = sorted({(name.length, name.answer) for name in stated.programs})
    buckets = [Bucket(length, answer) for length, answer in sizes]
    made, _ = derive(open_model(directory), buckets, stated.contract, each=_telling(tell))
    compared = ("contract", "vocabulary", "files", "template", "special", "stop")
    differing = [name for name in compared if getattr(made, name) != getattr(stated, name)]
    programs = {name: made.programs.get(name) for name in stated.programs}
    slots: Compared = (made.weights, stated.weights)
    for name, (own, theirs) in {"weights": slots, "programs": (programs, stated.programs)}.items():
        odd = sorted(str(k) for k in {*own, *theirs} if own.get(k) != theirs.get(k))
        differing += [f"{name}: {len(odd)} of {len(theirs)}, first {odd[0]}"] if odd else []
    return stated, differing


def unproved(statement: ModelStatement) -> list[str]:
    """What a statement says that follows from no model directory: an adapter, the root of a run
    (ANSWERS 4.5)."""
    return [name for name in ("adapter", "run") if getattr(statement, name) is not None]


@dataclass(frozen=True)
class AnswerRun:
    """The run of an answer's job: its root, and the receipt's. `defends` says that the receipt's
    own key signed it."""

    receipt: AnswerReceipt
    root: bytes
    defends: bool

    @property
    def same(self) -> bool:
        return self.root == self.receipt.root


def answer_run_of(
    place: Path,
    directory: Path,
    out: Path,
    key: PrivateKey | None,
    overwrite: bool = False,
    threads: int | None = None,
) -> AnswerRun:
    """Execute the job of the receipt at `place` into the run directory `out` (ANSWERS 7.6).

    Raises as `check`, and as `train`.
    """
    signed, answer, program = AnswerFiles.read(place).bound()
    held = weights(open_model(directory))
    check_weights(answer.statement, held)
    answer.check_program(program)
    beside = new_directory(f".{out.name}.job-", out.absolute().parent)
    try:
        job = answer.write(beside / "job", program, held, overwrite=False)
        options = Options(ExecutionContext(threads), key=key, overwrite=overwrite)
        made = train_job(job, out, options)
    finally:
        remove_tree(beside)
    assert made.run_root is not None
    defends = key is not None and key.public == signed.receipt.signer
    return AnswerRun(signed.receipt, made.run_root, defends)
