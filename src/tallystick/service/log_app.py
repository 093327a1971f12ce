"""A referee's log, published by static GETs (PROTOCOL 12.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tallystick.delegation.turns import LOG, OCTETS
from tallystick.disk.entry_log import entry_name
from tallystick.service.doors import BOUNDS, Bounds
from tallystick.service.guard import Guard

_DIGITS = 7


def log_app(
    read: Callable[[int], bytes],
    published: Callable[[], int],
    session: bytes,
    bounds: Bounds = BOUNDS,
    tell: Callable[[BaseException], None] = lambda _: None,
) -> Guard:
    """The application that shows the entries below `published()` of the session's log.

    `read` gives an entry's bytes. Entry i has two addresses: `/v1/log/i`, and the one that its file
    would have on a static server.
    """

    async def entry(index: str, canonical: str) -> Response:
        if not index.isascii() or not index.isdecimal() or len(index) > _DIGITS:
            return Response(status_code=404)
        number = int(index)
        if canonical != index or number >= published():
            return Response(status_code=404)
        data = await asyncio.get_running_loop().run_in_executor(None, read, number)
        return Response(data, media_type=OCTETS, headers={"cache-control": "immutable"})

    async def by_index(request: Request) -> Response:
        index = request.path_params["index"]
        # One spelling. `entry` bounds the digits before they become a number.
        return await entry(index, index if index == "0" else index.lstrip("0"))

    async def by_file(request: Request) -> Response:
        room, name = request.path_params["room"], request.path_params["name"]
        index = name.removesuffix(".bin")
        if not index.isascii() or not index.isdecimal() or len(index) != _DIGITS:
            return Response(status_code=404)
        if entry_name(int(index)) != f"log/{room}/{name}":
            return Response(status_code=404)
        return await entry(index, index)

    async def head(_: Request) -> Response:
        return JSONResponse({"session": session.hex(), "entries": published()})

    app = Starlette(
        routes=[
            Route(LOG.rstrip("/"), head, methods=["GET"]),
            Route(LOG + "{index}", by_index, methods=["GET"]),
            Route("/log/{room}/{name}", by_file, methods=["GET"]),
        ]
    )
    app.router.redirect_slashes = False
    return Guard(app, bounds, tell)
