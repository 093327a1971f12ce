"""The client takes nothing from a server on trust: sizes, statuses, JSON, certificates."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import httpx2
import pytest
from service.parties import Player, Script
from service.transports import Certificates, client, now, serving

from tallystick.delegation.turns import Message, Refusal, Working
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.prover.registered import Registered
from tallystick.service.client import LogSource, UnreachableError, check_url, decoded_body


def test_replies_come_through(
    small_job: Job, pair: tuple[Player, Player], url: str, party: Registered
) -> None:
    script = Script(small_job)
    begin = script.begin(budget=7)

    async def both() -> None:
        async with client(url) as asked:
            seal = await asked.turn(begin)
            assert isinstance(seal, Message)
            turn = script.opening(seal.data)
            assert await asked.turn(turn) == party.reply(turn)
            assert isinstance(await asked.turn(b"junk"), Refusal)

    now(both())


def test_the_client_believes_only_its_authority(party: Registered, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with serving(party, certificates) as url:

        async def card(ca: Certificates | None) -> None:
            async with client(url, ca) as asked:
                await asked.card()

        now(card(certificates))
        with pytest.raises(UnreachableError):
            now(card(None))
        plain = url.replace("https", "http")
        with pytest.raises(UnreachableError):
            now(_card(plain))


async def _card(url: str) -> None:
    async with client(url) as asked:
        await asked.card()


class Fake:
    """A server that sends fixed bytes to every request."""

    def __init__(self, response: bytes) -> None:
        self.response = response
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
                connection.recv(65536)
                connection.sendall(self.response)
                connection.close()
            except OSError:
                return


def _response(status: int, body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n%s\r\n%s" % (status, len(body), more, body)


@pytest.mark.parametrize(
    "response",
    [
        _response(200, b"x" * (5 << 20)),
        _response(202, b"x" * 5000),
        _response(202, b"[" * 4000),
        _response(202, b"[]"),
        _response(409, b'{"needs": -1}'),
        _response(409, b'{"needs": 1e99}'),
        _response(409, b'{"needs": 99999999999999999999999}'),
        _response(302, b"{}", b"location: http://127.0.0.1:1/\r\n"),
        _response(404, b"{}"),
        b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n" + b"100000\r\n" + b"x" * (5 << 20),
    ],
)
def test_a_hostile_server_is_refused_by_type(response: bytes) -> None:
    fake = Fake(response)

    async def asks() -> None:
        async with client(fake.url) as asked:
            await asked.turn(b"turn")

    with pytest.raises((CorruptFileError, UnreachableError)):
        now(asks())
    fake.listener.close()


@pytest.mark.parametrize(
    "card", [b"{}", b"[]", b"junk", b'{"format":"tallystick/party/1","protocol":1,"key":"zz"}',
             b'{"format":"tallystick/party/1","protocol":2}']
)  # fmt: skip
def test_a_hostile_card_is_refused_by_type(card: bytes) -> None:
    fake = Fake(_response(200, card))
    with pytest.raises(CorruptFileError):
        now(_card(fake.url))
    fake.listener.close()


def test_silence_is_no_reply() -> None:
    fake = Fake(b"")
    with pytest.raises(UnreachableError):
        now(_card(fake.url))
    fake.listener.close()
    with pytest.raises(UnreachableError):
        now(_card(fake.url))


@pytest.mark.parametrize(("status", "text", "after"), [
    (429, "7", 7.0), (503, "999", 60.0), (408, "1000", 1.0), (500, "-1", 1.0), (429, "", 1.0),
])  # fmt: skip
def test_a_busy_server_says_when_it_wants_to_be_asked(status: int, text: str, after: float) -> None:
    """A server at its bounds has not refused the turn: the referee asks again."""
    response = httpx2.Response(status, headers={"retry-after": text})
    with pytest.raises(UnreachableError) as error:
        decoded_body(response, b"")
    assert error.value.after == after


def test_a_working_reply_and_its_text() -> None:
    fake = Fake(_response(202, json.dumps({"working": "x" * 4000}).encode()))

    async def asks() -> object:
        async with client(fake.url) as asked:
            return await asked.turn(b"turn")

    found = now(asks())
    assert isinstance(found, Working) and len(found.done) == 500
    fake.listener.close()


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://x", "http://", "http://x:99999", "http://u@x", "http://x/?q", "file:///x"],
)
def test_addresses(url: str) -> None:
    with pytest.raises(UsageError):
        check_url(url)
    assert check_url("https://host:1/base/") == "https://host:1/base"


def test_a_source_of_logs_that_hands_over_none(url: str) -> None:
    with LogSource(url) as source, pytest.raises(CannotCheckError, match="No party that hands"):
        source.answer(b"query")
