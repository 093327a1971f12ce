"""What a receipt says by itself, and where that contradicts itself (ANSWERS 6).

No weight and no program is needed: a receipt, the request and the tokens that it binds are enough.
So such a receipt convicts its signer without a game.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.answers.encoding_job import EncodingJob
from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import ENCODINGS
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP, AnswerReceipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement
from tallystick.commit.checkpoint import run_root

# The two kinds of job that a receipt may be of.
AnyJob = AnswerJob | EncodingJob


@dataclass(frozen=True)
class Said:
    """A sentence about an answer, and the clause of ANSWERS that it rests on."""

    clause: str
    sentence: str


def stop_set(statement: ModelStatement, request: ModelRequest) -> frozenset[int]:
    """The tokens that end an answer: the model's and the request's (ANSWERS 6.1)."""
    return frozenset((*statement.stop, *request.settings.stop))


def most_tokens(statement: ModelStatement, request: ModelRequest, prompt: int) -> int:
    """The most tokens of an answer to a prompt of `prompt` tokens: what the request asks for, as
    far as the model has a bucket (ANSWERS 6.5)."""
    settings = request.settings
    return min(settings.max_tokens, statement.most(prompt, settings.set))


def contradictions(receipt: AnswerReceipt, answer: AnyJob) -> tuple[Said, ...]:
    """Every way in which `receipt` contradicts the request and the tokens that it binds. The caller
    has compared model, request and job digests."""
    if isinstance(answer, EncodingJob):
        own = _of_output(receipt, answer)
        counts = len(answer.encoded.prompt), len(answer.encoded.values)
    else:
        own = _of_finish(receipt, answer)
        counts = len(answer.spoken.prompt), len(answer.spoken.tokens)
    return (*_of_request(receipt, answer, *counts), *own, *_of_run(receipt, answer))


def _of_request(receipt: AnswerReceipt, answer: AnyJob, prompt: int, tokens: int) -> Iterator[Said]:
    statement, request = answer.statement, answer.request
    if request.model != receipt.model:
        yield Said("6.2", "The request asks for another model than the receipt names.")
    if receipt.choice >= request.choices:
        choice = f"The receipt is of choice {receipt.choice}"
        yield Said("6.2", f"{choice}, and the request asks for {request.choices}.")
    if request.tokens is not None and request.tokens != answer.text[:prompt]:
        yield Said("6.2", "The request has other prompt tokens than the job.")
    if (receipt.prompt, receipt.answer) != (prompt, tokens):
        what = "values" if isinstance(answer, EncodingJob) else "tokens"
        counts = f"The receipt counts {receipt.prompt} + {receipt.answer} {what}"
        yield Said("6.2", f"{counts}, the job has {prompt} + {tokens}.")
    for place, token in enumerate(answer.text):
        if not 0 <= token < statement.vocabulary:
            yield Said("6.3", f"Token {token} at place {place} is outside of the vocabulary.")
            break


def _of_run(receipt: AnswerReceipt, answer: AnyJob) -> Iterator[Said]:
    checkpoints = [(0, answer.commitment.genesis_root), (1, receipt.state)]
    if run_root(receipt.job, checkpoints) != receipt.root:
        yield Said("6.2", "The receipt's run root is not that of its job and its final state.")


def _of_output(receipt: AnswerReceipt, answer: EncodingJob) -> Iterator[Said]:
    asked, given = answer.request.output, answer.statement.encodes
    if receipt.finish != asked:
        yield Said("11.8", f"The receipt says `{receipt.finish}`, and the request asks `{asked}`.")
    if given != asked:
        yield Said("11.8", f"The request asks `{asked}`, and the model gives `{given}`.")


def _of_finish(receipt: AnswerReceipt, answer: AnswerJob) -> Iterator[Said]:
    request, tokens, finish = answer.request, answer.spoken.tokens, receipt.finish
    stops = stop_set(answer.statement, request)
    early = next((n for n, token in enumerate(tokens[:-1]) if token in stops), None)
    if early is not None:
        yield Said("6.4", f"The answer goes on after its token {early}, which ends it.")
    if finish in ENCODINGS:
        yield Said("6.1", f"The receipt of an answer says `{finish}`, as one of an encoding does.")
    ended = tokens[-1] in stops
    if finish == STOP and not ended and not request.stop_strings:
        yield Said("6.4", "The receipt says `stop`, and the last token is not in the stop set.")
    if finish != STOP and ended:
        yield Said("6.4", f"The receipt says `{finish}`, and the last token is in the stop set.")
    if len(tokens) > request.settings.max_tokens:
        most = request.settings.max_tokens
        yield Said("6.5", f"The answer has {len(tokens)} tokens, the request asks for {most}.")
    most = most_tokens(answer.statement, request, len(answer.spoken.prompt))
    if finish == LENGTH and len(tokens) < most:
        yield Said("6.5", f"The receipt says `length` after {len(tokens)} of {most} tokens.")
    if finish == CANCELLED and len(tokens) >= most and not ended:
        yield Said("6.5", f"The receipt says `cancelled` after all {most} tokens that can be.")
