"""One connection of a server, with bounds on time and number.

uvicorn bounds the size of a head and the pause between two requests. This class adds the bounds
that it lacks: a peer that sends a head byte by byte, or does not read its response, is cut off. The
place of a connection comes from the socket that accepted it (`service.listener`).
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tallystick.service.doors import Doors, Place
from tallystick.service.guard import PLACE
from tallystick.service.listener import Listener


class Connection(H11Protocol):
    """An HTTP/1.1 connection that keeps to the bounds of its server's `doors`."""

    doors: Doors  # both set by `connection_class`
    listener: Listener

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._place: Place | None = None
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


def connection_class(doors: Doors, listener: Listener) -> type[Connection]:
    """A class of connections for one server."""
    return type("Connection", (Connection,), {"doors": doors, "listener": listener})
