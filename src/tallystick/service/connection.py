"""One connection of a server, with bounds on time and number.

uvicorn bounds the size of a head and the pause between two requests. This class adds the bounds
that it lacks: a peer that sends a head byte by byte, or does not read its response, is cut off, and
so is one that has too many connections. Under TLS it counts handshakes too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tallystick.service.bounds import Bounds
from tallystick.service.rates import Rates


@dataclass
class Doors:
    """The connections of one server: all, by peer, and those whose handshake is under way."""

    bounds: Bounds
    rates: Rates
    open: int = 0
    peers: Counter[str] = field(default_factory=Counter)
    handshakes: dict[int, float] = field(default_factory=dict)

    def admit(self, peer: str) -> bool:
        """Count a connection of `peer`; False if there are too many."""
        if self.open >= self.bounds.connections or self.peers[peer] >= self.bounds.peer_connections:
            if not self.peers[peer]:
                del self.peers[peer]
            return False
        self.open += 1
        self.peers[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        """A connection that `admit` has counted is gone."""
        self.open -= 1
        self.peers[peer] -= 1
        if not self.peers[peer]:
            del self.peers[peer]

    def knock(self, number: int, now: float) -> None:
        """Note that a handshake begins. Raises ConnectionAbortedError if there are too many."""
        late = now - self.bounds.handshake_seconds
        for other in [n for n, begun in self.handshakes.items() if begun < late]:
            del self.handshakes[other]
        if len(self.handshakes) >= self.bounds.handshakes:
            raise ConnectionAbortedError("too many handshakes")
        self.handshakes[number] = now


class Connection(H11Protocol):
    """An HTTP/1.1 connection that keeps to the bounds of its server's `doors`."""

    doors: Doors  # set by `connection_class`

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._peer: str | None = None
        self._in_head = True
        if self.config.is_ssl:
            self.doors.knock(id(self), self.loop.time())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the peer, or cut it off."""
        self.doors.handshakes.pop(id(self), None)
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        if not (self.doors.rates.take(peer, self.loop.time()) and self.doors.admit(peer)):
            transport.abort()
            return
        self._peer = peer
        self._cut_after(self.doors.bounds.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the peer's place."""
        self._stop()
        if self._peer is not None:
            self.doors.leave(self._peer)
            self._peer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. A head has its time from its first byte on, however slowly it comes."""
        if self._peer is None:
            return
        if self._timer is None:
            self._cut_after(self.doors.bounds.head_seconds)
            self._in_head = True
        super().data_received(data)

    def handle_events(self) -> None:
        """Parse what has come. Once a head is whole, its request has the time of a whole one."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self.conn.their_state is not h11.IDLE:
            self._in_head = False
            if not self.cycle.response_complete:
                self._cut_after(self.doors.bounds.whole_seconds)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP. It costs the peer as a bad request does."""
        if self._peer is not None:
            self.doors.rates.bad(self._peer)
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """The request is over; from here on uvicorn's bound on the pause counts."""
        self._stop()
        if self.transport.is_closing():
            # Bytes may still be on their way to a peer that does not read.
            self._cut_after(self.doors.bounds.head_seconds)
        super().on_response_complete()

    def _cut_after(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._cut)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._timer = None
        if self._peer is not None:
            self.doors.rates.bad(self._peer)
        self.transport.abort()


def connection_class(bounds: Bounds, rates: Rates) -> type[Connection]:
    """A class of connections for one server."""
    return type("Connection", (Connection,), {"doors": Doors(bounds, rates)})
