"""Ways to a party: by a call, over HTTP, and over HTTPS; the same tests use each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest

pytest.importorskip("starlette", reason="the extra [service] is not installed")
pytest.importorskip("uvicorn", reason="the extra [service] is not installed")
pytest.importorskip("httpx2", reason="the extra [service] is not installed")

import trustme

from tallystick.prover.registered import Registered
from tallystick.service.client import PartyClient
from tallystick.service.doors import BOUNDS, Bounds
from tallystick.service.party_app import party_app
from tallystick.service.server import HttpServer, listening_socket, tls_context

T = TypeVar("T")


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in a loop of its own."""
    return asyncio.run(work)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that comes."""
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, "it did not come"
        sleep(0.01)


class Certificates:
    """An authority of the tests' own, and a certificate for this host."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        self.ca, self.cert, self.key = (directory / n for n in ("ca.pem", "cert.pem", "key.pem"))
        authority.cert_pem.write_to_path(str(self.ca))
        made = authority.issue_cert("localhost", "127.0.0.1")
        made.private_key_pem.write_to_path(str(self.key))
        for number, blob in enumerate(made.cert_chain_pems):
            blob.write_to_path(str(self.cert), append=bool(number))


@contextmanager
def running(server: HttpServer) -> Iterator[None]:
    """The server, in a thread, until the context ends."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield
    finally:
        server.stop()
        thread.join(30)


@contextmanager
def serving(
    registered: Registered,
    certificates: Certificates | None = None,
    bounds: Bounds = BOUNDS,
    listen: str = "127.0.0.1:0",
    faults: list[BaseException] | None = None,
) -> Iterator[str]:
    """A server of the party in a thread; its address."""
    told: list[BaseException] = [] if faults is None else faults
    tls = tls_context(certificates.cert, certificates.key) if certificates else None
    server = HttpServer(party_app(registered, bounds, told.append), listening_socket(listen), tls)
    try:
        with running(server):
            yield f"{'http' if tls is None else 'https'}://localhost:{server.port}"
    finally:
        assert faults is not None or told == []


def client(url: str, certificates: Certificates | None = None) -> PartyClient:
    return PartyClient(url, certificates.ca if certificates else None)
