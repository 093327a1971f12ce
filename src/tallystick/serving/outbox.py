"""What a model has said and a client has not taken yet: from the engine's thread to the loop's.

The engine never waits for a client. What it puts here is bounded: a client that takes too little
loses its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tallystick.serving.engine_thread import KeptAnswer


@dataclass
class News:
    """What is new of one answer: tokens with log-probabilities, and its end, if it is there."""

    tokens: list[tuple[int, float]] = field(default_factory=list)
    kept: KeptAnswer | None = None


class OverfullError(Exception):
    """The client has left too many tokens lying."""


class Outbox:
    """The answers to one request, by their index. It belongs to the loop in which it is made."""

    def __init__(self, answers: int, unread: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._news: dict[int, News] = {}
        self._unread, self._most = 0, unread * answers
        self._error: BaseException | None = None
        self._there = asyncio.Event()

    def sink(self, index: int) -> OutboxSink:
        return OutboxSink(self, index)

    async def take(self) -> dict[int, News]:
        """All that is new, once there is something. Raises what has ended the answers."""
        await self._there.wait()
        self._there.clear()
        if self._error is not None:
            raise self._error
        found, self._news, self._unread = self._news, {}, 0
        return found

    # -- by the model's threads --------------------------------------------------------------------

    def post(self, index: int, token: tuple[int, float] | None, kept: KeptAnswer | None) -> None:
        self._call(lambda: self._put(index, token, kept))

    def fail(self, error: BaseException) -> None:
        self._call(lambda: self._fail(error))

    def _call(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there
            self._loop.call_soon_threadsafe(what)

    # -- in the loop -------------------------------------------------------------------------------

    def _put(self, index: int, token: tuple[int, float] | None, kept: KeptAnswer | None) -> None:
        news = self._news.setdefault(index, News())
        if token is not None:
            news.tokens.append(token)
            self._unread += 1
            if self._unread > self._most:
                self._fail(OverfullError())
        if kept is not None:
            news.kept = kept
        self._there.set()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._there.set()


@dataclass(frozen=True)
class OutboxSink:
    """The place of one answer in an outbox (engine_thread.AnswerSink)."""

    box: Outbox
    index: int

    def token(self, token: int, logprob: np.float32) -> None:
        self.box.post(self.index, (token, float(logprob)), None)

    def ended(self, kept: KeptAnswer) -> None:
        self.box.post(self.index, None, kept)

    def failed(self, error: BaseException) -> None:
        self.box.fail(error)
