"""What a receipt says by itself, and where that contradicts itself (ANSWERS 6).

No weight and no program is needed: a receipt, the request and the tokens that it binds are enough.
So such a receipt convicts its signer without a game.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import LENGTH, STOP, Receipt
from tallystick.answers.request import Request
from tallystick.answers.statement import ModelStatement


@dataclass(frozen=True)
class Said:
    """A sentence about an answer, and the clause of ANSWERS that it rests on."""

    clause: str
    sentence: str


def stop_set(statement: ModelStatement, request: Request) -> frozenset[int]:
    """The tokens that end an answer: the model's and the request's (ANSWERS 6.1)."""
    return frozenset((*statement.stop, *request.settings.stop))


def most_tokens(statement: ModelStatement, request: Request, prompt: int) -> int:
    """The most tokens of an answer to a prompt of so many: what the request asks for, as far as the
    model has a bucket (ANSWERS 6.5)."""
    settings = request.settings
    return min(settings.max_tokens, statement.most(prompt, settings.set))


def contradictions(receipt: Receipt, answer: AnswerJob) -> tuple[Said, ...]:
    """Every way in which `receipt` contradicts the request and the tokens that it binds. The caller
    has compared model, request and job digests."""
    return tuple(Said(clause, sentence) for clause, sentence in _found(receipt, answer))


def _found(receipt: Receipt, answer: AnswerJob) -> Iterator[tuple[str, str]]:
    statement, request, spoken = answer.statement, answer.request, answer.spoken
    prompt, tokens = len(spoken.prompt), len(spoken.tokens)
    if request.model != receipt.model:
        yield "6.2", "The request asks for another model than the receipt names."
    if receipt.choice >= request.choices:
        yield "6.2", f"The receipt is of choice {receipt.choice}, of {request.choices} asked for."
    if request.tokens is not None and request.tokens != spoken.prompt:
        yield "6.2", "The request has other prompt tokens than the job."
    if (receipt.prompt, receipt.answer) != (prompt, tokens):
        yield "6.2", (
            f"The receipt counts {receipt.prompt} + {receipt.answer} tokens, the job has "
            f"{prompt} + {tokens}."
        )
    for place, token in enumerate((*spoken.prompt, *spoken.tokens)):
        if not 0 <= token < statement.vocabulary:
            yield "6.3", f"Token {token} at place {place} is outside of the vocabulary."
            break
    yield from _finish(receipt, answer)


def _finish(receipt: Receipt, answer: AnswerJob) -> Iterator[tuple[str, str]]:
    statement, request, spoken = answer.statement, answer.request, answer.spoken
    stops, last = stop_set(statement, request), len(spoken.tokens) - 1
    early = next((n for n, t in enumerate(spoken.tokens[:last]) if t in stops), None)
    if early is not None:
        yield "6.4", (
            f"The answer goes on after token {spoken.tokens[early]} at its place {early}, which "
            "ends it."
        )
    ended = spoken.tokens[last] in stops
    if receipt.finish == STOP and not ended and not request.stop_strings:
        yield "6.4", "The receipt says `stop`, and the last token is not in the stop set."
    if receipt.finish != STOP and ended:
        yield "6.4", f"The receipt says `{receipt.finish}`, and the last token is in the stop set."
    most = most_tokens(statement, request, len(spoken.prompt))
    if len(spoken.tokens) > request.settings.max_tokens:
        yield "6.5", (
            f"The answer has {len(spoken.tokens)} tokens; the request asks for at most "
            f"{request.settings.max_tokens}."
        )
    if receipt.finish == LENGTH and len(spoken.tokens) < most:
        yield "6.5", (
            f"The receipt says `length` after {len(spoken.tokens)} tokens; there were {most} to "
            "say."
        )
