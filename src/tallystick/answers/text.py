"""Messages, tokens and text of an answer, without weights (ANSWERS 5.6, 8.6).

A game begins at tokens. What becomes tokens before it, and text after it, is checked here by the
files that the model statement names. A difference is a finding: no game decides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.encoding_job import AnyRequest, EncodingJob
from tallystick.answers.receipt import STOP, AnswerReceipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.special import TOKENIZER, model_tokenizer, special_tokens
from tallystick.answers.statement import ModelStatement
from tallystick.answers.template import Template
from tallystick.answers.words import Said, stop_set
from tallystick.commit.encoding import sha256
from tallystick.data.sources.tokenizer import TokenizerFile
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError


@dataclass(frozen=True)
class ModelWords:
    """The tokenizer and the chat template of a model, whose files are those of its statement."""

    tokenizer: TokenizerFile
    template_text: str | None
    special: Mapping[str, str]

    @staticmethod
    def of(
        statement: ModelStatement,
        files: Mapping[str, bytes],
        template: str | None,
        renders: bool = True,
    ) -> ModelWords:
        """The template's process is started at once, unless messages are perhaps never rendered
        (`renders`).

        Raises DigestMismatchError for files that are not the statement's; CannotCheckError for a
        model without a tokenizer.json, or without a package that reads it; as `Template`."""
        digests = {name: sha256(data) for name, data in files.items()}
        if digests != dict(statement.files):
            odd = min(n for n in {*digests, *statement.files} if _differs(n, digests, statement))
            raise DigestMismatchError(
                f"The tokenizer's files here are not those of the model statement: {odd[:80]!r}.",
                "Name the directory of the model that the statement is about.",
            )
        if (None if template is None else sha256(template.encode("utf-8"))) != statement.template:
            raise DigestMismatchError(
                "The chat template here is not that of the model statement.",
                "Name the directory of the model that the statement is about.",
            )
        tokenizer = model_tokenizer(files)
        if tokenizer is None:
            raise CannotCheckError(
                f"The model has no {TOKENIZER}.", "Give its answers, and check them, by tokens."
            )
        # By these the template gets words of its own (5.6): no other ones than the files have.
        if special_tokens(files, tokenizer) != dict(statement.special):
            raise DigestMismatchError(
                "The special tokens of the model statement are not those of the tokenizer's files.",
                "Reject the statement. Nobody can derive it from these files.",
            )
        special = {name: token.text for name, token in statement.special.items()}
        words = ModelWords(tokenizer, template, special)
        if renders:
            _ = words.template
        return words

    @cached_property
    def template(self) -> Template | None:
        """The chat template, in a process of its own. Raises as `Template`."""
        return None if self.template_text is None else Template(self.template_text)

    def prompt(self, request: AnyRequest) -> tuple[int, ...]:
        """The prompt tokens of a request (ANSWERS 5.6). Raises UsageError for messages without a
        template, or that it refuses, and for a text without tokens; as `Template`."""
        if request.tokens is not None:
            return request.tokens
        whole, text = request.text is not None, request.text
        if text is None:
            assert isinstance(request, ModelRequest)
            if self.template is None:
                raise UsageError("The model has no chat template.", "Send a prompt or tokens.")
            messages = [dict(message) for message in request.messages or ()]
            text = self.template.render([*messages], self.special, request.date)
        found = self.tokenizer.encode(text.encode("utf-8"), "the prompt", whole)
        if not found.size:
            raise UsageError("The prompt has no tokens.", "Use a longer prompt.")
        return tuple(found.tolist())

    def text(self, statement: ModelStatement, request: ModelRequest, spoken: Spoken) -> str:
        """The text of an answer: of all its tokens, but for a last one that ends it (5.7)."""
        tokens = spoken.tokens
        if tokens[-1] in stop_set(statement, request):
            tokens = tokens[:-1]
        return self.tokenizer.decode(tokens)


def findings(
    words: ModelWords,
    statement: ModelStatement,
    request: ModelRequest,
    spoken: Spoken,
    receipt: AnswerReceipt,
) -> tuple[Said, ...]:
    """Where messages, prompt tokens, answer tokens, text and stop strings do not fit together."""
    return tuple(
        Said("8.6", sentence) for sentence in _found(words, statement, request, spoken, receipt)
    )


def findings_of_encoding(
    words: ModelWords, labels: Sequence[str], answer: EncodingJob
) -> tuple[Said, ...]:
    """Where the tokens are not those of the text, and the names of classes not the model's
    `labels` (ANSWERS 11.9)."""
    encoded = answer.encoded
    found = list(_other_prompt(words, answer.request, encoded.prompt))
    if encoded.labels != tuple(labels):
        found.append("The names of the classes are not those of the model's config.")
    return tuple(Said("8.6", sentence) for sentence in found)


def _other_prompt(words: ModelWords, request: AnyRequest, told: tuple[int, ...]) -> Iterator[str]:
    try:
        prompt = words.prompt(request)
    except UsageError as error:
        yield error.message
        return
    if prompt != told:
        pairs = zip(prompt, told, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        place = min(len(prompt), len(told)) if same is None else same
        yield (
            "Template and tokenizer give other prompt tokens than the answer was computed "
            f"from, first at place {place}."
        )


def _found(
    words: ModelWords,
    statement: ModelStatement,
    request: ModelRequest,
    spoken: Spoken,
    receipt: AnswerReceipt,
) -> Iterator[str]:
    yield from _other_prompt(words, request, spoken.prompt)
    text = words.text(statement, request, spoken)
    if text != spoken.text:
        yield "The text is not that of the answer's tokens."
    if request.stop_strings:
        yield from _stop_strings(words, statement, request, spoken, receipt, text)


def _stop_strings(
    words: ModelWords,
    statement: ModelStatement,
    request: ModelRequest,
    spoken: Spoken,
    receipt: AnswerReceipt,
    text: str,
) -> Iterator[str]:
    """A stop string ends an answer: it is not in the text of all tokens but the last (6.4)."""
    ends = spoken.tokens[-1] in stop_set(statement, request)
    has = any(stop in text for stop in request.stop_strings)
    if receipt.finish == STOP and not (ends or has):
        yield "The receipt says `stop`, and neither a token nor a stop string ends the answer."
    if receipt.finish != STOP and has:
        yield f"The receipt says `{receipt.finish}`, and a stop string ends the answer."
    # Of this one prefix by definition. Where half a character is U+FFFD at first, a shorter one may
    # have a string that it lacks.
    before = words.tokenizer.decode(spoken.tokens[:-1]) if len(spoken.tokens) > 1 else ""
    if any(stop in before for stop in request.stop_strings):
        yield "The answer goes on after a stop string."


def _differs(name: str, digests: Mapping[str, bytes], statement: ModelStatement) -> bool:
    return digests.get(name) != statement.files.get(name)
