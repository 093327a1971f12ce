"""What a server asks of every request before it looks at it: rate, number, size, time.

A pure ASGI wrapper. It reads a body whole, within its bounds, before the application sees the
request, so the application never waits for a slow peer. A response to a refused request is short
and says which bound was met; it closes the connection where a body was left unread.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tallystick.service.bounds import Bounds
from tallystick.service.rates import Rates

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


# Statuses of requests that no party's referee makes.
_BAD = frozenset({400, 401, 404, 405, 408, 411, 413})


class Refused(Exception):  # noqa: N818  a response, not a fault
    """End the request with this status."""

    def __init__(self, status: int, why: str, close: bool = False) -> None:
        super().__init__(why)
        self.status, self.why, self.close = status, why, close


class Guard:
    """`app` within `bounds`. The guard calls `tell` with the error of a request that failed by a
    fault of ours; the peer learns nothing of it."""

    def __init__(self, app: App, bounds: Bounds, tell: Callable[[BaseException], None]) -> None:
        self._app, self._bounds, self._tell = app, bounds, tell
        self.rates = Rates(bounds)
        self._running, self._held = 0, 0
        self._peer_running: Counter[str] = Counter()
        self._peer_held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        peer = scope["client"][0] if scope.get("client") else ""
        try:
            self._admit(peer)
        except Refused as refused:
            await _respond(send, refused)
            return
        self._running += 1
        self._peer_running[peer] += 1
        try:
            await self._run(scope, receive, send, peer)
        finally:
            self._running -= 1
            _less(self._peer_running, peer, 1)

    def _admit(self, peer: str) -> None:
        bounds = self._bounds
        if not self.rates.take(peer, asyncio.get_running_loop().time()):
            raise Refused(429, "too many requests", close=True)
        if self._running >= bounds.requests or self._peer_running[peer] >= bounds.peer_requests:
            raise Refused(503, "too many requests at one time", close=True)

    async def _run(self, scope: Scope, receive: Receive, send: Send, peer: str) -> None:
        started = bad = False

        async def noting(event: Event) -> None:
            nonlocal started, bad
            if not started:
                bad = event["status"] in _BAD
            started = True
            await send(event)

        size = 0
        try:
            size = self._reserve(scope, peer)
            body = await self._body(receive, size)
            await self._app(scope, _whole(body, receive), noting)
        except Refused as refused:
            bad = refused.status in _BAD
            await _respond(send, refused)
        except ConnectionAbortedError:
            bad = True
        except Exception as error:
            self._tell(error)
            if not started:
                await _respond(send, Refused(500, "a fault of this server"))
        finally:
            self._held -= size
            _less(self._peer_held, peer, size)
            if bad:
                self.rates.bad(peer, size)

    def _reserve(self, scope: Scope, peer: str) -> int:
        """The length of the body, with room for it set aside. Raises Refused."""
        bounds = self._bounds
        headers = scope["headers"]
        lengths = [value for name, value in headers if name == b"content-length"]
        if any(name == b"transfer-encoding" for name, _ in headers):
            raise Refused(411, "state the length of the body", close=True)
        if not lengths:
            if scope["method"] == "POST":
                raise Refused(411, "state the length of the body", close=True)
            return 0
        size = int(lengths[0]) if lengths[0].isdigit() and len(lengths[0]) < 20 else -1
        if len(lengths) > 1 or size < 0:
            raise Refused(400, "the length of the body is no number", close=True)
        if size and scope["method"] != "POST":
            raise Refused(413, "this request has no body", close=True)
        if size > bounds.body_bytes:
            raise Refused(413, f"a body has at most {bounds.body_bytes} bytes", close=True)
        if (
            self._held + size > bounds.bodies_bytes
            or self._peer_held[peer] + size > bounds.peer_bodies_bytes
        ):
            raise Refused(503, "too many large requests at one time", close=True)
        self._held += size
        self._peer_held[peer] += size
        return size

    async def _body(self, receive: Receive, size: int) -> bytes:
        """The whole body of `size` bytes. Raises Refused, ConnectionAbortedError."""
        if not size:
            return b""
        try:
            return await asyncio.wait_for(_read(receive, size), self._bounds.body_seconds)
        except asyncio.TimeoutError:
            raise Refused(408, "the body came too slowly", close=True) from None


async def _read(receive: Receive, size: int) -> bytes:
    parts, found, more = [], 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ConnectionAbortedError("the peer is gone")
        part = event.get("body", b"")
        found += len(part)
        if found > size:
            raise Refused(413, "the body is longer than it says", close=True)
        parts.append(part)
        more = event.get("more_body", False)
    if found != size:
        raise Refused(400, "the body is shorter than it says", close=True)
    return b"".join(parts)


def _whole(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then what follows it."""
    given = False

    async def again() -> Event:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _less(count: Counter[str], peer: str, number: int) -> None:
    count[peer] -= number
    if count[peer] <= 0:
        del count[peer]


async def _respond(send: Send, refused: Refused) -> None:
    body = json.dumps({"refused": refused.why}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refused.close:
        headers.append((b"connection", b"close"))
    if refused.status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
