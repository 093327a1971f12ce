"""Hundreds of thousands of HTTP requests to a party's server and to a server of a log.

    PYTHONPATH=tests python tests/adversary/fuzz_http.py [--requests 200000] [--schema 5000]

Real servers on loopback. Every response is 2xx or 4xx; a request that is no HTTP is answered with
400 or cut off. The application meets no fault of its own (`tell` is never called), and after each
thousand requests the party still gives the same answers to the honest turns of its game. `--schema`
of the requests are schemathesis's, by `OPENAPI`. Counts go to docs/proofs/fuzz.md.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from adversary.http_requests import OPENAPI, Requests, session_turns
from service import parties
from service.parties import A, B, Player, Script
from service.transports import running, serving

from tallystick.delegation.turns import Message
from tallystick.installed import tallystick_version
from tallystick.service.doors import BOUNDS
from tallystick.service.log_app import log_app
from tallystick.service.server import HttpServer, listening_socket

# One peer sends everything here: the bound on its rate is another test's (test_http_bounds.py).
WIDE = replace(BOUNDS, rate=1e9, burst=1e9, patience_seconds=0.5)
HONEST_EVERY = 1000
THREADS = 6  # clients at one time


class Wire:
    """One connection to a server, made anew where the server has cut it off."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.file: Any = None
        self.socket: socket.socket | None = None

    def close(self) -> None:
        if self.socket is not None:
            self.file.close()
            self.socket.close()
        self.socket = None

    def ask(self, request: bytes, last: bool = False) -> tuple[int, bytes]:
        """Status and body of the response; 0 where the server cut the connection off.

        After the `last` request no more bytes come, whatever length it has stated.
        """
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=20)
            self.file = self.socket.makefile("rb")
        head_only = request.startswith(b"HEAD")
        try:
            self.socket.sendall(request)
            if last:
                self.socket.shutdown(socket.SHUT_WR)
            return self._response(head_only)
        except OSError:  # cut off while we sent
            self.close()
            return 0, b""

    def _response(self, head_only: bool) -> tuple[int, bytes]:
        line = self.file.readline()
        while line.startswith(b"HTTP/1.1 100"):
            self.file.readline()
            line = self.file.readline()
        if not line:
            self.close()
            return 0, b""
        status, size, closes = int(line.split()[1]), 0, False
        while (head := self.file.readline().strip().lower()) != b"":
            if head.startswith(b"content-length:"):
                size = int(head.partition(b":")[2])
            closes = closes or head == b"connection: close"
        body = b"" if head_only else self.file.read(size)
        if closes:
            self.close()
        return status, body


def fuzz(requests: int, schema: int, seed: int) -> dict[str, Any]:
    """Counts by status, of so many requests."""
    rng, faults = random.Random(seed), list[BaseException]()
    with tempfile.TemporaryDirectory() as scratch:
        job = parties.make_job(Path(scratch) / "job")
        honest, cheat = Player(parties.honest(job), A), Player(parties.cheat(job), B)
        registered = parties.registered(honest, Path(scratch) / "sessions")
        script = Script(job)

        def give(turn: bytes) -> bytes:
            reply = registered.reply(turn, 10)
            assert isinstance(reply, Message), reply
            return reply.data

        turns = session_turns(script, give, honest, cheat)
        queries = list(honest.asked)
        true = [(turn, give(turn)) for turn in turns]
        with (
            serving(registered, bounds=WIDE, faults=faults) as url,
            log_server(script.log, faults) as log,
        ):
            ports = {False: int(url.rpartition(":")[2]), True: log}
            share = -(-(requests - schema) // THREADS)
            draws = [Requests(random.Random(rng.random()), turns, queries) for _ in range(THREADS)]
            with ThreadPoolExecutor(THREADS) as threads:
                found = threads.map(lambda drawn: _grammar(drawn, ports, true, share), draws)
                statuses = sum(found, Counter[str]())
            statuses["schemathesis"] = _schema(ports, schema)
        assert not faults, faults[0]
    return {"requests": requests, "seed": seed, "statuses": dict(statuses), "faults": 0}


def _grammar(
    draws: Requests, ports: dict[bool, int], true: list[tuple[bytes, bytes]], count: int
) -> Counter[str]:
    statuses: Counter[str] = Counter()
    wires = {log: Wire(port) for log, port in ports.items()}
    for number in range(count):
        log = draws.rng.random() < 0.2
        odd = log or draws.rng.random() < 0.25
        request = draws.odd() if odd else draws.post(draws.turn())
        status = _answered(wires[log], request, odd)
        assert status == 0 or 200 <= status < 300 or 400 <= status < 500, (status, request[:300])
        statuses[str(status)] += 1
        if number % HONEST_EVERY == 0:
            wires[False].close()
            for turn, message in true:
                found = wires[False].ask(draws.post(turn))
                assert found == (200, message), found[0]
    for wire in wires.values():
        wire.close()
    return statuses


def _answered(wire: Wire, request: bytes, odd: bool) -> int:
    """The status of the response; an odd request has a connection of its own."""
    if odd:
        wire.close()
    status, _ = wire.ask(request, last=odd)
    if odd:
        wire.close()
    return status


def log_server(entries: list[bytes], faults: list[BaseException]) -> Any:
    @contextmanager
    def run() -> Any:
        app = log_app(entries.__getitem__, lambda: len(entries), bytes(32), WIDE, faults.append)
        server = HttpServer(app, listening_socket("127.0.0.1:0"))
        with running(server):
            yield server.port

    return run()


def _schema(ports: dict[bool, int], count: int) -> int:
    """So many requests of schemathesis, each operation in turn."""
    if not count:
        return 0
    import schemathesis
    from hypothesis import HealthCheck, given, settings

    schema, done = schemathesis.openapi.from_dict(OPENAPI), 0
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        port = ports[operation.path.startswith(("/v1/log/", "/v1/log", "/log"))]
        port = ports[False] if operation.path.startswith("/v1/logs") else port

        @settings(max_examples=-(-count // len(operations)), deadline=None, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy())
        def one(case: Any) -> None:
            nonlocal done
            done += 1
            response = case.call(base_url=f"http://127.0.0.1:{port}")  # noqa: B023
            assert response.status_code < 300 or 400 <= response.status_code < 500, case

        one()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--schema", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    found = fuzz(given.requests, given.schema, given.seed)
    found["seconds"] = round(time.monotonic() - began, 1)
    found["tallystick"], found["date"] = tallystick_version(), time.strftime("%Y-%m-%d")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    sys.exit(main())
