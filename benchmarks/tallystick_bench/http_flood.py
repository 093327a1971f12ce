"""Clients that take a server's places and give nothing for them, from many addresses.

Each client connects, sends the beginning of something, waits as long as it may, and comes again at
once where it was cut off. On one machine the addresses are those of 127/8, all of them local.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence

_CARD = b"GET /v1/party HTTP/1.1\r\nhost: x\r\n\r\n"
_POST = b"POST /v1/turn HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\nx"
# What a client sends before it waits: the next where it was cut off, the same where it was not.
KINDS = {
    "half a head": (b"GET /",),
    "silence": (b"",),
    "idle": (_CARD,),  # a whole request, and then its connection is kept
    "short body": (_POST % 100,),
    # Together they fill the room for bodies to the last kilobyte.
    "large body": tuple(_POST % size for size in (9 << 20, 1 << 20, 100_000, 10_000, 1000, 500)),
}


def addresses(count: int) -> list[str]:
    """`count` loopback addresses, none of them 127.0.0.1."""
    return [f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(count)]


async def _client(
    port: int,
    address: str,
    begun: Sequence[bytes],
    hold: float,
    pause: float,
    counts: Counter[str],
) -> None:
    turn = 0
    while True:
        data = begun[turn % len(begun)]
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0)
            )
        except OSError:
            counts["not connected"] += 1
            await asyncio.sleep(pause)
            continue
        counts["connections"] += 1
        counts["bytes"] += len(data)
        try:
            writer.write(data)
            await asyncio.wait_for(reader.read(), hold)  # until the server ends it
            counts["ended by the server"] += 1
            turn += 1
        except asyncio.TimeoutError:
            counts["held to the end"] += 1
        except OSError:
            counts["ended by the server"] += 1
            turn += 1
        finally:
            with contextlib.suppress(OSError):
                writer.transport.abort()
        await asyncio.sleep(pause)


async def flood(
    port: int,
    clients: int,
    at: Sequence[str],
    kind: str,
    counts: Counter[str],
    hold: float = 9.0,
    pause: float = 0.1,
) -> None:
    """Hold `clients` connections of `kind` from the addresses `at`, in turn, until cancelled.

    Each is held for `hold` seconds; a client waits `pause` seconds before it comes again. `counts`
    gets what happened.
    """
    begun = KINDS[kind]
    await asyncio.gather(
        *(_client(port, at[n % len(at)], begun, hold, pause, counts) for n in range(clients))
    )
