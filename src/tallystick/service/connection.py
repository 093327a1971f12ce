"""The connections of a server: the listening socket that accepts them, and bounds on each.

The socket gives each connection a place, or refuses it at once: a refusal costs the server a system
call or two, before any object of a connection is made, and the places of TLS connections count from
the first packet on. A loop of the standard library accepts by this socket's `accept`; a connection
that came in another way has no place and is ended.

uvicorn bounds the size of a head and the pause between two requests. `Connection` adds the bounds
that it lacks: a peer that sends a head byte by byte, or does not read its response, is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tallystick.service.doors import DoorConnection, Doors, peer_of
from tallystick.service.guard import PLACE

# Connections that are accepted in one turn of the loop. What has come from earlier ones is read
# before more are accepted, so that a head that is there already is seen.
_AT_ONCE = 64
_REFUSED_AT_ONCE = 256


class _Accepted(socket.socket):
    """A connection's socket, which tells when it is closed, for whatever reason."""

    on_close: Callable[[int], None] | None = None

    def close(self) -> None:
        if self.on_close is not None:
            self.on_close(self.fileno())
            self.on_close = None
        super().close()


class ListeningSocket(socket.socket):
    """A listening socket, made of another one, which gives no longer any access to it."""

    def __init__(self, listening: socket.socket) -> None:
        self._kind = listening.family, listening.type, listening.proto
        super().__init__(*self._kind, fileno=listening.detach())
        self._doors: Doors | None = None
        self._handshake: float | None = None
        self._places: dict[int, DoorConnection] = {}
        self._accepted = 0

    def guard_by(self, doors: Doors, handshake: bool) -> None:
        """Give places from now on; connections begin with a `handshake` or not."""
        self._doors = doors
        self._handshake = doors.bounds.handshake_seconds if handshake else None

    def place_of(self, descriptor: int) -> DoorConnection | None:
        """The place of the connection whose socket has this descriptor."""
        return self._places.get(descriptor)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that has a place. Raises BlockingIOError where the loop shall first
        do its other work."""
        if self._doors is None:
            raise BlockingIOError("not guarded yet")
        try:
            for _ in range(_REFUSED_AT_ONCE):
                if self._accepted >= _AT_ONCE:
                    break
                connection, address = super().accept()
                if (guarded := self._guarded(connection, address, self._doors)) is not None:
                    self._accepted += 1
                    return guarded, address
        except BaseException:
            self._accepted = 0
            raise
        self._accepted = 0
        raise BlockingIOError("enough for this turn")

    def _guarded(self, connection: socket.socket, address: Any, doors: Doors) -> _Accepted | None:
        accepted = _Accepted(*self._kind, fileno=connection.detach())
        loop = asyncio.get_running_loop()

        def cut() -> None:
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

        place = doors.admit(peer_of(address[0]), loop.time(), cut, self._handshake is not None)
        if place is None:
            accepted.close()
            return None
        self._places[accepted.fileno()] = place
        late = None
        if self._handshake is not None:
            late = loop.call_later(self._handshake, self._late, place, doors)

        def closed(number: int) -> None:
            self._places.pop(number, None)
            doors.leave(place)
            if late is not None:
                late.cancel()

        accepted.on_close = closed
        return accepted

    def _late(self, place: DoorConnection, doors: Doors) -> None:
        if doors.shakes_hands(place):
            place.cut()


class Connection(H11Protocol):
    """An HTTP/1.1 connection that keeps to the bounds of its server's `doors`."""

    doors: Doors  # both set by `connection_class`
    listener: ListeningSocket

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._place: DoorConnection | None = None
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the place that the listener has given, or end where there is none."""
        super().connection_made(transport)
        place = self.listener.place_of(transport.get_extra_info("socket").fileno())
        if place is None or place.gone:
            transport.abort()
            return
        self.doors.secured(place)
        place.cut = transport.abort
        self._place = place
        self.app_state = {**self.app_state, PLACE: place}
        self._cut_after(self.doors.bounds.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        self._stop()
        if self._place is not None:
            self.doors.leave(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. A head has its time from its first byte on, however slowly it comes."""
        if self._place is None or self._place.gone:
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
        if self._place is not None:
            self._place.shown = True  # so that it does not pay twice
            self.doors.rates.bad(self._place.peer)
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """The request is over; from here on uvicorn's bound on the pause counts."""
        self._stop()
        if self.transport.is_closing():
            # Bytes may still be on their way to a peer that does not read.
            self._cut_after(self.doors.bounds.closing_seconds)
        if self._place is not None:
            self.doors.wait(self._place, self.loop.time())
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """The pause was too long. Here, too, bytes may still be on their way."""
        super().timeout_keep_alive_handler()
        self._cut_after(self.doors.bounds.closing_seconds)

    def _cut_after(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._cut)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._timer = None
        if self._place is not None and self._place.shown:
            self.doors.rates.bad(self._place.peer)  # others pay where they leave
        self.transport.abort()


def connection_class(doors: Doors, listener: ListeningSocket) -> type[Connection]:
    """A class of connections for one server."""
    return type("Connection", (Connection,), {"doors": doors, "listener": listener})
