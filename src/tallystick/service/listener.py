"""The listening socket of a server: it gives each connection a place, or refuses it at once.

Here a refusal costs the server a system call or two, before any object of a connection is made,
and the places of TLS connections count from the first packet on. A loop of the standard library
accepts by this socket's `accept`; a connection that came in another way has no place and is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from tallystick.service.doors import Doors, Place
from tallystick.service.peers import peer_of

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


class Listener(socket.socket):
    """A listening socket, made of another one, which gives no longer any access to it."""

    def __init__(self, listening: socket.socket) -> None:
        self._kind = listening.family, listening.type, listening.proto
        super().__init__(*self._kind, fileno=listening.detach())
        self._doors: Doors | None = None
        self._handshake: float | None = None
        self._places: dict[int, Place] = {}
        self._accepted = 0

    def guard_by(self, doors: Doors, handshake: bool) -> None:
        """Give places from now on; connections begin with a `handshake` or not."""
        self._doors = doors
        self._handshake = doors.bounds.handshake_seconds if handshake else None

    def place_of(self, descriptor: int) -> Place | None:
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

    def _late(self, place: Place, doors: Doors) -> None:
        if doors.shakes_hands(place):
            place.cut()
