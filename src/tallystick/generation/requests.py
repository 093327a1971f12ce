"""A request and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tallystick.answers.layout import Settings


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
