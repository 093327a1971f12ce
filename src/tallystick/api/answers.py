"""Answers of a model that anyone can check: `generate`, `check` (ANSWERS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tallystick.answers.check import AnswerReport, check_answer, check_words
from tallystick.answers.compared import check_program_of, check_vocabulary
from tallystick.answers.files import RECEIPT, AnswerFiles, read_statement
from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import Settings
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.request import Message, ModelRequest, new_nonce, new_secret
from tallystick.answers.text import ModelWords, findings
from tallystick.answers.words import Said
from tallystick.api import given
from tallystick.api.answering import DAYS, Answering, GivenAnswer, Heard
from tallystick.api.given import PathLike
from tallystick.api.speculating import Speculation, speculation_of
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.find import context_on
from tallystick.disk.regular import present
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError


def generate(
    model: PathLike | Answering,
    *,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    tokens: Sequence[int] | None = None,
    key: PrivateKey | PathLike | None = None,
    out: PathLike | None = None,
    statement: PathLike | None = None,
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
) -> list[GivenAnswer]:
    """Answer a request with the model in a directory, each answer with a signed receipt.

    `model` is a transformers directory, or an `Answering` that has been opened. Exactly one of
    `prompt` (a text), `messages` (each with `role` and `content`, for the model's chat template)
    and `tokens` (token ids) is given. `statement` is the directory of `tallystick model statement`;
    by default MODEL.statement beside the model. `key` signs; without one, a key that is made for
    this call and thrown away, which answers no dispute later.

    The defaults are greedy decoding. `bias` has numbers to add to logits, by token. An answer ends
    with a token of the model's stop set or of `stop`, or when its text has one of `stop_strings`.
    Without a `seed` the client's nonce gives one (ANSWERS 5.5). `choices` answers are drawn, each
    with a seed of its own. `date` is what the chat template reads as today (YYYY-MM-DD). Disputes
    are answered for `days`. `heard` gets the number of an answer and its text so far.

    `speculate` (`lookup` or `lookup:K`) proposes up to K tokens that followed the last ones earlier
    in the text, `draft` those that the smaller model in this directory would say. A pass may draw
    several tokens then; the answer is the same to the last bit. An `Answering` has its own way.

    The answers are written to `out`, or to `out`/0, `out`/1, … where there are several. Raises
    UsageError for a request that can never be answered and where `out` is taken, RefusedModelError,
    DigestMismatchError where the statement is another model's, StorageError.
    """
    way = speculation_of(speculate, None if draft is None else given.path(draft))
    places = [] if out is None else _free(given.path(out), choices)
    opened = model if isinstance(model, Answering) else _opened(model, statement, threads, way)
    settings = Settings(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition=repetition,
        presence=presence,
        frequency=frequency,
        bias=tuple(sorted((bias or {}).items())),
        seed=seed or 0,
        max_tokens=max_tokens,
        stop=tuple(sorted(set(stop))),
    )
    request = ModelRequest(
        opened.statement.digest,
        settings,
        tokens=None if tokens is None else tuple(tokens),
        text=prompt,
        messages=None if messages is None else tuple(messages),
        nonce=new_nonce() if seed is None else None,
        date=date,
        stop_strings=tuple(stop_strings),
        choices=choices,
        secret=new_secret(),
    )
    signing = given.private(key) or PrivateKey.generate()
    answers = opened.answer(request, signing, days, heard)
    for place, answer in zip(places, answers, strict=False):  # none without `out`
        answer.save(place)
    return answers


def _free(out: Path, choices: int) -> list[Path]:
    """The directories of the answers. UsageError, before anything is computed, where one is there
    already: a receipt is not written over."""
    places = [out] if choices == 1 else [out / str(number) for number in range(choices)]
    for place in places:
        if present(place / RECEIPT):
            raise UsageError(f"{place} already holds an answer.", "Choose another directory.")
    return places


def _opened(
    model: PathLike,
    statement: PathLike | None,
    threads: int | None,
    speculation: Speculation | None,
) -> Answering:
    place = None if statement is None else given.path(statement)
    return Answering(given.path(model), place, threads, speculation=speculation)


def check(
    receipt: PathLike | GivenAnswer,
    model: PathLike,
    *,
    statement: PathLike | None = None,
    text: bool = False,
    trust: Sequence[PublicKey | PathLike] | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> AnswerReport:
    """Check an answer by one prefill: everything that its receipt states, to the last bit.

    `receipt` is an answer's directory, the receipt in one, or a `GivenAnswer`. `model` is your own
    copy of the model's directory. From it vocabulary, stop tokens and the answer's program are
    derived again, and a statement that names others is refused. With `statement`, your own
    statement of the model, an answer of any other model is refused; yours is believed then, and
    nothing is derived again. Chat template, prompt tokens and text are compared by the model's
    files, where no contradiction is found before. With `text` that is all, beside signatures,
    digests and the receipt's words: no weight is read. `trust` are the signers that you know.

    The report's `accepted` is true if nothing contradicts the receipt; its `contradictions`,
    `difference` and `findings` say what does. A dispute over a difference begins with
    `tallystick answer-run`.

    Raises DigestMismatchError where the files are not those that the receipt names, or weights or
    program not those of the statement, SignatureInvalidError, CorruptFileError for malformed files,
    StorageError, CannotCheckError.
    """
    if isinstance(receipt, GivenAnswer):
        files = receipt.files
    else:
        files = AnswerFiles.read(given.path(receipt))
    own = None if statement is None else read_statement(given.path(statement))
    if own is not None and own.digest != files.statement.digest:
        raise DigestMismatchError(
            "The answer is of another model than your statement.", "Refuse it."
        )
    signed, answer, program = files.bound(given.publics(trust))
    opened = open_model(given.path(model))
    if own is None:
        check_vocabulary(opened, answer.statement)
    if text:
        report = check_words(signed, answer)
    else:
        if own is None:
            check_program_of(opened, answer.statement, answer.program_name)
        context = context_on(device, lambda: answer.statement.contract, threads)
        report = check_answer(signed, answer, program, weights(opened), context)
        if own is not None:
            sentence = "The program is that of your own statement, and was not derived again."
            report = _noted(report, Said("8.5", sentence))
    return report if report.contradictions else _with_texts(report, answer, opened, needed=text)


def _with_texts(
    report: AnswerReport, answer: AnswerJob, model: Model, needed: bool
) -> AnswerReport:
    """The report with what 8.6 finds. Where this machine or the model has nothing to compare with,
    that is a note; CannotCheckError if nothing else was asked for (`needed`)."""
    spoken = answer.spoken
    try:
        words = ModelWords.of(answer.statement, model.files, model.chat_template)
        found = findings(words, answer.statement, answer.request, spoken, report.receipt)
    except CannotCheckError as error:
        if needed:
            raise
        return _noted(report, Said("8.6", f"Prompt and text were not compared. {error.message}"))
    return replace(report, findings=(*report.findings, *found), texts=True)


def _noted(report: AnswerReport, note: Said) -> AnswerReport:
    return replace(report, notes=(*report.notes, note))
