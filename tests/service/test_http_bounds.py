"""What a stranger can cost a party's server: a little (docs/adr/0013-http.md)."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from service.parties import OTHER_REFEREE, REFEREE, Player, Script
from service.transports import Certificates, client, now, running, serving, until

from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.prover.registered import Registered
from tallystick.service.client import UnreachableError
from tallystick.service.doors import BOUNDS, Bounds, Rates
from tallystick.service.guard import Guard
from tallystick.service.server import HttpServer, listening_socket, parse_listen


class Raw:
    """One connection, byte by byte."""

    def __init__(self, url: str, address: str | None = None) -> None:
        host, _, port = url.partition("://")[2].partition(":")
        own = None if address is None else (address, 0)
        self.socket = socket.create_connection((host, int(port)), timeout=30, source_address=own)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def status(self) -> int:
        """The status of the next response, whose head and body are read; 0 at the end."""
        try:
            line = self.file.readline()
        except ConnectionError:
            return 0
        if not line:
            return 0
        size: int | None = 0
        while (head := self.file.readline().strip().lower()) != b"":
            if head.startswith(b"content-length:"):
                size = int(head.partition(b":")[2])
            elif head == b"connection: close":
                size = None  # to the end
        self.body = self.file.read(size)
        return int(line.split()[1])

    def ends(self) -> bool:
        """Whether the server has cut the connection, without another response."""
        return self.status() == 0


def post(size: int, path: str = "/v1/turn") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode()


# Nothing ends by its time within a test: what ends has made room.
PATIENT = replace(BOUNDS, head_seconds=300, idle_seconds=300, handshake_seconds=300)
GET = b"GET /v1/party HTTP/1.1\r\nhost: x\r\n\r\n"


def test_the_card_says_nothing_about_the_run(
    url: str, party: Registered, pair: tuple[Player, Player]
) -> None:
    async def card() -> object:
        async with client(url) as asked:
            return await asked.card()

    found = now(card())
    assert (found.key, found.job_digest) == (party.key, party.terms.digest)
    assert not found.hands_over_logs
    with Raw(url) as raw:
        raw.send(GET)
        assert raw.status() == 200
        text = raw.body.decode()
    run = pair[0].party.run
    for secret in (run.run_root, run.final_state_root, run.run_root[:4]):
        assert secret.hex() not in text
    assert set(json.loads(text)) == {
        "format", "protocol", "key", "job_digest", "hands_over_logs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /", 404), (b"GET /v1", 404), (b"GET /v1/party/", 404), (b"GET /v1/commitment", 404),
        (b"GET /v1/logs/00", 404), (b"GET /v1/../run.json", 404), (b"GET /%2e%2e/etc/passwd", 404),
        (b"GET //etc/passwd", 404), (b"GET /v1/turn", 405), (b"PUT /v1/turn", 405),
        (b"DELETE /v1/party", 405), (b"OPTIONS /v1/party", 405), (b"CONNECT x:1", 404),
        (b"TRACE /v1/party", 405), (b"GET http://elsewhere/run.json", 404),
    ],
)  # fmt: skip
def test_nothing_else_can_be_read(url: str, request_line: bytes, status: int) -> None:
    with Raw(url) as raw:
        raw.send(request_line + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert raw.status() == status


def test_a_body_over_the_limit_is_refused_before_it_is_read(url: str) -> None:
    for size in (BOUNDS.body_bytes + 1, 1 << 62, (1 << 64) + 5):
        with Raw(url) as raw:
            raw.send(post(size))
            assert raw.status() in (413, 400)
            assert raw.ends()


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"transfer-encoding: chunked\r\n", (411,)),
        (b"", (411,)),
        (b"content-length: -1\r\n", (400,)),
        (b"content-length: 1\r\ncontent-length: 2\r\n", (400,)),
        (b"content-length: 0x10\r\n", (400,)),
        (b"content-length: 5\r\ntransfer-encoding: chunked\r\n", (400, 411)),
    ],
)
def test_a_body_states_its_length(url: str, head: bytes, statuses: tuple[int, ...]) -> None:
    with Raw(url) as raw:
        raw.send(b"POST /v1/turn HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n5\r\nhello\r\n0\r\n\r\n")
        assert raw.status() in statuses


def test_a_get_has_no_body(url: str) -> None:
    with Raw(url) as raw:
        raw.send(b"GET /v1/party HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello")
        assert raw.status() == 413


def test_garbage_gets_a_400_and_an_end(url: str) -> None:
    for garbage in (b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\r\n"):
        with Raw(url) as raw:
            raw.send(garbage)
            assert raw.status() in (0, 400)
            assert raw.ends()


def test_an_endless_head_is_refused(url: str) -> None:
    with Raw(url) as raw:
        raw.send(b"GET /v1/party HTTP/1.1\r\n")
        try:
            for n in range(10_000):
                raw.send(b"x-%d: y\r\n" % n * 10)
        except ConnectionError:
            pass
        assert raw.status() in (0, 400)


def test_a_slow_head_is_cut_off(party: Registered) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(serving(party, bounds=replace(BOUNDS, head_seconds=0.2)))
        silent, dripping, second = (stack.enter_context(Raw(url)) for _ in range(3))
        dripping.send(b"GET /v1/par")
        second.send(GET)
        assert second.status() == 200
        second.send(b"GET /v1/par")  # the next head of a connection has its time as well
        assert silent.ends() and dripping.ends() and second.ends()


def test_a_slow_body_is_cut_off(party: Registered) -> None:
    bounds = replace(BOUNDS, body_seconds=0.2)
    with serving(party, bounds=bounds) as url, Raw(url) as raw:
        raw.send(post(100) + b"x")
        assert raw.status() == 408
        assert raw.ends()


def test_a_request_has_an_end(party: Registered) -> None:
    """A peer that never sends the rest, or never reads, holds its place for a bounded time."""
    bounds = replace(BOUNDS, body_seconds=60, whole_seconds=0.2)
    with serving(party, bounds=bounds) as url, Raw(url) as raw:
        raw.send(post(100) + b"x")
        assert raw.ends()


def test_an_idle_connection_ends(party: Registered) -> None:
    with serving(party, bounds=replace(BOUNDS, idle_seconds=1)) as url, Raw(url) as raw:
        raw.send(GET)
        assert raw.status() == 200
        assert raw.ends()


def test_an_idle_connection_that_reads_nothing_is_cut_off() -> None:
    """Its last response would keep it open for ever."""
    size = 64 << 20

    async def app(_: object, __: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size)})

    bounds = replace(BOUNDS, idle_seconds=1, closing_seconds=0.1)
    server = HttpServer(Guard(app, bounds, lambda _: None), listening_socket("127.0.0.1:0"))
    with running(server), Raw(f"http://localhost:{server.port}") as raw:
        raw.send(GET)
        sleep(2)
        found = 0
        with suppress(ConnectionError):
            while part := raw.file.read1(1 << 20):
                found += len(part)
        assert 0 < found < size


def test_connections_of_a_peer_are_bounded(party: Registered) -> None:
    bounds = replace(PATIENT, peer_connections=3)
    with serving(party, bounds=bounds) as url, ExitStack() as stack:
        held = [stack.enter_context(Raw(url)) for _ in range(3)]
        for raw in held:
            raw.send(GET)
            assert raw.status() == 200
        with Raw(url) as more:
            more.send(GET)
            assert more.status() == 200
            assert held[0].ends()  # the one that has waited longest
            busy = [*held[1:], more]
            for raw in busy:  # these have a whole head
                raw.send(post(100)[:-2] + b"expect: 100-continue\r\n\r\n")
                assert raw.status() == 100
            assert _status(url, GET) == 0
            for raw in busy:
                raw.send(b"y" * 100)
                assert raw.status() == 401


def test_handshakes_are_bounded(party: Registered, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    bounds = replace(PATIENT, handshakes=2)
    with serving(party, certificates, bounds) as url, Raw(url) as first, Raw(url), Raw(url):
        assert first.ends()
        with _secure(url, certificates) as secure:  # it takes the place of the next one
            secure.sendall(GET)
            assert secure.recv(100).startswith(b"HTTP/1.1 200")


def test_a_handshake_that_does_not_end_is_cut_off(party: Registered, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    bounds = replace(BOUNDS, handshake_seconds=0.2)
    with serving(party, certificates, bounds) as url, _secure(url, certificates) as secure:
        with Raw(url) as raw:
            assert raw.ends()
        secure.sendall(GET)  # one that has ended is no longer under its bound
        assert secure.recv(100).startswith(b"HTTP/1.1 200")


def _secure(url: str, certificates: Certificates) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    return context.wrap_socket(Raw(url).socket, server_hostname="localhost")


def test_handshakes_that_ended_free_their_place(party: Registered, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    bounds = replace(BOUNDS, handshakes=1)
    with serving(party, certificates, bounds) as url:
        for _ in range(3):
            with _secure(url, certificates) as secure:
                secure.sendall(GET)
                assert secure.recv(100).startswith(b"HTTP/1.1 200")


def test_a_rate_is_kept() -> None:
    rates = Rates(replace(BOUNDS, rate=2, burst=3, peers=2))
    assert [rates.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert rates.take("b", 0.0)
    assert [rates.take("a", 1.0) for _ in range(3)] == [True, True, False]
    rates.take("b", 1.0), rates.take("c", 1.0)  # a is forgotten, and memory stays bounded
    assert len(rates._left) == 2
    assert rates.take("a", 1.0)


def test_a_fast_peer_is_told_to_wait(party: Registered) -> None:
    with serving(party, bounds=replace(BOUNDS, rate=0.001, burst=3)) as url:

        async def asks() -> None:
            async with client(url) as asked:
                await asked.card()
                await asked.card()  # one connection and two requests: all that it may spend
                # Without a body. A server that closes before the body has come resets the
                # connection, and its response may be lost on the way.
                with pytest.raises(UnreachableError) as error:
                    await asked.card()
                assert error.value.after == 1.0

        now(asks())
        with Raw(url) as raw:  # the next connection is cut at once
            assert raw.ends()


def test_a_request_that_comes_too_fast_takes_no_place(party: Registered) -> None:
    bounds = replace(BOUNDS, rate=0.001, burst=2, requests=1)
    with serving(party, bounds=bounds) as url, Raw(url, "127.0.0.9") as raw:
        raw.send(GET)
        assert raw.status() == 200
        raw.send(GET)
        assert raw.status() == 429
        assert _status(url, GET) == 200


def test_bad_requests_cost_more() -> None:
    rates = Rates(replace(BOUNDS, rate=1, burst=100, bad_cost=50, bad_bytes=1000))
    assert rates.take("a", 0.0)
    rates.bad("a", 48_000)
    assert rates.take("a", 0.0) and not rates.take("a", 0.0)
    for _ in range(9):
        rates.bad("a", 1 << 30)
    assert not rates.take("a", 100.0) and rates.take("a", 102.0)  # a debt has a bound
    assert rates.take("b", 0.0)


@pytest.mark.parametrize(
    "bad", [post(5) + b"hello", b"\0\1\r\n\r\n", post(1 << 40), b"GET /x HTTP/1.1\r\n\r\n"]
)
def test_a_peer_that_sends_garbage_is_cut_off_soon(party: Registered, bad: bytes) -> None:
    with serving(party, bounds=replace(BOUNDS, rate=0.001, burst=100)) as url:
        statuses = []
        for _ in range(8):
            try:
                statuses.append(_status(url, bad))
            except ConnectionError:
                statuses.append(0)
        assert statuses[0] in (400, 401, 404, 413)
        assert statuses[-1] == 0


def test_a_peer_that_waits_and_goes_is_charged(party: Registered) -> None:
    """Four connections without a whole head use up a peer; as many with one do not."""
    bounds = replace(BOUNDS, rate=0.001, burst=82)
    for head, last in ((b"GET /", 0), (GET, 200)):
        with serving(party, bounds=bounds) as url:
            for _ in range(4):
                with Raw(url, "127.0.0.9") as raw:
                    raw.send(head)
                    raw.socket.shutdown(socket.SHUT_WR)
                    raw.file.read()
            assert _status(url, GET, "127.0.0.9") == last
            assert _status(url, GET) == 200  # others pay nothing for it


def test_garbage_is_charged_once(party: Registered) -> None:
    with serving(party, bounds=replace(BOUNDS, rate=0.001, burst=50)) as url:
        for _ in range(2):
            with Raw(url, "127.0.0.9") as raw:
                raw.send(b"\0\1\r\n\r\n")
                assert raw.status() == 400 and raw.ends()
        assert _status(url, GET, "127.0.0.9") == 200


# A turn of a believed referee keeps a place for its peer; nothing else does.
@pytest.mark.parametrize("shown", ["a turn", "another referee's", "a card"])
def test_a_believed_referee_keeps_a_place(shown: str, party: Registered, small_job: Job) -> None:
    referee = OTHER_REFEREE if shown == "another referee's" else REFEREE
    turn = GET
    if shown != "a card":
        body = Script(small_job, referee).begin()
        turn = post(len(body)) + body
    bounds = replace(PATIENT, connections=3, known_connections=1)
    with serving(party, bounds=bounds) as url, Raw(url) as known, ExitStack() as stack:
        known.send(turn)
        assert known.status() == (401 if shown == "another referee's" else 200)
        strangers = [stack.enter_context(Raw(url, f"127.0.0.{n}")) for n in (2, 3, 4)]
        if shown == "a turn":
            assert strangers[0].ends()
            known.send(GET)
            assert known.status() == 200
        else:
            assert known.ends()


@pytest.mark.parametrize("bounds", [{"bodies_bytes": 150}, {"peer_bodies_bytes": 150}])
def test_room_for_bodies_is_shared(party: Registered, bounds: dict[str, int]) -> None:
    with serving(party, bounds=replace(BOUNDS, **bounds)) as url, Raw(url) as first:
        first.send(post(100) + b"x")
        until(lambda: _status(url, post(100) + b"y" * 100) == 503)
        first.send(b"y" * 99)
        assert first.status() == 401
        assert _status(url, post(100) + b"y" * 100) == 401


def _status(url: str, request: bytes, address: str | None = None) -> int:
    """The status of one request by a new connection; 0 where that is cut off."""
    try:
        with Raw(url, address) as raw:
            raw.send(request)
            return raw.status()
    except ConnectionError:
        return 0


def test_requests_at_one_time_are_bounded(party: Registered) -> None:
    with serving(party, bounds=replace(BOUNDS, peer_requests=1)) as url, Raw(url) as first:
        first.send(post(100) + b"x")
        until(lambda: _status(url, GET) == 503)
        first.send(b"y" * 99)
        assert first.status() == 401
        until(lambda: _status(url, GET) == 200)


def test_a_fault_of_ours_is_told_to_us_alone(
    party: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the secret path")

    monkeypatch.setattr(party, "reply", broken)
    faults: list[BaseException] = []
    with serving(party, faults=faults) as url, Raw(url) as raw:
        raw.send(post(5) + b"hello")
        assert raw.status() == 500
        assert b"secret" not in raw.body
    assert [str(fault) for fault in faults] == ["the secret path"]


def test_bounds_of_a_peer_are_within_those_of_all() -> None:
    b = Bounds()
    assert b.peer_connections < b.connections and b.peer_requests < b.requests
    assert b.body_bytes <= b.peer_bodies_bytes < b.bodies_bytes
    assert REFEREE.public.raw  # 64 disputes of one referee at a time, and then some
    assert b.peer_requests >= 64 and b.peer_connections >= 64


@pytest.mark.parametrize("text", ["", "x", ":1", "x:", "x:99999", "::1:80", "x:1a"])
def test_listening_addresses(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listen(text)
    assert parse_listen("[::1]:80") == ("::1", 80)
    assert parse_listen("127.0.0.1:0") == ("127.0.0.1", 0)
