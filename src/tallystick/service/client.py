"""The HTTP client of a referee and of a follower (PROTOCOL 13; docs/adr/0013-http.md).

A response is read within its bound, whatever length it states. Redirections are not followed, and
no setting of the environment (a proxy, say) takes part.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tallystick.closing import Closing
from tallystick.delegation.turns import (
    COMMITMENT,
    JSON_BYTES,
    LOGS,
    MESSAGE_BYTES,
    PARTY,
    TURN,
    Card,
    Message,
    Refusal,
    Reply,
    Working,
    decode_card,
    decode_reply,
)
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError

_HEADERS = {"accept-encoding": "identity", "user-agent": "tallystick"}
_TIMEOUT = httpx2.Timeout(connect=10, read=30, write=60, pool=60)
_WHOLE_SECONDS = 240.0


class UnreachableError(CannotCheckError):
    """A party gives no reply for now: no connection, a time-out, or a server at its bounds.

    `after` is the number of seconds after which the server asks to be asked again.
    """

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(f"A party cannot be reached: {why}.", "Ask again.")
        self.after = after


def check_url(url: str) -> str:
    """`url` without a slash at its end. Raises UsageError unless it names a server."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(f"{url!r} is not a party's URL.", "Write https://HOST:PORT.")
    return url.rstrip("/")


def client_context(url: str, ca: Path | None) -> ssl.SSLContext | bool:
    """The TLS context for `url`: it believes the system's authorities, or only those of `ca`.

    Raises CannotCheckError.
    """
    if url.startswith("http://"):
        return True  # no TLS, and loading the system's authorities takes long
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise CannotCheckError(
            f"{ca} contains no usable certificates: {error}.",
            "Name a PEM file of certificate authorities.",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _after(response: httpx2.Response) -> float:
    text = response.headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isascii() and text.isdecimal() and len(text) < 4 else 1.0


def decoded_body(response: httpx2.Response, body: bytes) -> Reply:
    if response.status_code in (408, 429) or response.status_code >= 500:
        raise UnreachableError(f"it responds with {response.status_code}", _after(response))
    return decode_reply(response.status_code, body)


def _limit(response: httpx2.Response) -> int:
    return MESSAGE_BYTES if response.status_code == 200 else JSON_BYTES


def _body(response: httpx2.Response, end: float) -> bytes:
    """The response's body, if it is whole at `end` of the monotonic clock."""
    parts, size = [], 0
    for part in response.iter_raw():
        parts.append(part)
        size += len(part)
        if size > _limit(response):
            raise CorruptFileError(
                "The response is longer than the limit.", "Do not rely on this server."
            )
        if time.monotonic() > end:
            raise UnreachableError("its response does not end")
    return b"".join(parts)


class PartyClient:
    """One party's server at `url`, for an event loop. Use it as a context."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        self.url = check_url(url)
        self._client = httpx2.AsyncClient(
            verify=client_context(self.url, ca),
            timeout=_TIMEOUT,
            headers=_HEADERS,
            trust_env=False,
            follow_redirects=False,
            limits=httpx2.Limits(max_connections=8, max_keepalive_connections=2),
        )

    async def __aenter__(self) -> PartyClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def card(self) -> Card:
        """The party's card. Raises UnreachableError, CorruptFileError."""
        response, body = await self._ask("GET", PARTY)
        if response.status_code == 429 or response.status_code >= 500:
            raise UnreachableError(f"it responds with {response.status_code}", _after(response))
        return decode_card(response.status_code, body)

    async def turn(self, turn: bytes) -> Reply:
        """The reply to a signed turn. Raises UnreachableError, CorruptFileError."""
        return decoded_body(*await self._ask("POST", TURN, turn))

    async def _ask(
        self, method: str, path: str, content: bytes | None = None
    ) -> tuple[httpx2.Response, bytes]:
        try:
            return await asyncio.wait_for(self._exchange(method, path, content), _WHOLE_SECONDS)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise UnreachableError(type(error).__name__) from error
        except asyncio.TimeoutError:
            raise UnreachableError("its response does not end") from None

    async def _exchange(
        self, method: str, path: str, content: bytes | None
    ) -> tuple[httpx2.Response, bytes]:
        async with self._client.stream(method, self.url + path, content=content) as response:
            parts, size = [], 0
            async for part in response.aiter_raw():
                size += len(part)
                if size > _limit(response):
                    raise CorruptFileError(
                        "The response is longer than the limit.", "Do not rely on this server."
                    )
                parts.append(part)
            return response, b"".join(parts)


class LogSource(Closing):
    """The party at `url` that hands over its logs: a Party of `prover.handover` (PROTOCOL 6.15).

    It asks again while the party is working or cannot be reached, for at most `patience` seconds a
    query. Use it as a context.
    """

    def __init__(self, url: str, ca: Path | None = None, patience: float = 600.0) -> None:
        self._url, self._patience = check_url(url), patience
        self._client = httpx2.Client(
            verify=client_context(self._url, ca),
            timeout=_TIMEOUT,
            headers=_HEADERS,
            trust_env=False,
        )
        self._commitment: bytes | None = None

    def close(self) -> None:
        self._client.close()

    @property
    def commitment(self) -> bytes:
        """The signed run commitment that the logs are checked against."""
        if self._commitment is None:
            self._commitment = self._get(COMMITMENT)
        return self._commitment

    def answer(self, query: bytes) -> bytes:
        """The signed answer to a query of kind 3 or 13 to 15.

        Raises CannotCheckError where the party refuses or does not answer in time.
        """
        return self._get(LOGS + query.hex())

    def _get(self, path: str) -> bytes:
        end, pause = time.monotonic() + self._patience, 0.05
        while True:
            try:
                reply = self._once(path)
            except UnreachableError as error:
                if time.monotonic() > end:
                    raise
                pause = max(pause, error.after)
            else:
                if isinstance(reply, Message):
                    return reply.data
                if isinstance(reply, Refusal):
                    raise CannotCheckError(
                        f"The party does not hand over its logs: {reply.why}.",
                        "Try again once the party has sealed its run in a session (PROTOCOL "
                        "6.15.1).",
                    )
                if not isinstance(reply, Working) or time.monotonic() > end:
                    raise UnreachableError("it is still working")
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _once(self, path: str) -> Reply:
        try:
            with self._client.stream("GET", self._url + path) as response:
                body = _body(response, time.monotonic() + _WHOLE_SECONDS)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise UnreachableError(type(error).__name__) from error
        if response.status_code in (404, 405):
            raise CannotCheckError(
                "No party that hands over logs answers at this URL.", "Check the URL."
            )
        return decoded_body(response, body)
