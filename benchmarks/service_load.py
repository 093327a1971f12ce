"""Disputes over HTTP, many at a time, beside a flood of malformed requests (docs/adr/0013-http.md).

    python benchmarks/service_load.py [--sessions 64] [--no-flood] [--json]

One process serves an honest run, others serve runs that cheat in different places. So many sessions
of an honest party and a cheating one are held at the same time. The flood comes from another
address of this machine: garbage, oversized bodies, forged turns, heads that never end, connections
that say nothing. Every session must convict its cheat by a signed statement, and the honest
server's memory must stay bounded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tallystick.cli.main import run as command_line
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.rules import Rules
from tallystick.disk.keys import save_private_key
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.service.client import PartyClient
from tallystick.service.driver import Driver, session_clock

FLOOD_ADDRESS = "127.0.0.2"
FLOOD_WORKERS = 48
FLOOD_PAUSE = 0.02  # seconds between two requests of a worker
CHEATS = 4


class Served:
    """A `tallystick serve` process."""

    def __init__(self, run: Path, referee: Path, cheats: bool) -> None:
        words = ["serve", str(run), "--listen", "127.0.0.1:0", "--referee", str(referee)]
        words += ["--as-attack"] if cheats else []
        command = [sys.executable, "-m", "tallystick", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[1]
        self.port = int(self.url.rpartition(":")[2])

    async def learn_key(self) -> None:
        """Ask the server for its party's key."""
        async with PartyClient(self.url) as link:
            self.key = (await link.card()).key

    def memory(self, name: str) -> float:
        """MiB of the process: VmRSS now, VmHWM at most so far."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith(name + ":"))
        return int(line.split()[1]) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def make(path: Path) -> tuple[Job, PrivateKey, Path, list[Path]]:
    """A job, the referee's key, an honest run and some that cheat, in different steps."""
    settings = {"features": "16", "classes": "4", "records": "64", "batch_size": "8"}
    job = new_job("mlp", path / "job", settings, steps=40, checkpoint_interval=10, evaluate_every=0)
    key = PrivateKey.generate()
    save_private_key(key, path / "referee.pem")
    (path / "referee.pub").write_bytes(key.public.pem())
    train_job(job, path / "honest", Options())
    cheats = []
    for number in range(CHEATS):
        out = path / f"cheat-{number}"
        words = ["attack", "lie-output", str(path / "job"), "--out", str(out)]
        assert command_line([*words, "--set", f"step={5 + 9 * number}"]) == 0
        cheats.append(out)
    return job, key, path / "honest", cheats


async def session(job: Job, key: PrivateKey, honest: str, cheat: str) -> tuple[bool, int, float]:
    """One session: whether the cheat alone was convicted by its words, rounds, seconds."""
    rules = Rules(
        job.digest, os.urandom(32), key.public, 20, 2, 0, 600_000, 600_000, 0, 0, 120_000
    )  # fmt: skip
    began = time.monotonic()
    async with PartyClient(honest) as first, PartyClient(cheat) as second:
        keys = [(await link.card()).key for link in (first, second)]
        allowed = tuple(sorted(keys, key=lambda k: k.raw))
        found = Rules(
            **{**rules.__dict__, "allowed": allowed, "sealing": session_clock() + 600_000}
        )
        driver = Driver(job.terms, key, [], [first, second], found)
        await driver.run()
    state = driver.arbiter.session
    game = state.matches[0].referee
    assert game is not None and game.verdict is not None
    right = set(state.removed) == {keys[1]} and not game.verdict.forfeit
    return right, game.rounds, time.monotonic() - began


# -- the flood -------------------------------------------------------------------------------------


def _requests(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Kinds of bad requests, for ever."""
    while True:
        size = rng.choice((64, 1000, 100_000))
        yield "garbage", rng.randbytes(size)
        yield "forged turn", _post(rng.randbytes(size))
        yield (
            "oversized",
            b"POST /v1/turn HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
        )
        yield "no length", b"POST /v1/turn HTTP/1.1\r\nhost: x\r\n\r\n" + rng.randbytes(100)
        chunked = b"POST /v1/turn HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        yield "chunked", chunked + b"ffffffff\r\n" + rng.randbytes(size)
        yield "short body", b"POST /v1/turn HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\nx"
        yield "endless head", b"GET /v1/party HTTP/1.1\r\n" + b"x: y\r\n" * 5000
        yield "half a head", b"GET /v1/par"
        yield "silence", b""
        yield "elsewhere", b"GET /../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n"
        yield "a card", b"GET /v1/party HTTP/1.1\r\nhost: x\r\n\r\n"


def _post(body: bytes) -> bytes:
    return b"POST /v1/turn HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def flood(port: int, seed: int, counts: Counter[str]) -> None:
    """One worker of the flood, until it is cancelled."""
    rng = random.Random(seed)
    for kind, data in _requests(rng):
        counts["sent"] += 1
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(FLOOD_ADDRESS, 0)
            )
        except OSError:
            counts["not connected"] += 1
            await asyncio.sleep(FLOOD_PAUSE)
            continue
        with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError):
            writer.write(data)
            line = await asyncio.wait_for(reader.readline(), 2)
            counts[f"{kind}: {line.split()[1].decode() if line.split()[1:] else 'cut'}"] += 1
        writer.transport.abort()
        await asyncio.sleep(FLOOD_PAUSE)


async def flood_until_told(port: int) -> None:
    """The flood's own process: until a line comes, then its counts."""
    counts: Counter[str] = Counter()
    workers = [asyncio.create_task(flood(port, seed, counts)) for seed in range(FLOOD_WORKERS)]
    assert workers
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps(counts), flush=True)
    os._exit(0)  # the workers have nothing to finish


async def hold(
    job: Job, key: PrivateKey, honest: Served, cheats: list[Served], sessions: int, floods: bool
) -> dict[str, object]:
    """Hold the sessions, beside a flood or not; the figures."""
    flooding = None
    if floods:
        flooding = subprocess.Popen(
            [sys.executable, __file__, "--flood", str(honest.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        await asyncio.sleep(5)
    before, began = honest.memory("VmRSS"), time.monotonic()
    found = await asyncio.gather(
        *(session(job, key, honest.url, cheats[n % len(cheats)].url) for n in range(sessions))
    )
    seconds = time.monotonic() - began
    counts: Counter[str] = Counter()
    if flooding is not None:
        counts.update(json.loads(flooding.communicate("stop\n")[0]))
    times = sorted(t for _, _, t in found)
    return {
        "sessions": sessions,
        "right": sum(right for right, _, _ in found),
        "seconds": round(seconds, 1),
        "median_session_seconds": round(times[len(times) // 2], 1),
        "slowest_session_seconds": round(times[-1], 1),
        "rounds": max(rounds for _, rounds, _ in found),
        "flood_requests": counts.pop("sent", 0),
        "flood": dict(sorted(counts.items())),
        "server_mib_before": round(before, 1),
        "server_mib_most": round(honest.memory("VmHWM"), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--no-flood", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flood", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood:
        asyncio.run(flood_until_told(given.flood))
        return 0
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        path = Path(directory)
        with contextlib.redirect_stdout(sys.stderr):
            job, key, run, lies = make(path)
        served = [Served(run, path / "referee.pub", False)]
        served += [Served(lie, path / "referee.pub", True) for lie in lies]
        for one in served:
            stack.callback(one.stop)
        honest, cheats = served[0], served[1:]
        found = asyncio.run(hold(job, key, honest, cheats, given.sessions, not given.no_flood))
        assert honest.process.poll() is None
    print(json.dumps(found, indent=2 if given.json else None))
    return 0 if found["right"] == given.sessions else 1


if __name__ == "__main__":
    sys.exit(main())
