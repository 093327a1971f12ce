"""Answers of a model that anyone can check: `generate`, `check` (ANSWERS); and the run of an
answer, for a dispute about it (7.6).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.answers.cancellation import cancellation_of
from tallystick.answers.check import AnswerReport
from tallystick.answers.derive import check_adapter, stated_model
from tallystick.answers.files import AnswerFiles, free_places
from tallystick.answers.job import check_weights
from tallystick.answers.model import weights
from tallystick.answers.receipt import AnswerReceipt
from tallystick.answers.request import Message, ModelRequest
from tallystick.api import given
from tallystick.api.answering import DAYS, Answering, GivenAnswer, Heard
from tallystick.api.checking import AnswerChecks
from tallystick.api.encoding import GivenEncoding
from tallystick.api.given import PathLike
from tallystick.api.requests import client_request, free_file, request_of
from tallystick.api.requests import request as new_request
from tallystick.api.speculating import Speculation, speculation_of
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.context import ExecutionContext
from tallystick.disk.files import new_directory, remove_tree, write_file
from tallystick.disk.regular import os_errors, read_file
from tallystick.errors import DigestMismatchError, UsageError
from tallystick.job.job import STATE0
from tallystick.limits import LIMITS
from tallystick.run.execute.trainer import Options, train_job


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
    adapter: Path | None = None,
) -> AnswerRun:
    """Execute the job of the receipt at `place` into the run directory `out` (ANSWERS 7.6).

    The directory has the weights twice: in state[0], and in the state at the end.
    Raises as `check`, and as `train`.
    """
    signed, answer, program = AnswerFiles.read(place).bound()
    model = stated_model(directory, adapter, answer.statement)
    check_adapter(model, answer.statement)
    held = weights(model)
    check_weights(answer.statement, held)
    answer.check_program(program)
    beside = new_directory(f".{out.name}.job-", out.absolute().parent)
    try:
        job = answer.write(beside / "job", program, held, overwrite=False)
        # The run gets a second name of the weights, and not a copy (disk.files.share_or_copy).
        with os_errors(job.directory):
            os.chmod(job.directory / STATE0, 0o444)
        options = Options(ExecutionContext(threads), key=key, overwrite=overwrite)
        made = train_job(job, out, options)
    finally:
        remove_tree(beside)
    assert made.run_root is not None
    defends = key is not None and key.public == signed.receipt.signer
    return AnswerRun(signed.receipt, made.run_root, defends)


def generate(
    model: PathLike | Answering,
    *,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    tokens: Sequence[int] | None = None,
    key: PrivateKey | PathLike | None = None,
    out: PathLike | None = None,
    statement: PathLike | None = None,
    adapter: PathLike | None = None,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    bias: Mapping[int, float] | None = None,
    stop: Sequence[int] = (),
    stop_strings: Sequence[str] = (),
    seed: int | None = None,
    choices: int = 1,
    date: str | None = None,
    days: int = DAYS,
    threads: int | None = None,
    speculate: str | None = None,
    draft: PathLike | None = None,
    heard: Heard | None = None,
    request: ModelRequest | PathLike | None = None,
    cancelled: Sequence[PathLike | bytes] = (),
) -> list[GivenAnswer]:
    """Answer a request with the model in a directory, each answer with a signed receipt.

    `model` is a transformers directory, or an `Answering` that has been opened. Exactly one of
    `prompt` (a text), `messages` (each with `role` and `content`, for the model's chat template)
    and `tokens` (token ids) is given. `statement` is the directory of `tallystick model statement`;
    by default MODEL.statement beside the model, or ADAPTER.statement beside the directory of an
    `adapter` of peft. `key` signs; without one, a key that is made for this call and thrown away,
    which answers no dispute later.

    The defaults are greedy decoding. `bias` has numbers to add to logits, by token. An answer ends
    with a token of the model's stop set or of `stop`, or when its text has one of `stop_strings`.
    Without a `seed` the client's nonce gives one (ANSWERS 5.5). `choices` answers are drawn, each
    with a seed of its own. `date` is what the chat template reads as today (YYYY-MM-DD). Disputes
    are answered for `days`. `heard` gets the number of an answer and its text so far.

    `speculate` (`lookup` or `lookup:K`) proposes up to K tokens that followed the last ones earlier
    in the text, `draft` those that the smaller model in this directory would say. A pass may draw
    several tokens then; the answer is the same to the last bit. An opened `Answering` has its own
    adapter and its own way, and neither is given beside it.

    `request` is the file of a client's own request (`request`), or the request itself. It says all
    that is asked for, and nothing can be said beside it. `cancelled` are cancellations by its
    client (`cancel`), files or bytes: each ends an answer after the tokens that it says.

    The answers are written to `out`, or to `out`/0, `out`/1, … where there are several. Raises
    UsageError for a request that can never be answered and where `out` is taken, RefusedModelError,
    DigestMismatchError where the statement is another model's, StorageError, CorruptFileError and
    SignatureInvalidError for a damaged request or cancellation.
    """
    if isinstance(model, Answering) and not (adapter is speculate is draft is None):
        raise UsageError(
            "The model is already open, so its adapter and speculation cannot be changed.",
            "Name them where you open the model.",
        )
    way = speculation_of(speculate, None if draft is None else given.path(draft))
    asked: dict[str, Any] = {
        "prompt": prompt,
        "messages": messages,
        "tokens": tokens,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition": repetition,
        "presence": presence,
        "frequency": frequency,
        "bias": bias or None,
        "stop": tuple(stop),
        "stop_strings": tuple(stop_strings),
        "seed": seed,
        "choices": choices,
        "date": date,
    }
    theirs = None if request is None else client_request(request, asked)
    places = (
        [] if out is None else free_places(given.path(out), theirs.choices if theirs else choices)
    )
    opened = (
        model if isinstance(model, Answering) else _opened(model, statement, adapter, threads, way)
    )
    wanted = theirs or new_request(opened.statement, **asked)
    ends = cancellations_of(wanted, cancelled)
    signing = given.private(key) or PrivateKey.generate()
    answers = opened.answer(wanted, signing, days, heard, ends)
    for place, answer in zip(places, answers, strict=False):  # none without `out`
        answer.save(place)
    return answers


def cancellations_of(
    request: ModelRequest, cancelled: Sequence[PathLike | bytes]
) -> dict[int, tuple[int, bytes]]:
    """After how many tokens the client has ended an answer, and its word for that, by choice.

    Raises SignatureInvalidError and CorruptFileError for what is no cancellation of the request's
    client, StorageError."""
    found: dict[int, tuple[int, bytes]] = {}
    for one in cancelled:
        data = one
        if not isinstance(data, bytes):
            data = read_file(given.path(data), LIMITS.cancellation_bytes, "cancellation")
        said = cancellation_of(data, request)
        # Of several for one answer, the first token that the client did not want.
        if said.choice not in found or said.answer < found[said.choice][0]:
            found[said.choice] = said.answer, data
    return found


def _opened(
    model: PathLike,
    statement: PathLike | None,
    adapter: PathLike | None,
    threads: int | None,
    speculation: Speculation | None,
) -> Answering:
    place, beside = (None if name is None else given.path(name) for name in (statement, adapter))
    return Answering(given.path(model), place, threads, beside, speculation=speculation)


def check(
    receipt: PathLike | GivenAnswer | GivenEncoding,
    model: PathLike,
    *,
    statement: PathLike | None = None,
    adapter: PathLike | None = None,
    text: bool = False,
    trust: Sequence[PublicKey | PathLike] | None = None,
    threads: int | None = None,
    device: str = "cpu",
    request: ModelRequest | PathLike | None = None,
    evidence: PathLike | None = None,
) -> AnswerReport:
    """Check an answer by one prefill, or an encoding by one execution: everything that its receipt
    states, to the last bit.

    `receipt` is an answer's directory, the receipt in one, a `GivenAnswer` or a `GivenEncoding`.
    `model` is your own copy of the model's directory, `adapter` that of the adapter's, where the
    statement names one.
    From them vocabulary, stop tokens and the answer's program are derived again, and a statement
    that names others, or another adapter, is refused. With `statement`, your own
    statement of the model, an answer of any other model is refused; yours is believed then, and
    nothing is derived again. Chat template, prompt tokens and text are compared by the model's
    files, where no contradiction is found before. With `text` that is all, beside signatures,
    digests and the receipt's words: no weight is read. `trust` are the signers that you know. With
    `request`, your own request or its file, an answer to any other is refused.

    A receipt of a run that says other tokens than its text (ANSWERS 6.7) convicts its signer.
    `evidence` is a file to write then: with it anyone sees that, without the model
    (`check_conviction`). Nothing is written otherwise.

    The report's `accepted` is true if nothing contradicts the receipt; its `contradictions`,
    `difference` and `findings` say what does. A dispute over a difference begins with
    `tallystick answer-run`.

    Raises DigestMismatchError where the files are not those that the receipt names, or weights or
    program not those of the statement, SignatureInvalidError, CorruptFileError for malformed files,
    StorageError, CannotCheckError.
    """
    target = None if evidence is None else free_file(given.path(evidence), "evidence")
    if isinstance(receipt, (GivenAnswer, GivenEncoding)):
        files = receipt.files
    else:
        files = AnswerFiles.read(given.path(receipt))
    if request is not None and request_of(request).digest != files.request.digest:
        raise DigestMismatchError(
            "The answer is to another request than yours.", "Reject the answer."
        )
    own = None if statement is None else given.path(statement)
    beside = None if adapter is None else given.path(adapter)
    checks = AnswerChecks(given.path(model), own, given.publics(trust), threads, device, beside)
    report = checks.words(files) if text else checks.report(files)
    if target is not None and report.convicting is not None:
        write_file(target, [report.convicting.to_bytes()])
    return report
