"""The server of kept answers: its paths, what strangers get, and games that wait for each other."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from service.parties import OTHER_REFEREE, REFEREE, Script
from service.transports import client, now, running
from unit.answers.toy import KEY, Toy
from unit.serving_kept.samples import given, keeper, true

from tallystick.api.answering import GivenAnswer
from tallystick.delegation.turns import Message, Refusal, Working
from tallystick.errors import CorruptFileError
from tallystick.prover.prover import Prover
from tallystick.service.server import HttpServer, listening_socket
from tallystick.serving.kept import prover as kept_prover
from tallystick.serving.kept.executions import Executions
from tallystick.serving.kept.parties import KeptParties, disputes_app
from tallystick.serving.kept.reader import KeptReader


@pytest.fixture(autouse=True)
def toy_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy has no directory that could be opened."""
    monkeypatch.setattr(kept_prover, "stated_model", lambda place, *_: place)
    monkeypatch.setattr(kept_prover, "weights", lambda _: Toy.make().held)


@contextmanager
def serving(
    place: Path, *answers: GivenAnswer, executions: Executions | None = None
) -> Iterator[tuple[str, KeptParties, KeptReader]]:
    with keeper(place) as kept:
        for answer in answers:
            kept.keep(answer, "anna")
    told: list[BaseException] = []
    with KeptReader(place) as reader:
        parties = KeptParties(reader, [KEY], [REFEREE.public], executions=executions)
        server = HttpServer(
            disputes_app(parties, tell=told.append), listening_socket("127.0.0.1:0")
        )
        with running(server):
            yield f"http://localhost:{server.port}", parties, reader
        assert parties.close() and told == []


def script(reader: KeptReader, answer: GivenAnswer, key: object = REFEREE) -> Script:
    row = reader.of_job(answer.job.digest)[0]
    return Script(reader.disputed(row).job(), key)  # type: ignore[arg-type]


def test_each_job_has_an_address(tmp_path: Path) -> None:
    first, second = given(1), given(2)
    with serving(tmp_path / "kept", first, second) as (url, parties, reader):

        async def seal(answer: GivenAnswer, at: GivenAnswer, key: object = REFEREE) -> object:
            async with client(f"{url}/answers/{at.job.digest.hex()}") as party:
                card = await party.card()
                assert (card.key, card.job_digest) == (KEY.public, at.job.digest)
                return await party.turn(script(reader, answer, key).begin())

        for answer in (first, second):
            assert isinstance(now(seal(answer, answer)), Message)
        crossed = now(seal(first, second))
        assert isinstance(crossed, Refusal) and "another job" in crossed.why
        stranger = now(seal(first, first, OTHER_REFEREE))
        assert isinstance(stranger, Refusal)
        assert len(parties.executions) == 0


def test_paths_that_are_none(tmp_path: Path) -> None:
    answer = given()
    job = answer.job.digest.hex()
    with serving(tmp_path / "kept", answer) as (url, parties, _):
        host = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        for path in (
            "/v1/party", "/answers/", f"/answers/{job}", f"/answers/{job.upper()}/v1/party",
            f"/answers/{job[:-1]}/v1/party", f"/answers/{job}0/v1/party",
            f"/answers/{'0' * 64}/v1/party", "/answers/%2e%2e/v1/party",
            "/answers/../answers.db", "/answers/x'%20OR%201=1--/v1/party",
            f"/answers/{job}/v1/commitment", f"/answers/{job}/v1/logs/00",
        ):  # fmt: skip
            host.request("GET", path)
            response = host.getresponse()
            response.read()
            assert response.status == 404, path
        with pytest.raises(urllib.error.HTTPError, match=r"400|401"):
            urllib.request.urlopen(f"{url}/answers/{job}/v1/turn", data=b"x" * 1000)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/answers/{'q' * 64}/v1/turn", data=b"x")
        assert parties._open == {}


def test_an_answer_that_is_damaged_is_no_verdict(tmp_path: Path) -> None:
    """The server says that it works, and its owner is told: nothing false is signed."""
    answer, said = given(), list[str]()
    with serving(tmp_path / "kept", answer) as (url, parties, reader):
        parties.tell = said.append

        def fails(_: object) -> None:
            raise CorruptFileError("It is damaged.", "Restore it.")

        turn = script(reader, answer).begin()
        reader.disputed = fails  # type: ignore[assignment,method-assign]

        async def ask() -> object:
            async with client(f"{url}/answers/{answer.job.digest.hex()}") as party:
                return await party.turn(turn)

        assert isinstance(now(ask()), Working)
        assert len(said) == 1 and "It is damaged." in said[0]


def test_a_game_that_waits_is_told(tmp_path: Path) -> None:
    """One execution at a time: the second game gets `working`, and says why."""
    answer, executions, entered, going = true(), Executions(1), threading.Event(), threading.Event()

    class Holding:
        def kept(self, query: bytes) -> None:
            return None

        def close(self) -> None:
            pass

    def hold() -> None:
        with executions.prover(b"another", lambda: Holding()):  # type: ignore[arg-type,return-value]
            entered.set()
            going.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(10)
    with serving(tmp_path / "kept", answer, executions=executions) as (_, parties, reader):
        row = reader.of_job(answer.job.digest)[0]
        parties._party(row.job)
        worker = parties._open[row.job].registered._worker
        from tallystick.protocol.queries import Slot, encode_query

        future = worker.ask(encode_query(Slot(1, "param.embed")))
        while not executions.waiting(row.job):
            assert not future.done()
        parties._open[row.job].registered.reply = lambda *_: Working("")  # type: ignore[method-assign]
        turn = script(reader, answer).begin()
        assert parties.reply(row.job, turn) == Working("other disputes come first")
        going.set()
        assert future.result(60)
        thread.join(10)
        assert isinstance(executions._held[row.job].prover, Prover)
    assert executions.highest == 1
