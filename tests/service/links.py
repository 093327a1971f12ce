"""Sessions of several parties, each behind one kind of link: a call, HTTP, or HTTPS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed_copy
from pathlib import Path

from service.parties import REFEREE, Player
from service.transports import Certificates, client, now, serving

from tallystick.commit.signing import PrivateKey
from tallystick.delegation.rules import Rules
from tallystick.delegation.turns import Card, Reply
from tallystick.delegation.watch import replayed
from tallystick.job.job import Job
from tallystick.protocol.judge import Judgement, judge
from tallystick.prover.registered import Registered
from tallystick.service.client import UnreachableError
from tallystick.service.doors import BOUNDS, Bounds
from tallystick.service.driver import Driver, Link, session_clock

MEMORY, HTTP, HTTPS = "memory", "http", "https"


class Direct:
    """A link that calls the party. `filter` may change or withhold a reply."""

    def __init__(self, party: Registered, url: str = "memory") -> None:
        self.party, self.url = party, url
        self.down = False

    async def card(self) -> Card:
        if self.down:
            raise UnreachableError("it is down")
        return Card(self.party.key, self.party.terms.digest, self.party.hands_over_logs)

    async def turn(self, turn: bytes) -> Reply:
        if self.down:
            raise UnreachableError("it is down")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self.party.reply, turn, 0.2)


@dataclass
class Host:
    """A party and its server, which can be stopped and started again."""

    make: Callable[[], Registered]
    kind: str
    certificates: Certificates | None = None
    bounds: Bounds = BOUNDS
    party: Registered = field(init=False)
    direct: Direct = field(init=False)
    port: int = 0
    url: str = ""
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        self.party = self.make()
        if self.kind == MEMORY:
            if not self.url:
                self.direct, self.url = Direct(self.party), "memory"
            self.direct.party, self.direct.down = self.party, False
            return
        tls = self.certificates if self.kind == HTTPS else None
        listen = f"127.0.0.1:{self.port}"
        self.url = self._stack.enter_context(
            serving(self.party, tls, self.bounds, listen=listen, faults=[])
        )
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        if self.kind == MEMORY:
            self.direct.down = True
        self._stack.close()
        self.party.close()

    def link(self) -> Link:
        """A new way to the party."""
        if self.kind == MEMORY:
            return self.direct
        return client(self.url, self.certificates if self.kind == HTTPS else None)


@contextmanager
def hosts(
    kind: str,
    players: Sequence[Player],
    directory: Path,
    certificates: Certificates | None = None,
    bounds: Bounds = BOUNDS,
) -> Iterator[list[Host]]:
    """A host for each player; each keeps its sessions in a directory of its own."""
    found = []
    for number, player in enumerate(players):

        def make(player: Player = player, number: int = number) -> Registered:
            terms = player.party.job.terms
            kept = directory / f"sessions-{number}"
            return Registered(player, player.key, terms, [REFEREE.public], kept)

        found.append(Host(make, kind, certificates, bounds))
    try:
        for host in found:
            host.start()
        yield found
    finally:
        for host in found:
            host.stop()


def rules(job: Job, players: Sequence[Player], **changed: object) -> Rules:
    """Rules with ample time, of these players alone."""
    allowed = tuple(sorted({p.key.public for p in players}, key=lambda key: key.raw))
    base = Rules(
        job.digest, b"n" * 32, REFEREE.public, 4, max(2, len(allowed)), session_clock() + 60_000,
        60_000, 120_000, 0, 0, 30_000, allowed,
    )  # fmt: skip
    return changed_copy(base, **changed)  # type: ignore[arg-type]


async def _drive(
    job: Job,
    links: Sequence[Link],
    found: Rules | None,
    log: list[bytes],
    key: PrivateKey,
    on_change: Callable[[Driver], None],
) -> Driver:
    async with AsyncExitStack() as stack:
        for link in links:
            if not isinstance(link, Direct):
                await stack.enter_async_context(link)  # type: ignore[arg-type]
        driver = Driver(job.terms, key, log, links, found, on_change=on_change, farewell=0.3)
        await asyncio.wait_for(driver.run(), 30)
        return driver


def drive(
    job: Job,
    at: Sequence[Host],
    found: Rules | None,
    log: list[bytes] | None = None,
    key: PrivateKey = REFEREE,
    on_change: Callable[[Driver], None] = lambda _: None,
) -> Driver:
    """Drive a session to its result. Its log must be the one of a true referee (12.5)."""
    written: list[bytes] = [] if log is None else log
    driver = now(_drive(job, [host.link() for host in at], found, written, key, on_change))
    again = replayed(job.terms, written)
    assert again.result == driver.result
    assert again.removed == driver.arbiter.session.removed
    return driver


def judged(job: Job, driver: Driver, game: int = 0) -> Judgement:
    """What a judge says about a game's evidence, believing the referee about silence."""
    evidence = driver.arbiter.session.matches[game].evidence().to_bytes()
    return judge(job.terms, evidence, None, [REFEREE.public])


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Run something beside the session."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
