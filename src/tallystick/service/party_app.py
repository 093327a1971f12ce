"""The server of a party: one POST for turns, GETs for its card and for the logs it hands over.

It reads nothing but what `Registered` gives: no path of a request ever reaches a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tallystick.delegation.turns import (
    COMMITMENT,
    LOGS,
    MALFORMED,
    PARTY,
    TURN,
    Card,
    Refusal,
    Reply,
    encode_reply,
)
from tallystick.prover.registered import Registered
from tallystick.service.doors import BOUNDS, Bounds
from tallystick.service.guard import Guard, believed

_QUERY_DIGITS = 256  # a query of kind 13 to 15 has far fewer


def party_app(
    registered: Registered,
    bounds: Bounds = BOUNDS,
    tell: Callable[[BaseException], None] = lambda _: None,
) -> Guard:
    """The ASGI application that answers for `registered` within `bounds`.

    It calls `tell` with the error of a request that a fault of this machine has ended.
    """
    # Replies verify signatures and play games along: that is work for threads. A thread that waits
    # for an answer does nothing, so there is one for each request.
    most = bounds.requests + bounds.known_peers * bounds.known_connections
    threads = ThreadPoolExecutor(most, "tallystick-request")
    card = Card(registered.key, registered.terms.digest, registered.hands_over_logs).members()

    async def reply_of(make: Callable[[], Reply]) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(threads, make)

    async def replied(make: Callable[[], Reply]) -> Response:
        return response_of(await reply_of(make))

    async def turn(request: Request) -> Response:
        body = await request.body()  # whole already, and within its bound (service.guard)
        reply = await reply_of(partial(registered.reply, body, bounds.patience_seconds))
        if not isinstance(reply, Refusal):
            believed(request.scope)
        return response_of(reply)

    async def party(_: Request) -> Response:
        return JSONResponse(card)

    async def commitment(_: Request) -> Response:
        return await replied(registered.commitment)

    async def logs(request: Request) -> Response:
        query = _query(request.path_params["query"])
        if query is None:
            return await replied(lambda: Refusal(MALFORMED, "this is no query in hexadecimal"))
        return await replied(partial(registered.log, query, bounds.patience_seconds))

    routes = [
        Route(TURN, turn, methods=["POST"]),
        Route(PARTY, party, methods=["GET"]),
    ]
    if registered.hands_over_logs:
        routes += [
            Route(COMMITMENT, commitment, methods=["GET"]),
            Route(LOGS + "{query}", logs, methods=["GET"]),
        ]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return Guard(app, bounds, tell)


def response_of(reply: Reply) -> Response:
    """A reply as a response (PROTOCOL 13.4)."""
    status, kind, body = encode_reply(reply)
    return Response(body, status, media_type=kind)


def _query(text: str) -> bytes | None:
    if len(text) > _QUERY_DIGITS:
        return None
    try:
        query = bytes.fromhex(text)
    except ValueError:
        return None
    return query if query.hex() == text else None  # one spelling
