"""A request and what becomes of it: a sequence, which is a text that grows while it is computed,
and its pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tallystick.answers.layout import Settings
from tallystick.generation.pages import PLACES, Pages, page_key, pages_for


@dataclass(frozen=True)
class GenerationRequest:
    """The tokens of a prompt, how tokens are drawn after it, and which of several answers to the
    same request this is. It shares computed prefixes with requests of the same `namespace` only,
    which is empty or a hash."""

    prompt: tuple[int, ...]
    settings: Settings
    choice: int = 0
    namespace: bytes = b""


@dataclass(frozen=True)
class GeneratedAnswer:
    """The tokens of an answer, and the log-probability of each under the model's own logits (f32).

    `finish` is `stop` (the last token is one of the stop set), `length` or `cancelled`.
    """

    tokens: tuple[int, ...]
    logprobs: np.ndarray
    finish: str


class TokenListener(Protocol):
    """Who wants every token of an answer at once."""

    def token(self, token: int, logprob: np.float32) -> None: ...


class SubmittedRequest:
    """A submitted request. `answer` is there once it has ended."""

    def __init__(self, request: GenerationRequest, listener: TokenListener | None) -> None:
        self.request = request
        self.listener = listener
        self.answer: GeneratedAnswer | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """End the request before the next pass, with the tokens that it has. An answer that is
        there stays."""
        self.cancelled = True

    def end(self, answer: GeneratedAnswer) -> None:
        """Called by the engine when the answer is there. Nobody is told of more tokens."""
        self.answer = answer
        self.listener = None  # it often holds this object, and the engine too


GONE = -1


class Sequence:
    """A request that is computed: its prompt, and its answer so far.

    The keys and values of the first `computed` places are in pages. `table` has the page of each
    stretch of `PLACES` places, at its place for ever: GONE stands for one that a window has passed.
    `waiting` pages are promised to it. `drafts` are tokens that may come next: the pass computes
    their places too. Nothing else knows them before the sampler has drawn them.
    """

    def __init__(self, handle: SubmittedRequest, pages: Pages) -> None:
        self.handle = handle
        self.text = list(handle.request.prompt)
        self.logprobs: list[np.float32] = []
        self.drafts: list[int] = []
        self.computed = 0
        self.table: list[int] = []
        self.waiting = 0
        self._pages = pages
        self._keys: list[bytes] = []
        self._passed = 0  # pages that a window has passed

    @property
    def prompt(self) -> int:
        """The number of tokens of the prompt."""
        return len(self.handle.request.prompt)

    @property
    def decodes(self) -> bool:
        """True if only its last token has not been computed."""
        return self.computed == len(self.text) - 1

    @property
    def drawn_rows(self) -> int:
        """How many rows of a pass draw a token after it: its last token's, and each draft's."""
        return 1 + len(self.drafts)

    @property
    def shareable(self) -> int:
        """How many of its first pages another sequence may have computed: full ones of the prompt,
        but not the last token, whose logits are wanted."""
        return (self.prompt - 1) // PLACES

    def key(self, number: int) -> bytes:
        """The key of its full page `number`."""
        while len(self._keys) <= number:
            at = len(self._keys)
            tokens = self.text[at * PLACES : (at + 1) * PLACES]
            before = self._keys[-1] if at else self.handle.request.namespace
            self._keys.append(page_key(before, tokens))
        return self._keys[number]

    # -- pages -------------------------------------------------------------------------------------

    def enter(self) -> bool:
        """Promise it all pages that it can ever need, and take those that are there. False, and
        nothing happens, where there are too few."""
        pages, found, idle = self._pages, 0, 0
        while found < self.shareable and self.key(found) in pages:
            idle += pages.is_idle(self.key(found))
            found += 1
        needed = longest(self.handle)
        if needed - found + idle > pages.unpromised:
            return False
        pages.promise(needed - found)
        self.waiting = needed - found
        for _ in range(found):
            self._share()
        return True

    def _share(self) -> None:
        self.table.append(self._pages.share(self.key(len(self.table))))
        self.computed += PLACES

    def join(self) -> None:
        """Take the next page from another sequence, which has computed it."""
        self._pages.renounce(1)
        self.waiting -= 1
        self._share()

    def extend(self, end: int) -> None:
        """Take pages for the places below `end`."""
        while len(self.table) < pages_for(end):
            self.table.append(self._pages.take())
            self.waiting -= 1

    def advance(self, count: int) -> None:
        """`count` more places are computed: full pages get their keys."""
        first, self.computed = self.computed, self.computed + count
        for number in range(first // PLACES, self.computed // PLACES):
            self._pages.name(self.table[number], self.key(number))

    def pass_by(self, window: int) -> None:
        """Release the pages that no later place reads through a window."""
        while (self._passed + 1) * PLACES <= self.computed + 1 - window:
            self._pages.release(self.table[self._passed])
            self.table[self._passed] = GONE
            self._passed += 1

    def leave(self) -> None:
        """Release every page and promise. Later pages become idle first: of two idle pages of one
        text the later one is the less useful."""
        for page in reversed(self.table):
            if page != GONE:
                self._pages.release(page)
        self._pages.renounce(self.waiting)
        self.table, self.waiting = [], 0

    # -- the answer --------------------------------------------------------------------------------

    def end(self, finish: str) -> None:
        """The answer is what there is."""
        tokens = tuple(self.text[self.prompt :])
        self.handle.end(GeneratedAnswer(tokens, np.array(self.logprobs, np.float32), finish))


def longest(handle: SubmittedRequest) -> int:
    """How many pages a request takes at most. Its last token is drawn, and never computed."""
    request = handle.request
    return pages_for(len(request.prompt) + request.settings.max_tokens - 1)
