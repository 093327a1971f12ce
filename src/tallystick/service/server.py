"""An HTTP server for one application: uvicorn, with our bounds, and TLS by certificate files."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from tallystick.errors import CannotCheckError, UsageError
from tallystick.service.connection import ListeningSocket, connection_class
from tallystick.service.guard import Guard

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
