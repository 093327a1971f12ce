"""Sessions while a flood holds the honest party's server (docs/adr/0013-http.md).

A few dozen clients against bounds that are as much smaller as they are fewer. The figures for
hundreds and thousands are those of `benchmarks/service_flood.py` (docs/proofs/service-flood.md).
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from service.links import HTTP, HTTPS, Direct, Host, drive, hosts, judged, rules
from service.parties import B, Player
from service.transports import Certificates, until

from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import CONTESTED
from tallystick.delegation.session import LOST, OPENING, PLAYING
from tallystick.delegation.turns import Card, Reply
from tallystick.job.job import Job
from tallystick.service.doors import BOUNDS
from tallystick.service.driver import Driver
from tallystick_bench.http_flood import addresses, flood

CLIENTS, PEERS = 40, 4
SMALL = replace(
    BOUNDS, connections=32, peer_connections=10, requests=16, peer_requests=8, handshakes=8
)
MOMENTS = {"sealing": "", "opening": OPENING, "play": PLAYING}


class Anew(Direct):
    """A link to a host that makes a connection for each request, as after every pause."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.party, host.url)
        self._host = host

    def link(self) -> Anew:
        return self

    async def card(self) -> Card:
        async with self._host.link() as link:  # type: ignore[attr-defined]
            found = await link.card()
        assert isinstance(found, Card)
        return found

    async def turn(self, turn: bytes) -> Reply:
        async with self._host.link() as link:  # type: ignore[attr-defined]
            reply: Reply = await link.turn(turn)
        return reply


@contextmanager
def flooding(port: int, kind: str) -> Iterator[None]:
    """A flood of `kind` in a thread of its own; every client has come once when this begins."""
    counts: Counter[str] = Counter()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        await flood(port, CLIENTS, addresses(PEERS), kind, counts)

    task = loop.create_task(run())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        until(lambda: counts["connections"] + counts["not connected"] >= CLIENTS)
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        until(task.done)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def _session(
    job: Job, pair: tuple[Player, Player], path: Path, moment: str, flood_of: str, kind: str = HTTP
) -> tuple[Driver, Host]:
    """A session whose honest party is flooded from `moment` on."""
    limits = {"opening": 12_000, "budget": 8_000, "extension": 8_000}
    certificates = Certificates(path) if kind == HTTPS else None
    with ExitStack() as stack:
        at = stack.enter_context(hosts(kind, pair, path / "parties", certificates, SMALL))
        state, begun = MOMENTS[moment], threading.Event()

        def begin() -> None:
            begun.set()
            stack.enter_context(flooding(at[0].port, flood_of))

        def look(driver: Driver) -> None:
            if state and driver.arbiter.session.state == state and not begun.is_set():
                begin()

        if not state:
            begin()
        found = rules(job, pair, **limits)
        found = replace(found, sealing=found.sealing - 48_000)
        links: list[Host] = [Anew(at[0]), at[1]]  # type: ignore[list-item]
        driver = drive(job, links, found, on_change=look)
        assert begun.is_set()
        return driver, at[0]


def _right(job: Job, driver: Driver, pair: tuple[Player, Player]) -> None:
    """The cheat is convicted by its words, and the honest party's claim is left."""
    session = driver.arbiter.session
    lost: dict[PublicKey, str] = {B.public: LOST}
    assert driver.result is not None and driver.result.outcome == CONTESTED, session.removed
    assert session.removed == lost and not judged(job, driver).verdict.forfeit
    assert [side[0].key for side in session.sides] == [pair[0].key.public]


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_honest_party_gets_in(
    moment: str, small_job: Job, pair: tuple[Player, Player], tmp_path: Path
) -> None:
    driver, _ = _session(small_job, pair, tmp_path, moment, "half a head")
    _right(small_job, driver, pair)


@pytest.mark.parametrize("kind", ["silence", "idle", "short body", "large body"])
def test_whatever_the_clients_wait_for(
    kind: str, small_job: Job, pair: tuple[Player, Player], tmp_path: Path
) -> None:
    driver, _ = _session(small_job, pair, tmp_path, "sealing", kind)
    _right(small_job, driver, pair)


@pytest.mark.parametrize("kind", ["silence", "half a head"])
def test_handshakes_that_never_end(
    kind: str, small_job: Job, pair: tuple[Player, Player], tmp_path: Path
) -> None:
    """Half a head in clear text is no handshake at all, and silence is one that never ends."""
    driver, _ = _session(small_job, pair, tmp_path, "sealing", kind, HTTPS)
    _right(small_job, driver, pair)
