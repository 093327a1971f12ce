"""An HTTP server for one application: uvicorn, TLS by certificate files, and bounds on the
connections that its listening socket accepts.

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
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tallystick.errors import CannotCheckError, UsageError
from tallystick.service.doors import DoorConnection, Doors, peer_of
from tallystick.service.guard import PLACE, Guard

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


_BACKLOG = 1024


def parse_listen(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[HOST]:PORT` as (host, port). Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address needs brackets
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"{text!r} is not an address.", "Write HOST:PORT, such as 127.0.0.1:8440.")
    return host, int(port)


def listening_socket(listen: str) -> ListeningSocket:
    """A socket that listens at `HOST:PORT`. Raises UsageError, CannotCheckError."""
    host, port = parse_listen(listen)
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return ListeningSocket(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
    except OSError as error:
        raise CannotCheckError(
            f"This machine cannot listen at {listen}: {error.strerror or error}.",
            "Choose an address of this machine and a free port.",
        ) from None


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The context of a TLS server with these PEM files. Raises CannotCheckError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CannotCheckError(
            f"{certificate} and {key} are not a certificate and its private key: {error}.",
            "Name two PEM files that belong together.",
        ) from None
    return context


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer:
    """Serves `app` on a socket, until `stop`. Then requests under way have `grace` seconds."""

    def __init__(
        self,
        app: Guard,
        sock: ListeningSocket,
        tls: ssl.SSLContext | None = None,
        grace: int = 2,
    ) -> None:
        self._socket, bounds = sock, app.doors.bounds
        sock.guard_by(app.doors, handshake=tls is not None)
        self.port: int = sock.getsockname()[1]
        # The guard tells of faults. uvicorn's own lines are about malformed requests of strangers.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        config = uvicorn.Config(
            app,
            loop="asyncio",  # it accepts by the listener's own method
            http=connection_class(app.doors, sock),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=bounds.idle_seconds,
            timeout_graceful_shutdown=grace,
            h11_max_incomplete_event_size=bounds.head_bytes,
            ssl_context_factory=(lambda *_: tls) if tls is not None else None,
        )
        self._server = _Server(config)

    @property
    def started(self) -> bool:
        """Whether requests are accepted."""
        return self._server.started

    async def serve(self) -> None:
        """Serve until `stop`, in a loop that runs already."""
        await self._server.serve([self._socket])

    def run(self) -> None:
        """Serve until `stop`, or, in the main thread, until SIGINT or SIGTERM."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self.stop)
            except (NotImplementedError, RuntimeError, ValueError):
                break  # not the main thread, or not Unix
        await self.serve()

    def stop(self) -> None:
        """End soon: requests under way have a moment to be answered. From any thread."""
        self._server.should_exit = True
