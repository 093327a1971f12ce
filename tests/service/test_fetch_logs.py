"""Logs handed over by GETs, after the seal and not before (PROTOCOL 6.15, 6.15.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service.links import rules
from service.parties import REFEREE, A, Player, Script, registered
from service.transports import serving, until
from unit.protocol.log_scenarios import PRODUCT, TIE, WIDE, entry
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import WRONG, Lie, answering

from tallystick.cli.main import run
from tallystick.delegation.turns import Message, Refusal
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.prover.registered import Registered
from tallystick.run.logs.reader import LogShape, open_log
from tallystick.service.client import LogSource, UnreachableError

STEPS = 5


def entries(*given: object) -> None:
    for node, element in ((PRODUCT, TIE), (WIDE, 9000)):
        entry(node, element, 0, step=3)(*given)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_log_job(tmp_path_factory.mktemp("logs") / "job", wide=12000)


@pytest.fixture(scope="module")
def run_with_logs(job: Job) -> LogParty:
    return LogParty(job, Lie(entries=entries))


def sealed(party: Registered, job: Job) -> None:
    assert isinstance(party.reply(Script(job).begin()), Message)


Fetch = Callable[..., tuple[int, str]]


@pytest.fixture
def fetch(job: Job, capsys: pytest.CaptureFixture[str]) -> Fetch:
    def call(url: str, out: Path, *more: str) -> tuple[int, str]:
        words = ["fetch-logs", url, "--job", str(job.directory), "--out", str(out), *more]
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def test_logs_come_after_the_seal_and_not_before(
    job: Job, run_with_logs: LogParty, fetch: Fetch, tmp_path: Path
) -> None:
    player = Player(run_with_logs, A)
    party = registered(player, tmp_path / "sessions")
    out = tmp_path / "logs"
    with serving(party) as url:
        code, text = fetch(url, out)
        assert code == 2 and "does not hand over its logs" in text and not out.exists()
        assert player.asked == []  # and nothing of the run was read for it
        sealed(party, job)
        code, text = fetch(url, out, "--json")
        assert code == 0, text
        assert player.party.run.run_root.hex() in text
        asked = len(player.asked)
        assert fetch(url, out)[0] == 0  # only what is missing is fetched again
        assert len(player.asked) < asked + 3 * STEPS
    shape = LogShape(job)
    for step in range(STEPS):
        with open_log(out, step, shape.expected) as reader:
            reader.verify()
            assert [stored.digest for stored in reader.index] == run_with_logs.digests[step]
    # A party that is started again has sealed already.
    with serving(registered(player, tmp_path / "sessions")) as url, LogSource(url) as source:
        assert source.commitment == player.commitment


def test_what_does_not_fit_is_not_taken(job: Job, fetch: Fetch, tmp_path: Path) -> None:
    def lie(_: q.LogHashes, body: object) -> object:
        from dataclasses import replace

        return replace(body, hashes=(WRONG, *body.hashes[1:]))  # type: ignore[attr-defined, type-var]

    liar = LogParty(job, Lie(answer=answering(q.LogHashes, lie), entries=entries))
    party = registered(Player(liar, A), tmp_path / "sessions")
    sealed(party, job)
    with serving(party) as url:
        code, text = fetch(url, tmp_path / "logs")
    assert code == 2 and "was not handed over" in text
    assert not (tmp_path / "logs" / "00000003.log").exists()


@pytest.mark.parametrize(
    "query",
    [
        q.Checkpoints((0,)),
        q.States((1,)),
        q.Nodes(1),
        q.Slot(0, "chain.loss"),
        q.Record(0),
        q.Log(99),
    ],
)
def test_only_logs_are_read_outside_of_a_game(
    job: Job, run_with_logs: LogParty, tmp_path: Path, query: q.Query
) -> None:
    player = Player(run_with_logs, A)
    party = registered(player, tmp_path / "sessions")
    sealed(party, job)
    encoded = q.encode_query(query)
    assert isinstance(party.log(encoded), Refusal)
    with serving(party) as url, LogSource(url) as source:
        with pytest.raises(CannotCheckError):
            source.answer(encoded)
        for other in (b"", b"junk", bytes(200)):
            with pytest.raises(CannotCheckError):
                source.answer(other)
    assert player.asked == []


def test_a_game_comes_before_log_blocks(job: Job, run_with_logs: LogParty, tmp_path: Path) -> None:
    """The waiting line of logs is bounded, and games do not wait in it."""
    player = Player(run_with_logs, A)
    party = registered(player, tmp_path / "sessions")
    sealed(party, job)
    player.going.clear()
    queries = [q.encode_query(q.Log(step)) for step in range(STEPS)]
    more = [q.encode_query(q.LogHashes(s, n, 0, 1)) for s in range(STEPS) for n in range(5)]
    party.log(queries[0])
    until(lambda: bool(player.asked))  # the thread has taken it
    for query in [*queries, *more]:
        party.log(query)
    game = party._worker.ask(b"a query of a game")
    assert len(party._worker._logs) <= 16
    player.going.set()
    with pytest.raises(Exception):  # noqa: B017  it is no query, but it was asked first
        game.result(30)
    assert player.asked[1] == b"a query of a game"


def test_a_game_does_not_wait_because_a_stranger_asked_first(
    job: Job, run_with_logs: LogParty, tmp_path: Path
) -> None:
    """A query of a game that a stranger has put into the waiting line leaves it."""
    player = Player(run_with_logs, A)
    party = registered(player, tmp_path / "sessions")
    sealed(party, job)
    player.going.clear()
    queries = [q.encode_query(q.Log(step)) for step in range(STEPS)]
    party.log(queries[0])
    until(lambda: bool(player.asked))  # the thread has taken it
    for query in queries:
        party.log(query)
    game = party._worker.ask(queries[-1])
    player.going.set()
    game.result(30)
    assert player.asked[1] == queries[-1]


# A party that sends its response byte by byte holds no follower up for ever.
def test_a_response_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx2

    from tallystick.service import client

    clock, sent = [0.0], [0]

    class Drip(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while sent[0] < 1000:
                clock[0] += 29.0
                sent[0] += 1
                yield b"x"

    monkeypatch.setattr(client.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    with LogSource("http://x:1", patience=0.0) as source:
        source._client = httpx2.Client(
            transport=httpx2.MockTransport(lambda _: httpx2.Response(200, stream=Drip()))
        )
        with pytest.raises(UnreachableError, match="does not end"):
            source.answer(b"")
    assert sent[0] < 20


def test_a_job_with_logs_has_two_parties(job: Job, run_with_logs: LogParty, tmp_path: Path) -> None:
    player = Player(run_with_logs, A)
    party = registered(player, tmp_path / "sessions")
    assert rules(job, [player]).referee == REFEREE.public
    assert isinstance(party.reply(Script(job).begin(most=3)), Refusal)
