"""The engine: answers to many requests at once, each with the bits that it has alone.

What an answer is follows from its request and the weights (spec/ANSWERS.md): the batch, the chunks
of a prompt, shared pages, threads and the instruction set decide nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from tallystick.answers.layout import Settings
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.generation.attention import Rows, Stretch
from tallystick.generation.drafters import Drafter
from tallystick.generation.forward import Forward
from tallystick.generation.network import Network
from tallystick.generation.pages import PLACES, Pages
from tallystick.generation.sampling import Drawn, Sampling
from tallystick.generation.scheduler import Scheduler, Speculation
from tallystick.generation.sequences import (
    GeneratedAnswer,
    GenerationRequest,
    SubmittedRequest,
    TokenListener,
    longest,
)
from tallystick.generation.sequences import Sequence as Text

MOST_ROWS = 512


class AnswerEngine:
    """Generates text with a network. Not thread-safe: one thread calls it.

    `threads` and `isa` are those of an ExecutionContext. `memory` is the most bytes for keys and
    values, `rows` the most places that one pass over the weights computes, `chunk` the most of one
    prompt among them. `drafter` proposes tokens, so that a pass may give several of an answer.
    Raises UsageError for numbers out of range, and for a drafter with another vocabulary.
    """

    def __init__(
        self,
        network: Network,
        *,
        threads: int | None = None,
        isa: str | None = None,
        memory: int = 1 << 30,
        chunk: int = MOST_ROWS,
        rows: int = MOST_ROWS,
        drafter: Drafter | None = None,
    ) -> None:
        if not 1 <= rows <= MOST_ROWS or chunk < 1:
            raise UsageError(
                f"A pass cannot have {rows} rows, {chunk} of them for one prompt.",
                f"Give 1 to {MOST_ROWS} rows, and at least one for a prompt.",
            )
        self._network = network
        context = ExecutionContext(threads, isa)
        self._forward = Forward(network, context, memory)
        self._sampling = Sampling(network.contract, network.vocabulary, context)
        self._pages = Pages(self._forward.pages)
        self._scheduler = Scheduler(self._pages, rows, chunk)
        # What is drawn, and not yet a part of the texts.
        self._drawn: deque[tuple[Text, deque[Drawn]]] = deque()
        self.speculation = None if drafter is None else Speculation(drafter, network.vocabulary)

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has."""
        return self._network.vocabulary

    @property
    def longest(self) -> int:
        """The most places of a text: of a prompt with the most tokens of its answer."""
        # The last token of an answer is drawn, and never computed.
        return min(self._network.length, self._pages.count * PLACES + 1)

    def submit(
        self,
        prompt: Iterable[int],
        settings: Settings,
        choice: int = 0,
        listener: TokenListener | None = None,
        namespace: bytes = b"",
    ) -> SubmittedRequest:
        """Put a request into the queue. Raises UsageError for one that can never be answered."""
        request = GenerationRequest(tuple(prompt), settings, choice, namespace)
        handle = SubmittedRequest(request, listener)
        self._check(handle)
        self._scheduler.queue.append(handle)
        return handle

    def _check(self, handle: SubmittedRequest) -> None:
        request, network = handle.request, self._network
        length = len(request.prompt) + request.settings.max_tokens
        if not request.prompt:
            raise UsageError(
                "A prompt has at least one token.", "Give the token that begins texts."
            )
        settings = request.settings
        biased = [token for token, _ in settings.bias]
        for where, tokens in (
            ("prompt", request.prompt), ("bias", biased), ("stop set", settings.stop)
        ):  # fmt: skip
            for token in tokens:
                if not 0 <= token < network.vocabulary:
                    raise UsageError(
                        f"The {where} has the token {token}, and the model's vocabulary counts "
                        f"{network.vocabulary}.",
                        "Use the tokenizer of this model.",
                    )
        if length > network.length:
            raise UsageError(
                f"Prompt and answer have up to {length} places, the model has {network.length}.",
                "Shorten the prompt, or ask for fewer tokens.",
            )
        if longest(handle) > self._pages.count:
            raise UsageError(
                f"Prompt and answer take {longest(handle)} pages of keys and values, and the "
                f"engine has {self._pages.count}.",
                "Shorten the prompt, or ask for fewer tokens.",
            )

    # -- passes ------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One pass over the weights. True if there is more to do.

        What a listener raises goes to the caller. The engine is whole then, and what other
        listeners have not heard they hear in the next step.
        """
        self._deliver()
        self._end_cancelled()
        if self._forward.window:
            for text in self._scheduler.running:
                text.pass_by(self._forward.window)
        self._scheduler.enter()
        work = self._scheduler.plan()
        if work:
            if self.speculation is not None:
                self.speculation.draft(work, self._scheduler.left(work))
            self._pass(work)
            self._deliver()
        return bool(self._scheduler.running or self._scheduler.queue)

    def run(self) -> None:
        """Answer all requests."""
        while self.step():
            pass

    def generate(self, requests: Iterable[GenerationRequest]) -> list[GeneratedAnswer]:
        """The answers to these requests, in their order, together with those submitted before."""
        handles = [
            self.submit(r.prompt, r.settings, r.choice, namespace=r.namespace) for r in requests
        ]
        self.run()
        return [handle.answer for handle in handles if handle.answer is not None]

    def _end_cancelled(self) -> None:
        scheduler = self._scheduler
        for handle in [h for h in scheduler.queue if h.cancelled]:
            scheduler.queue.remove(handle)
            handle.answer = GeneratedAnswer((), np.empty(0, np.float32), CANCELLED)
        for text in [t for t in scheduler.running if t.handle.cancelled]:
            self._end(text, CANCELLED)

    def _end(self, text: Text, finish: str) -> None:
        self._scheduler.leave(text)
        text.end(finish)

    def _pass(self, work: Sequence[tuple[Text, int]]) -> None:
        tokens: list[int] = []
        stretches, drawing = list[Stretch](), list[Text]()
        wanted: list[int] = []
        for text, count in work:
            first, end = text.computed, text.computed + count
            tokens += text.text[first:end] + text.drafts
            stretches.append(Stretch(text.table, first, count + len(text.drafts)))
            if end == len(text.text):
                wanted += range(len(tokens) - text.drawn_rows, len(tokens))
                drawing.append(text)
        logits = self._forward.logits(tokens, Rows(stretches), wanted)
        drawn = self._sampling.draw(drawing, logits)
        for text, count in work:
            self._scheduler.computed(text, count)
        for text, rows in zip(drawing, drawn, strict=True):
            pairs = zip(text.drafts, rows, strict=False)
            wrong = (n for n, (draft, (token, _)) in enumerate(pairs) if draft != token)
            right = next(wrong, len(text.drafts))
            # Rows after a draft that is not what was drawn are of another text.
            self._drawn.append((text, deque(rows[: right + 1])))
            if self.speculation is not None:
                self.speculation.learn(text, right)

    def _deliver(self) -> None:
        """Make what is drawn a part of the texts, token by token: an answer ends where it would
        have ended with one token a pass."""
        while self._drawn:
            text, tokens = self._drawn[0]
            handle = text.handle
            if not tokens or handle.answer is not None or handle.cancelled:
                self._drawn.popleft()
                continue
            token, logprob = tokens.popleft()
            listener = handle.listener  # gone once the answer is there
            self._append(text, token, logprob)
            if listener is not None:
                listener.token(token, logprob)

    def _append(self, text: Text, token: int, logprob: np.float32) -> None:
        if text.decodes:  # the token before this one was a draft, whose place is computed
            self._scheduler.computed(text, 1)
        text.text.append(token)
        text.logprobs.append(logprob)
        settings = text.handle.request.settings
        if token in settings.stop:
            self._end(text, STOP)
        elif len(text.logprobs) == settings.max_tokens:
            self._end(text, LENGTH)
