"""Sessions while a flood holds the honest party's places (docs/adr/0013-http.md).

    python benchmarks/service_flood.py [--clients 600] [--addresses 4] [--kind "half a head"]
        [--sessions 20] [--at-once 4] [--json]

The flood is a process of its own, aimed at the server of an honest run; other servers hold runs
that cheat. Each session is between the honest party and a cheating one, with new connections. It
must convict the cheat alone, by a signed statement. With `--clients 0` there is no flood. A probe
asks the honest server for its card four times a second, each time by a new connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from service_load import Served, make
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.entries import RESULTS
from tallystick.delegation.rules import Rules
from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.service.client import PartyClient
from tallystick.service.driver import Driver, session_clock
from tallystick_bench.http_flood import KINDS, addresses, flood

SEALING, OPENING, BUDGET, EXTENSION = 20_000, 20_000, 60_000, 20_000
PROBE_PAUSE = 0.25


@dataclass
class Held:
    """One session: its outcome, whether the honest party sealed, whether all is right, seconds."""

    outcome: str
    sealed: bool
    right: bool
    seconds: float


async def session(job: Job, key: PrivateKey, honest: Served, cheat: Served) -> Held:
    """One session of an honest party and a cheating one; the keys are known beforehand."""
    allowed = tuple(sorted((honest.key, cheat.key), key=lambda k: k.raw))
    rules = Rules(
        job.digest, os.urandom(32), key.public, 20, 2, session_clock() + SEALING, OPENING, BUDGET,
        0, 0, EXTENSION, allowed,
    )  # fmt: skip
    began = time.monotonic()
    async with PartyClient(honest.url) as first, PartyClient(cheat.url) as second:
        driver = Driver(job.terms, key, [], [first, second], rules)
        result = await driver.run()
    state = driver.arbiter.session
    game = state.matches[0].referee if state.matches else None
    by_words = game is not None and game.verdict is not None and not game.verdict.forfeit
    return Held(
        RESULTS[result.outcome].name,
        honest.key in state.seals,
        by_words and set(state.removed) == {cheat.key},
        time.monotonic() - began,
    )


async def _probe(url: str, times: list[float], faults: Counter[str]) -> None:
    while True:
        began = time.monotonic()
        try:
            async with PartyClient(url) as link:
                await link.card()
            times.append(time.monotonic() - began)
        except TallystickError as error:
            faults[error.message] += 1
        await asyncio.sleep(PROBE_PAUSE)


async def flood_until_told(port: int, clients: int, count: int, kind: str) -> None:
    """The flood's own process: until a line comes, then its counts."""
    counts: Counter[str] = Counter()
    task = asyncio.create_task(flood(port, clients, addresses(count), kind, counts))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    assert not task.done()
    print(json.dumps(counts), flush=True)
    os._exit(0)  # the clients have nothing to finish


def _quantile(sorted_times: list[float], part: float) -> float | None:
    if not sorted_times:
        return None
    return round(sorted_times[min(len(sorted_times) - 1, int(part * len(sorted_times)))], 3)


async def hold(
    job: Job, key: PrivateKey, honest: Served, cheats: list[Served], given: argparse.Namespace
) -> dict[str, object]:
    """Hold the sessions beside the flood; the figures."""
    flooding = None
    if given.clients:
        words = ["--flood", honest.port, "--clients", given.clients, "--addresses", given.addresses]
        flooding = subprocess.Popen(
            [sys.executable, __file__, *map(str, words), "--kind", given.kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        await asyncio.sleep(3)
    before, began = honest.memory("VmRSS"), time.monotonic()
    times: list[float] = []
    faults: Counter[str] = Counter()
    probe = asyncio.create_task(_probe(honest.url, times, faults))
    places = asyncio.Semaphore(given.at_once)

    async def one(number: int) -> Held:
        async with places:
            return await session(job, key, honest, cheats[number % len(cheats)])

    found = await asyncio.gather(*(one(n) for n in range(given.sessions)))
    seconds = time.monotonic() - began
    probe.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await probe
    counts: Counter[str] = Counter()
    if flooding is not None:
        counts.update(json.loads(flooding.communicate("stop\n")[0]))
    taken, probed = sorted(held.seconds for held in found), sorted(times)
    return {
        "clients": given.clients,
        "addresses": given.addresses if given.clients else 0,
        "kind": given.kind,
        "sessions": given.sessions,
        "honest_sealed": sum(held.sealed for held in found),
        "right": sum(held.right for held in found),
        "outcomes": dict(Counter(held.outcome for held in found)),
        "seconds": round(seconds, 1),
        "session_seconds": {"median": _quantile(taken, 0.5), "most": _quantile(taken, 1.0)},
        "card_seconds": {
            "asked": len(times) + sum(faults.values()), "failed": dict(faults),
            "median": _quantile(probed, 0.5), "p95": _quantile(probed, 0.95),
            "most": _quantile(probed, 1.0),
        },
        "flood": dict(sorted(counts.items())),
        "server_mib": {"before": round(before, 1), "most": round(honest.memory("VmHWM"), 1)},
        "load_average": os.getloadavg()[0],
        "tallystick": tallystick_version(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=600)
    parser.add_argument("--addresses", type=int, default=4)
    parser.add_argument("--kind", choices=sorted(KINDS), default="half a head")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flood", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood:
        asyncio.run(flood_until_told(given.flood, given.clients, given.addresses, given.kind))
        return 0
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        path = Path(directory)
        with contextlib.redirect_stdout(sys.stderr):
            job, key, run, lies = make(path)
        served = [Served(run, path / "referee.pub", False)]
        served += [Served(lie, path / "referee.pub", True) for lie in lies]
        for one in served:
            stack.callback(one.stop)
            asyncio.run(one.learn_key())
        found = asyncio.run(hold(job, key, served[0], served[1:], given))
        assert served[0].process.poll() is None
    print(json.dumps(found, indent=2 if given.json else None))
    return 0 if found["right"] == given.sessions else 1


if __name__ == "__main__":
    sys.exit(main())
