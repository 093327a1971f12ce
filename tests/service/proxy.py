"""A bad network between a referee and a party: it delays, refuses, cuts and swallows.

    python tests/service/proxy.py LISTEN_HOST:PORT TARGET_HOST:PORT [--seed N] [--bad RATE]

It knows nothing of what it carries (TLS passes through). What it does to a connection follows from
the seed and the connection's number.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from dataclasses import dataclass, field

_CHUNK = 4096
_SWALLOW_SECONDS = 1.0


@dataclass
class Proxy:
    """Carries bytes from `listen` to `target`.

    A connection is refused, cut after some chunks, or swallowed from some chunk on (nothing comes
    through until it is cut), each with probability `bad`. Each chunk is late by up to `delay`
    seconds.
    """

    listen: tuple[str, int]
    target: tuple[str, int]
    seed: int = 0
    bad: float = 0.1
    delay: float = 0.01
    number: int = 0
    hurt: dict[str, int] = field(default_factory=lambda: {"refused": 0, "cut": 0, "swallowed": 0})

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._carry, *self.listen)
        self.listen = server.sockets[0].getsockname()[:2]
        return server

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number += 1
        fate = random.Random(self.seed * 1_000_003 + self.number)
        kind = fate.choices(
            ("refused", "cut", "swallowed", "carried"), [self.bad] * 3 + [1 - 3 * self.bad]
        )[0]
        writers = [writer]
        try:
            if kind == "refused":
                self.hurt[kind] += 1
                return
            there = await asyncio.open_connection(*self.target)
            writers.append(there[1])
            ways = [
                asyncio.create_task(self._way(reader, there[1], fate, kind)),
                asyncio.create_task(self._way(there[0], writer, fate, kind)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass
        finally:
            for one in writers:
                one.transport.abort() if kind in ("refused", "cut") else one.close()

    async def _way(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        fate: random.Random,
        kind: str,
    ) -> None:
        left = fate.randrange(1, 8)
        while chunk := await reader.read(_CHUNK):
            await asyncio.sleep(fate.random() * self.delay)
            left -= 1
            if left < 0 and kind == "cut":
                self.hurt[kind] += 1
                return
            if left < 0 and kind == "swallowed":
                self.hurt[kind] += 1
                await asyncio.sleep(_SWALLOW_SECONDS)
                return
            writer.write(chunk)
            await writer.drain()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("listen", type=_address)
    parser.add_argument("target", type=_address)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bad", type=float, default=0.1)
    given = parser.parse_args()
    server = await Proxy(given.listen, given.target, given.seed, given.bad).start()
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
