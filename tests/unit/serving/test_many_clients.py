"""Many clients at once: fairness, cancellation, clients that do not read; every answer is right."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

import numpy as np
from servers import KEY, LIMITS, Running, chat, running, until

from tallystick.answers.layout import Settings
from tallystick.answers.request import ModelRequest, new_secret
from tallystick.api.answering import Answering, GivenAnswer
from tallystick.api.answers import check
from tallystick.service.doors import DoorConnection
from tallystick.serving.answer_reply import AnswerReply, ReplyOutcome
from tallystick.serving.api_keys import add_key
from tallystick.serving.asked import read_chat
from tallystick.serving.cancelling import Cancelling
from tallystick.serving.engine_thread import KeptAnswer, ModelThread, WantedAnswer
from tallystick.serving.fields import ApiError, Fields
from tallystick.serving.keeping import MemoryKeeper, NoRoom
from tallystick.serving.models import ServedModel

CHAT = "/v1/chat/completions"


class Waiting:
    """A sink that keeps what comes, and the order in which answers end."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order = name, order
        self.tokens: list[int] = []
        self.kept: KeptAnswer | None = None
        self.error: BaseException | None = None
        self.over = threading.Event()

    def token(self, token: int, logprob: np.float32) -> None:
        self.tokens.append(token)

    def ended(self, kept: KeptAnswer) -> None:
        self.kept = kept
        self._end()

    def failed(self, error: BaseException) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.order.append(self.name)
        self.over.set()


@pytest.fixture
def thread(model: Path) -> Iterator[ModelThread]:
    limits = replace(LIMITS, at_once=4, key_at_once=3, key_waiting=1000, waiting=1010)
    faults: list[BaseException] = []
    found = ModelThread(Answering(model), KEY, MemoryKeeper(), limits, faults.append)
    yield found
    found.close()
    assert faults == []


def wanted(thread: ModelThread, owner: str, sink: Waiting, seed: int = 0, tokens: int = 4,
           **more: Any) -> WantedAnswer:  # fmt: skip
    settings = Settings(max_tokens=tokens, temperature=1.0, seed=seed)
    digest = thread.answering.statement.digest
    request = ModelRequest(digest, settings, text="abc", secret=new_secret(), **more)
    return WantedAnswer(owner, thread.answering.prepare(request), 0, sink, NoRoom())


# -- the engine's thread ---------------------------------------------------------------------------
def test_a_key_with_a_thousand_requests_does_not_starve_another(thread: ModelThread) -> None:
    order: list[str] = []
    many = [Waiting("many", order) for _ in range(1000)]
    one = wanted(thread, "many", many[0])
    thread.submit([replace(one, sink=sink) for sink in many])
    few = [Waiting("few", order) for _ in range(3)]
    thread.submit([replace(one, owner="few", sink=sink) for sink in few])
    thread.start()
    assert all(sink.over.wait(60) for sink in few)
    # Of four at once three may be `many`'s, and no answer of these is longer than another.
    assert order.count("many") < 20
    thread.cancel([])


def test_what_is_too_much_is_refused_whole(thread: ModelThread) -> None:
    order: list[str] = []
    one = wanted(thread, "a", Waiting("a", order))
    thread.submit([one] * 999)
    with pytest.raises(ApiError) as caught:
        thread.submit([one] * 2)
    assert caught.value.status == 429 and thread.load == (0, 999)
    thread.submit([replace(one, owner="b")] * 11)
    with pytest.raises(ApiError, match="At most 1010"):
        thread.submit([replace(one, owner="c")])
    thread.cancel([one] * 999)
    assert thread.load == (0, 11)


def test_a_cancelled_answer_is_never_signed(thread: ModelThread) -> None:
    order: list[str] = []
    first, second = Waiting("first", order), Waiting("second", order)
    long = wanted(thread, "a", first, tokens=40)
    waits = [wanted(thread, "a", Waiting("waits", order)) for _ in range(5)]
    thread.start()
    thread.submit([long])
    until(lambda: len(first.tokens) > 2)
    thread.submit(waits)
    thread.cancel([long, *waits])
    thread.submit([wanted(thread, "b", second)])
    assert second.over.wait(30) and second.kept is not None
    until(lambda: thread.load == (0, 0))
    assert first.kept is None and len(first.tokens) < 40 and "first" not in order


def test_one_that_fails_disturbs_no_other(thread: ModelThread) -> None:
    order: list[str] = []

    class Failing(Waiting):
        def token(self, token: int, logprob: np.float32) -> None:
            raise RuntimeError("this client is broken")

    good, bad = Waiting("good", order), Failing("bad", order)
    thread.submit([wanted(thread, "a", bad), wanted(thread, "b", good, seed=3)])
    thread.start()
    assert good.over.wait(30) and bad.over.wait(30)
    assert good.kept is not None and isinstance(bad.error, RuntimeError)
    assert thread.alive
    thread._tell.__self__.clear()  # type: ignore[attr-defined]


def test_who_waits_at_the_end_hears_of_it(thread: ModelThread) -> None:
    order: list[str] = []
    sinks = [Waiting("a", order) for _ in range(20)]
    thread.start()
    asked = [wanted(thread, "a", sink, tokens=40) for sink in sinks]
    thread.submit(asked)
    thread.close()
    # Nobody signs any of them now: a client that cancels one is told so.
    assert not any(thread.end_after(one, (1, b"")) for one in asked)
    for sink in sinks:
        assert sink.over.wait(30)
        assert sink.kept is not None or isinstance(sink.error, ApiError)
    with pytest.raises(ApiError, match="ending"):
        thread.submit([wanted(thread, "a", Waiting("late", order))])


# -- clients ---------------------------------------------------------------------------------------
class Recording(MemoryKeeper):
    """It counts what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[GivenAnswer] = []

    def keep(self, answer: GivenAnswer, owner: str, room: Any = None) -> str:
        self.answers.append(answer)
        return super().keep(answer, owner)


def connect(server: Running, body: dict[str, Any], small: bool = False) -> socket.socket:
    """A connection that has sent a request; `small` leaves little room for what comes."""
    host, _, port = server.url.partition("://")[2].partition(":")
    made = socket.socket()
    if small:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    made.settimeout(60)
    made.connect((host, int(port)))
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    made.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return made


def test_a_client_that_goes_ends_its_answers(model: Path) -> None:
    keeper = Recording()
    with running(model, keeper=keeper) as server:
        for stream in (True, False):
            for hard in (True, False):
                made = connect(server, chat(n=16, max_tokens=40, stream=stream))
                until(lambda: server.thread.load != (0, 0))
                if hard:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                made.close()
                until(lambda: server.thread.load == (0, 0))
        until(lambda: sum(one.get("why") == "gone" for one in server.logged) == 4)
        assert len(keeper.answers) < 64
        assert server.faults == []


def test_a_client_that_never_reads_does_not_hold_the_engine(model: Path) -> None:
    """It is cut off once too much lies unread, and the others get theirs meanwhile."""
    limits = replace(LIMITS, unread_seconds=1.0)
    with running(model, limits) as server, server.client() as client:
        # 16 answers with log-probabilities are more than the sockets' memory on the way.
        body = chat(n=16, max_tokens=40, stream=True, logprobs=True)
        deaf = [connect(server, body, small=True) for _ in range(4)]
        for _ in range(5):
            assert client.post(CHAT, json=chat(max_tokens=5)).status_code == 200
        until(lambda: server.thread.load == (0, 0))
        for one in deaf:
            one.close()
        until(lambda: len(server.logged) >= 9)
        assert server.faults == []


@pytest.mark.parametrize("kind", ("stuck", "slow"))
def test_a_stream_that_is_not_taken_is_cut(kind: str, model: Path) -> None:
    """Below the sockets, whose memory would take a whole answer."""
    keeper, cuts, outcomes = Recording(), list[bool](), list[ReplyOutcome]()
    limits = replace(LIMITS, unread_seconds=0.3 if kind == "stuck" else 30, unread_tokens=4)
    with running(model, limits, keeper=keeper) as server:
        served = server.server.models[0]
        assert isinstance(served, ServedModel)
        asked = read_chat(
            Fields(chat(n=8, max_tokens=40, stream=True, temperature=0)
                   | {"model": None, "logit_bias": {"1": -100}}),
            served.named, limits,
        )  # fmt: skip

        async def main() -> None:
            sent = 0

            async def send(_: Any) -> None:
                nonlocal sent
                sent += 1
                await asyncio.sleep(3600 if kind == "stuck" and sent > 20 else 0.02)

            async def receive() -> Any:
                await asyncio.sleep(3600)

            reply = AnswerReply(
                "id", "me", served, asked, keeper, limits, server.server.workers,
                server.faults.append, outcomes.append, Cancelling(),
            )  # fmt: skip
            place = DoorConnection("peer", lambda: cuts.append(True))
            with pytest.raises(ConnectionAbortedError):
                await reply({"state": {"place": place}}, receive, send)

        asyncio.run(main())
        assert cuts == [True] and [one.why for one in outcomes] == ["unread"]
        until(lambda: server.thread.load == (0, 0))
        assert server.faults == []


def test_sixty_four_clients_beside_bad_ones(model: Path, tmp_path: Path) -> None:
    """Every answer is right: each equals the one that is computed alone."""
    path = tmp_path / "keys.json"
    keys = [add_key(path, f"client{n}") for n in range(8)]
    alone = Answering(model)
    with running(model, replace(LIMITS, seconds=120), keys=path) as server:
        stop = threading.Event()

        def bad() -> None:
            short = f"POST {CHAT} HTTP/1.1\r\ncontent-length: 9\r\n\r\n{{".encode()
            kinds = [b"", b"GET / HTTP/1.1\r\n", b"\0" * 300, b"POST / HTTP/9\r\n\r\n", short]
            host, _, port = server.url.partition("://")[2].partition(":")
            number = 0
            while not stop.wait(0.05):
                with socket.create_connection((host, int(port)), timeout=5) as made:
                    made.sendall(kinds[number % len(kinds)])
                    number += 1
                    with server.client(keys[0]) as client:
                        client.post(CHAT, content=b"{" * number)

        def one(number: int) -> tuple[int, bytes]:
            text = "abcdefgh"[: 1 + number % 8]
            body = chat(text, seed=number, max_tokens=5 + number % 20, stream=number % 2 == 0)
            with server.client(keys[number % 8]) as client:
                if number % 2:
                    choice = client.post(CHAT, json=body).json()["choices"][0]
                    assert choice["message"]["content"] == choice["tallystick"]["answer"]["text"]
                else:
                    said, choice = "", {}
                    with client.stream("POST", CHAT, json=body) as response:
                        for line in response.iter_lines():  # slowly
                            threading.Event().wait(0.01 if number % 4 else 0)
                            if line.startswith("data: {"):
                                choice = json.loads(line[6:])["choices"][0]
                                said += choice["delta"].get("content", "")
                    assert said == choice["tallystick"]["answer"]["text"]
                id_ = choice["tallystick"]["id"]
                assert client.get(f"/v1/receipts/{id_}").status_code == 200
            files = server.server.keeper.find(id_, f"client{number % 8}")
            assert files is not None
            return number, files.spoken.to_bytes()

        noise = threading.Thread(target=bad)
        noise.start()
        try:
            with ThreadPoolExecutor(64) as pool:
                found = list(pool.map(one, range(64)))
        finally:
            stop.set()
            noise.join()
        until(lambda: server.thread.load == (0, 0))
        assert server.faults == []
        for number, spoken in found:
            request = ModelRequest(
                alone.statement.digest,
                Settings(temperature=1.0, seed=number, max_tokens=5 + number % 20),
                messages=({"role": "user", "content": "abcdefgh"[: 1 + number % 8]},),
                secret=bytes(32),
            )
            (answer,) = alone.answer(request, KEY)
            assert answer.job.spoken.to_bytes() == spoken, number
            if number % 16 == 0:
                assert check(answer, model).accepted
