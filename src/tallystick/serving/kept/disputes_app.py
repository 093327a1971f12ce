"""The server of kept answers for referees: below `/answers/JOB` the paths of a party (PROTOCOL 13).

No path of a request ever reaches a file: a job is 64 hexadecimal digits, and looked up in a table.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tallystick.delegation.turns import PARTY, TURN, Refusal
from tallystick.service.doors import BOUNDS, Bounds
from tallystick.service.guard import Guard, believed
from tallystick.service.party_app import response_of
from tallystick.serving.kept.parties import KeptParties

ANSWERS = "/answers/"
_JOB = re.compile(r"[0-9a-f]{64}")


def disputes_app(
    parties: KeptParties,
    bounds: Bounds = BOUNDS,
    tell: Callable[[BaseException], None] = lambda _: None,
) -> Guard:
    """The ASGI application that answers for all of `parties` within `bounds`.

    It calls `tell` with the error of a request that a fault of this machine has ended.
    """
    most = bounds.requests + bounds.known_peers * bounds.known_connections
    threads = ThreadPoolExecutor(most, "tallystick-request")

    async def turn(request: Request) -> Response:
        body, job = await request.body(), _job(request)
        if job is None:
            return _none()
        make = partial(parties.reply, job, body, bounds.patience_seconds)
        reply = await asyncio.get_running_loop().run_in_executor(threads, make)
        if not isinstance(reply, Refusal):
            believed(request.scope)
        return response_of(reply)

    async def party(request: Request) -> Response:
        job = _job(request)
        if job is None:
            return _none()
        loop = asyncio.get_running_loop()
        card = await loop.run_in_executor(threads, parties.card, job)
        return _none() if card is None else JSONResponse(card.members())

    place = ANSWERS.rstrip("/") + "/{job}"
    app = Starlette(
        routes=[
            Route(place + TURN, turn, methods=["POST"]),
            Route(place + PARTY, party, methods=["GET"]),
        ]
    )
    app.router.redirect_slashes = False
    return Guard(app, bounds, tell)


def _job(request: Request) -> bytes | None:
    text = request.path_params["job"]
    return bytes.fromhex(text) if _JOB.fullmatch(text) else None


def _none() -> Response:
    return JSONResponse({"refused": "no answer of this job is kept here"}, 404)
