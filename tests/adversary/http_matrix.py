"""The matrix over HTTP: every attack on sessions with 2 parties, and ten of them with 5.

    PYTHONPATH=tests python tests/adversary/http_matrix.py [--only NAME] [--at-once 6]

The honest party is a `Registered` behind its real server, the referee the real driver with the real
client and the clock of this machine. An attacker is a server of its own around the same class as in
memory (attacks/sessions): equal turns get its messages one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adversary.games import STEPS
from adversary.session_matrix import ARITY, Cell, Small
from adversary.sessions import REFEREE, Ended, Seat, make_rules, session_attacks
from service.transports import running, serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tallystick.commit.encoding import sha256
from tallystick.commit.signed import split_compact
from tallystick.delegation.turns import CARD_FORMAT, AskOpening, AskSeal, turn_of
from tallystick.installed import tallystick_version
from tallystick.limits import LIMITS
from tallystick.prover.registered import Registered
from tallystick.service.client import PartyClient
from tallystick.service.doors import BOUNDS
from tallystick.service.driver import Driver, session_clock
from tallystick.service.guard import Guard
from tallystick.service.server import HttpServer, listening_socket

SEALING, OPENING, BUDGET, EXTENSION = 8_000, 5_000, 8_000, 2_500
MARGIN = 1_200  # milliseconds before its deadline that a last-second party moves
TEN = (
    "copying", "flooding", "last-second", "malformed", "misplaced-answers", "oversized", "silence",
    "throws-the-game", "two-answers", "two-openings",
)  # fmt: skip


class Attacker:
    """The server of a party that plays an attack."""

    def __init__(self, seat: Seat, log: list[bytes]) -> None:
        self.seat = seat
        seat.provider = seat.make(seat.member, log, seat.variant)
        self._turns: dict[bytes, tuple[float, list[Any], int]] = {}
        self._left = BUDGET
        self._lock = threading.Lock()

    def app(self) -> Starlette:
        """POST for turns, GET for the card."""
        member = self.seat.member
        card = {
            "format": CARD_FORMAT, "protocol": 1, "key": member.key.public.raw.hex(),
            "job_digest": member.job_digest.hex(), "hands_over_logs": False,
        }  # fmt: skip

        async def party(_: Request) -> Response:
            return JSONResponse(card)

        async def turn(request: Request) -> Response:
            loop = asyncio.get_running_loop()
            body = await request.body()
            data, wait = await loop.run_in_executor(None, self._next, body)
            if data is None:  # it holds the request until its moment, or replies that it works
                await asyncio.sleep(wait)
                data, _ = await loop.run_in_executor(None, self._next, body)
            if data is None:
                return JSONResponse({"working": ""}, 202)
            return Response(data, media_type="application/octet-stream")

        return Starlette(
            routes=[
                Route("/v1/party", party, methods=["GET"]),
                Route("/v1/turn", turn, methods=["POST"]),
            ]
        )

    def _next(self, turn: bytes) -> tuple[bytes | None, float]:
        """The next message for this turn, or None with the seconds until it is due."""
        name = sha256(turn)
        with self._lock:
            if name not in self._turns:
                if self.seat.provider.late:
                    time.sleep(0.5)
                asked = turn_of(split_compact(turn, LIMITS.turn_bytes, "turn").data).request
                made = self.seat.provider.take(turn)
                last = self._last(asked)
                sent = [(s.data, last if s.after < 0 else s.after) for s in made]
                self._turns[name] = time.monotonic(), sent, 0
            since, sent, at = self._turns[name]
            if not sent:
                return None, 0.3
            data, after = sent[at]
            wait = since + after / 1000 - time.monotonic()
            if wait > 0:
                return None, wait
            self._turns[name] = since, sent, min(at + 1, len(sent) - 1)
            return data, 0.0

    def _last(self, request: Any) -> int:
        """Milliseconds until shortly before the deadline of what is asked."""
        if isinstance(request, AskSeal):
            return max(0, int(self.seat.provider.rules.sealing) - session_clock() - MARGIN)
        if isinstance(request, AskOpening):
            return OPENING - MARGIN
        self._left = max(self._left, EXTENSION)
        self._left -= (wait := self._left - MARGIN)
        return wait


@dataclass
class Live:
    """A session over HTTP, with what `Ended` looks at."""

    terms: Any
    rules: Any
    seats: list[Seat]
    most_rounds: int
    signed: list[bytes] = field(default_factory=list)
    arbiter: Any = None
    drift: int = 250  # this machine's own time, for each entry: others work on it

    @property
    def log(self) -> Live:
        return self


@contextmanager
def _serving(app: Any) -> Iterator[str]:
    guarded = Guard(app, BOUNDS, lambda _: None)
    server = HttpServer(guarded, listening_socket("127.0.0.1:0"))
    with running(server):
        yield f"http://localhost:{server.port}"


def play_over_http(small: Small, cell: Cell) -> Ended:
    """One cell, checked."""
    seats = small.seats(cell)
    for seat in seats:
        # Here a party is asked: without a second message only its run's lie is left, and the true
        # message behind a flood comes when the referee asks no more. One that moves at the last
        # moment may be too late on a busy machine.
        late = cell.attack in ("flooding", "last-second", "slow-drip")
        more = ("absent", "forfeits") if late else ()
        seat.ends = (*seat.ends, "convicted", *more) if seat.ends else ()
    keys = tuple(sorted((seat.key for seat in seats), key=lambda key: key.raw))
    rules = make_rules(
        small.job.digest, STEPS, max(2, cell.k), ARITY, sealing=session_clock() + SEALING,
        opening=OPENING, budget=BUDGET, step=0, extension=EXTENSION, allowed=keys,
    )  # fmt: skip
    live = Live(small.job.terms, rules, seats, small.most)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = []
        for number, seat in enumerate(seats):
            if seat.honest:
                kept, key = scratch / str(number), seat.member.key
                terms = small.job.terms
                party = Registered(seat.member, key, terms, [REFEREE.public], kept)
                urls.append(stack.enter_context(serving(party, faults=[])))
            else:
                urls.append(stack.enter_context(_serving(Attacker(seat, live.signed).app())))
        live.arbiter = asyncio.run(_drive(live, urls)).arbiter
    ended = Ended(live)  # type: ignore[arg-type]
    ended.check()
    return ended


async def _drive(live: Live, urls: list[str]) -> Driver:
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(PartyClient(url, None)) for url in urls]
        driver = Driver(live.terms, REFEREE, live.signed, links, live.rules, farewell=0.5)
        await asyncio.wait_for(driver.run(), 600)
        return driver


def cells() -> list[Cell]:
    """Every attack and variant at k = 2 (3 where it needs more), seats in turn; ten at k = 5."""
    found = []
    for name, attack in session_attacks().items():
        for number, variant in enumerate(attack.variants):
            found.append(Cell(name, variant, 3 if attack.claim == "true" else 2, number % 2))
        if name in TEN:
            found.append(Cell(name, attack.variants[-1], 5, len(found) % 2))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=6)
    given = parser.parse_args()
    began, failed, games = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.at_once) as threads:
        small = Small(Path(scratch), 3)
        wanted = [cell for cell in cells() if given.only in cell.attack]
        futures = [(cell, threads.submit(play_over_http, small, cell)) for cell in wanted]
        print(
            "| attack | k | seat | the liars end as | games | entries |\n|---|---|---|---|---|---|"
        )
        for cell, future in futures:
            try:
                ended = future.result()
            except BaseException as error:
                failed += 1
                print(f"| {cell.row} | {cell.k} | {cell.seat} | FAILED {error!r:.300} | | |")
                continue
            liars = [seat for seat in ended.table.seats if not seat.honest]
            fates = "+".join(sorted({ended.fate(seat) for seat in liars}))
            games += len(ended.session.matches)
            row = (cell.row, cell.k, cell.seat, fates, len(ended.session.matches))
            print("| " + " | ".join(map(str, (*row, ended.session.length))) + " |", flush=True)
    result = {
        "cells": len(wanted), "failed": failed, "games": games,
        "seconds": round(time.monotonic() - began, 1), "tallystick": tallystick_version(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
