"""Checking an answer that a server has streamed, and saying what of it was checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.answers.check import bound, check_words
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob, checked_program
from tallystick.answers.receipt import CANCELLED, AnswerReceipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.text import findings
from tallystick.api.answering import GivenAnswer
from tallystick.api.answers import check
from tallystick.commit.signing import PublicKey
from tallystick.errors import CannotCheckError, CorruptFileError
from tallystick.serving.chat_client import ChatClient
from tallystick.serving.question import Received
from tallystick.serving.spelling import shown


@dataclass
class ReceivedReport:
    """What was compared (`checked`), what was not (`unchecked`), and what is `wrong`: sentences."""

    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    files: AnswerFiles | None = None
    finish: str = ""

    @property
    def accepted(self) -> bool:
        return not self.wrong


def check_received(
    client: ChatClient,
    got: Received,
    trust: Sequence[PublicKey] | None,
    model: Path | None,
    threads: int | None,
    adapter: Path | None = None,
) -> ReceivedReport:
    """Check the answer `got` to a request of the client's own: signatures, digests, words and text;
    with the client's own copy of the `model`, and of its `adapter` if it has one, the computation
    too.

    Raises DigestMismatchError where the receipt is not one of this request and these tokens,
    SignatureInvalidError, CorruptFileError.
    """
    report = ReceivedReport()
    signed, answer = bound(got.receipt, client.statement, got.request, got.spoken, trust)
    known = "" if signed.trusted else ", a key that you have not named as trusted"
    if not isinstance(answer, AnswerJob):  # it was asked for tokens
        raise CorruptFileError("The receipt does not belong to an answer.", "Reject it.")
    report.checked.append(f"signature: of {signed.receipt.signer.key_id[:16]}{known}")
    report.checked.append(f"request: {_asked(got.request)}, by their digest")
    report.finish = signed.receipt.finish
    words = check_words(signed, answer, got.cancellation)
    report.wrong += [one.sentence for one in (*words.contradictions, *words.findings)]
    report.unchecked += [one.sentence for one in words.notes]
    _check_cancellation(got, signed.receipt, report)
    if got.shown != shown(got.spoken.text, got.request.stop_strings):
        report.wrong.append("The text that was shown is not the one beside the receipt.")
    _check_text(client, answer, signed.receipt, report)
    program = client.program(answer.program_name)
    report.files = AnswerFiles(
        got.receipt, client.statement, got.request, got.spoken, program, got.cancellation
    )
    if model is None:
        report.unchecked.append("computation: name your copy of the model, --model DIR")
    else:
        _check_computation(report, answer, model, trust, threads, adapter)
    return report


def _asked(request: ModelRequest) -> str:
    kinds = {"messages": request.messages, "text": request.text, "tokens": request.tokens}
    what = next(name for name, given in kinds.items() if given is not None)
    return f"your {what}, settings, {'seed' if request.nonce is None else 'nonce'} and secret"


def _check_cancellation(got: Received, receipt: AnswerReceipt, report: ReceivedReport) -> None:
    """What became of the client's word (ANSWERS 6.6). A check of the words has verified the file
    that stands beside the receipt."""
    if receipt.finish == CANCELLED and got.cancellation is None:
        report.wrong.append("The receipt says that you have cancelled, and shows no word of yours.")
    elif receipt.finish == CANCELLED:
        said = f"cancellation: after {receipt.answer} tokens, with the signature of your request's"
        report.checked.append(f"{said} client")
    elif got.refusal is not None:
        report.unchecked.append(f"cancellation: {got.refusal}")
    elif got.ended_after is not None and not got.taken:
        report.unchecked.append("cancellation: the server has not answered it")
    elif got.ended_after is not None and receipt.answer > got.ended_after:
        said = f"The server has taken your cancellation after {got.ended_after} tokens, and its "
        report.wrong.append(f"{said}answer has {receipt.answer}.")
    elif got.ended_after is not None:
        report.unchecked.append("cancellation: the answer had ended by itself")


def _check_text(
    client: ChatClient, answer: AnswerJob, receipt: AnswerReceipt, report: ReceivedReport
) -> None:
    """By the files that the statement names; the server has them too, and their digests tell."""
    try:
        words = client.words
    except CannotCheckError as error:
        report.unchecked.append(f"text: {error.message}")
        return
    found = findings(words, answer.statement, answer.request, answer.spoken, receipt)
    report.wrong += [one.sentence for one in found]
    if not found:
        report.checked.append("text: prompt and answer, by the model's tokenizer and template")


def _check_computation(
    report: ReceivedReport,
    answer: AnswerJob,
    model: Path,
    trust: Sequence[PublicKey] | None,
    threads: int | None,
    adapter: Path | None,
) -> None:
    files, spoken = report.files, answer.spoken
    assert files is not None
    program = checked_program(files.program, answer.program_digest)
    given = GivenAnswer(
        spoken.text, spoken.tokens, spoken.logprobs, "", files.receipt, answer, program,
        files.cancellation,
    )  # fmt: skip
    believed = None if trust is None else list(trust)
    found = check(given, model, trust=believed, threads=threads, adapter=adapter)
    report.wrong += [one.sentence for one in found.findings if one.sentence not in report.wrong]
    if found.state_differs:
        sentence = found.difference.sentence if found.difference else "The signed state is another."
        report.wrong.append(sentence)
    elif found.executed:
        tokens = found.receipt.answer
        report.checked.append(f"computation: {tokens} tokens and log-probabilities, bit for bit")
