"""What a server asks of every request before it looks at it: rate, number, size, time.

A pure ASGI wrapper. It reads a body whole, within its bounds, before the application sees the
request, so the application never waits for a slow peer. A response to a refused request is short
and says which bound was met; it closes the connection where a body was left unread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tallystick.service.doors import Bounds, DoorConnection, Doors, Request

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


# Statuses of requests that no party's referee makes.
_BAD = frozenset({400, 401, 404, 405, 408, 411, 413})


PLACE = "place"  # its name in the state of a request's scope, where the connection puts it


class Refused(Exception):  # noqa: N818  a response, not a fault
    """End the request with this status."""

    def __init__(self, status: int, why: str, close: bool = False) -> None:
        super().__init__(why)
        self.status, self.why, self.close = status, why, close


def refusal_body(_status: int, why: str) -> bytes:
    """The body of a refusal, unless a server has another form for it."""
    return json.dumps({"refused": why}).encode()


class Guard:
    """`app` within `bounds`. The guard calls `tell` with the error of a request that failed by a
    fault of ours; the peer learns nothing of it. `body` gives the body of a refusal."""

    def __init__(
        self,
        app: App,
        bounds: Bounds,
        tell: Callable[[BaseException], None],
        body: Callable[[int, str], bytes] = refusal_body,
    ) -> None:
        self._app, self._tell, self._body_of = app, tell, body
        self.doors = Doors(bounds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        place = place_of(scope)
        try:
            request = self._admit(place)
        except Refused as refused:
            await self._respond(send, refused)
            return
        try:
            await self._run(scope, receive, send, request)
        finally:
            self.doors.end(request)
            if place.believed:
                self.doors.welcome(place.peer)

    def _admit(self, place: DoorConnection) -> Request:
        now = _now()
        if place.gone:
            raise Refused(503, "too many connections", close=True)
        self.doors.heard(place)
        if not self.doors.rates.take(place.peer, now):
            raise Refused(429, "too many requests", close=True)
        request = self.doors.begin(place, now)
        if request is None:
            raise Refused(503, "too many requests at one time", close=True)
        return request

    async def _run(self, scope: Scope, receive: Receive, send: Send, request: Request) -> None:
        started = bad = False

        async def noting(event: Event) -> None:
            nonlocal started, bad
            if not started:
                bad = event["status"] in _BAD
            started = True
            self.doors.theirs(request, _now())  # it has to read the response
            await send(event)
            if event["type"] == "http.response.start" or event.get("more_body"):
                self.doors.ours(request)  # it has been read, and the rest is still to be made

        try:
            size = self._reserve(scope, request)
            body = await self._body(receive, size, request)
            await self._app(scope, _whole(body, receive), noting)
        except Refused as refused:
            bad = refused.status in _BAD
            await self._respond(send, refused)
        except ConnectionAbortedError:
            bad = True
        except Exception as error:
            self._tell(error)
            if not started:
                await self._respond(send, Refused(500, "a fault of this server"))
        finally:
            if bad:
                self.doors.rates.bad(request.peer, request.size)

    def _reserve(self, scope: Scope, request: Request) -> int:
        """The length of the body, with room for it set aside. Raises Refused."""
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
        most = self.doors.bounds.body_bytes
        if size > most:
            raise Refused(413, f"a body has at most {most} bytes", close=True)
        if not self.doors.set_aside(request, size, _now()):
            raise Refused(503, "too many large requests at one time", close=True)
        return size

    async def _body(self, receive: Receive, size: int, request: Request) -> bytes:
        """The whole body of `size` bytes. Raises Refused, ConnectionAbortedError."""
        if not size:
            return b""
        self.doors.theirs(request, _now())
        seconds = self.doors.bounds.body_seconds
        try:
            body = await asyncio.wait_for(_read(receive, size), seconds)
        except asyncio.TimeoutError:
            raise Refused(408, "the body came too slowly", close=True) from None
        self.doors.ours(request)
        return body

    async def _respond(self, send: Send, refused: Refused) -> None:
        body = self._body_of(refused.status, refused.why)
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


def place_of(scope: Scope) -> DoorConnection:
    """The place of the connection that a request has come by."""
    place = scope["state"][PLACE]
    assert isinstance(place, DoorConnection)
    return place


def believed(scope: Scope) -> None:
    """Note that a request has shown a turn of a believed referee."""
    place_of(scope).believed = True


def _now() -> float:
    return asyncio.get_running_loop().time()


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
