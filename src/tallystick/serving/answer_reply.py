"""The response to a request for answers: whole, or as a stream of events.

The engine never waits for a client. What it has said and the client has not taken yet is bounded: a
client that takes too little loses its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tallystick.api.answering import PreparedRequest
from tallystick.errors import StorageError, TallystickError
from tallystick.service.guard import Receive, Scope, Send, place_of
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.asked import AskedAnswers
from tallystick.serving.cancelling import Cancelling
from tallystick.serving.engine_thread import KeptAnswer, WantedAnswer
from tallystick.serving.fields import SERVER, ApiError, no_room, of_error
from tallystick.serving.keeping import AnswerKeeper, KeptRoom
from tallystick.serving.kept.space import answer_bytes
from tallystick.serving.models import ServedModel
from tallystick.serving.replies import DONE, Replies, event
from tallystick.serving.spelling import Spelling, shown


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


T = TypeVar("T")
_JSON = (b"content-type", b"application/json")
_EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@dataclass
class ReplyOutcome:
    """What became of a request, for logs and metrics: no text of it."""

    status: int = 200
    prompt_tokens: int = 0
    answer_tokens: int = 0
    finishes: list[str] = field(default_factory=list)
    first: float | None = None  # seconds to the first token
    why: str | None = None  # why no answer was given


@dataclass(eq=False)
class AnswerReply:
    """An ASGI response. Whoever calls it has admitted the request.

    The request's prompts become tokens in `workers`, and so do texts. The client's leaving ends its
    answers. A stream that cannot go on ends with an error event, and without `[DONE]`.
    """

    id: str
    owner: str
    model: ServedModel
    asked: AskedAnswers
    keeper: AnswerKeeper
    limits: ServingLimits
    workers: ThreadPoolExecutor
    tell: Callable[[BaseException], None]
    done: Callable[[ReplyOutcome], None]
    cancelling: Cancelling
    outcome: ReplyOutcome = field(default_factory=ReplyOutcome)
    _wanted: list[WantedAnswer] = field(default_factory=list)
    _streams: bool = False  # the head of a stream has been sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and cancel what is left of it in any case."""
        self._began = time.monotonic()
        sends = _Sending(send, self.limits.unread_seconds)
        work = asyncio.create_task(self._within_time(scope, sends))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sends.over or work.done():
                await work
            else:
                self.outcome.why, self.outcome.status = "gone", 499
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self.model.thread.cancel(self._wanted)
            self.cancelling.leave(self._wanted, self.model.thread)
            self.done(self.outcome)

    async def _within_time(self, scope: Scope, sends: _Sending) -> None:
        try:
            await asyncio.wait_for(self._answer(sends), self.limits.seconds)
        except asyncio.TimeoutError:
            why = f"The answer is not there after {self.limits.seconds:g} seconds."
            await self._refuse(sends, ApiError(504, why, kind=SERVER, code="timeout"), "late")
        except (OverfullError, _UnreadError):
            self.outcome.why = "unread"
            place_of(scope).cut()
            raise ConnectionAbortedError("the client does not read") from None
        except ApiError as error:
            await self._refuse(sends, error, error.code or "refused")
        except TallystickError as error:
            if (found := of_error(error)).status >= 500:
                self.tell(error)
            await self._refuse(sends, found, "refused" if found.status < 500 else "fault")

    async def _refuse(self, sends: _Sending, error: ApiError, why: str) -> None:
        self.outcome.status, self.outcome.why = error.status, why
        if self._streams:
            await sends.body(event(error.members()), more=False)
            return
        headers = [_JSON]
        if error.retry_after is not None:
            headers.append((b"retry-after", str(error.retry_after).encode()))
        await sends.whole(error.status, headers, json.dumps(error.members()).encode())

    # -- the answers -------------------------------------------------------------------------------

    async def _answer(self, sends: _Sending) -> None:
        requests, thread = self.asked.requests, self.model.thread
        prepared = [await self._work(partial(thread.answering.prepare, r)) for r in requests]
        self.outcome.prompt_tokens = sum(len(one.prompt) for one in prepared)
        pairs = [(one, n) for one in prepared for n in range(one.request.choices)]
        rooms = await self._work(lambda: self._reserve([one for one, _ in pairs]))
        box = Outbox(len(pairs), self.limits.unread_tokens)
        self._wanted = [
            WantedAnswer(self.owner, one, n, box.sink(index), rooms[index])
            for index, (one, n) in enumerate(pairs)
        ]
        self.cancelling.enter(self._wanted, thread)
        try:
            thread.submit(self._wanted)
        except ApiError:
            self.cancelling.refused(self._wanted, thread)
            self._wanted = []
            for room in rooms:
                room.release()
            raise
        replies = Replies(
            self.id, int(time.time()), self.model.name, self.model.digest, self.asked, self._decode
        )
        if self.asked.stream:
            await self._stream(sends, replies, box, [one for one, _ in pairs])
        else:
            await self._whole(sends, replies, box)

    def _reserve(self, answers: Sequence[PreparedRequest]) -> list[KeptRoom]:
        """Room for each of these answers, or for none. It hashes their requests too, in a thread
        that may take its time. Raises ApiError."""
        found: list[KeptRoom] = []
        try:
            for one in answers:
                _ = one.request.digest  # by which it is cancelled
                size = answer_bytes(one.request, len(one.prompt), one.asked.max_tokens)
                found.append(self.keeper.reserve(size))
        except StorageError as error:
            for room in found:
                room.release()
            self.tell(error)
            raise no_room() from None
        return found

    async def _whole(self, sends: _Sending, replies: Replies, box: Outbox) -> None:
        kept: dict[int, KeptAnswer] = {}
        while len(kept) < len(self._wanted):
            for index, news in (await box.take()).items():
                self._heard()
                if news.kept is not None:
                    kept[index] = news.kept
        answers = [kept[index] for index in range(len(kept))]
        usage = self._usage(answers)
        texts = [shown(one.answer.text, self.asked.stops) for one in answers]
        body = await self._work(lambda: json.dumps(replies.response(answers, texts, usage)))
        ids = ",".join(one.id for one in answers)
        await sends.whole(200, [_JSON, (b"tallystick-receipt", ids.encode())], body.encode())

    async def _stream(
        self, sends: _Sending, replies: Replies, box: Outbox, prepared: Sequence[PreparedRequest]
    ) -> None:
        await sends.start(200, _EVENTS)
        self._streams = True
        for index in range(len(prepared)):
            if (chunk := replies.begins(index)) is not None:
                await sends.body(chunk)
        spellings = [Spelling(self._decode, self.asked.stops, one.ends) for one in prepared]
        kept: list[KeptAnswer] = []
        while len(kept) < len(prepared):
            for index, news in (await box.take()).items():
                self._heard()
                spelling = spellings[index]
                chunk = await self._work(
                    partial(_more, replies, index, spelling, news.tokens, news.kept)
                )
                if chunk:
                    await sends.body(chunk)
                if news.kept is not None:
                    kept.append(news.kept)
        usage = self._usage(kept)
        last = replies.usage(usage) if self.asked.usage else b""
        await sends.body(last + DONE, more=False)

    def _heard(self) -> None:
        if self.outcome.first is None:
            self.outcome.first = time.monotonic() - self._began

    def _usage(self, kept: Sequence[KeptAnswer]) -> Mapping[str, int]:
        outcome = self.outcome
        outcome.finishes = [one.answer.finish for one in kept]
        outcome.answer_tokens = sum(len(one.answer.tokens) for one in kept)
        return {
            "prompt_tokens": outcome.prompt_tokens,
            "completion_tokens": outcome.answer_tokens,
            "total_tokens": outcome.prompt_tokens + outcome.answer_tokens,
        }

    def _decode(self, tokens: Sequence[int]) -> str:
        if len(tokens) == 1:
            return self.model.token_text(tokens[0])
        return self.model.thread.answering.decode(tokens)

    async def _work(self, make: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.workers, make)


def _more(
    replies: Replies,
    index: int,
    spelling: Spelling,
    tokens: Sequence[tuple[int, float]],
    kept: KeptAnswer | None,
) -> bytes:
    """What a stream says of one answer's news. What the client has cancelled is no part of it."""
    left = len(tokens) if kept is None else len(kept.answer.tokens) - spelling.heard
    tokens = tokens[: max(left, 0)]
    offset = len(spelling.said)
    text = spelling.more([token for token, _ in tokens])
    end = b""
    if kept is not None:
        try:
            cut = left < 0 and kept.answer.cancellation is not None
            text += "" if cut else spelling.rest(kept.answer.text)
        except ValueError as error:
            raise ApiError(
                500, f"Discard this stream: {error}. Its receipt is {kept.id}.", kind=SERVER
            ) from None
        end = replies.ends(index, kept)
    if not text and not (tokens and replies.asked.logprobs):
        return end
    return replies.goes_on(index, text, tokens, offset) + end


class _UnreadError(Exception):
    """The peer takes nothing."""


@dataclass
class _Sending:
    """Sends a response to a peer that must read on."""

    send: Send
    seconds: float
    over: bool = False  # the last byte has been given away

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._sent(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def body(self, data: bytes, more: bool = True) -> None:
        self.over = not more
        await self._sent({"type": "http.response.body", "body": data, "more_body": more})

    async def whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self.start(status, [*headers, length])
        await self.body(body, more=False)

    async def _sent(self, message: dict[str, Any]) -> None:
        try:
            await asyncio.wait_for(_awaited(self.send(message)), self.seconds)
        except asyncio.TimeoutError:
            raise _UnreadError from None


async def _awaited(what: Awaitable[None]) -> None:
    await what


async def _gone(receive: Receive) -> None:
    """Until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
