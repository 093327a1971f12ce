"""A distributed run that goes on with new workers: what a retry keeps, whom an error names, and
what it says of those who were convicted before it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from share_samples import make_share_job
from team_threads import Hub, ThreadTransport

from tallystick.api import runs, training
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.prover import shares
from tallystick.run.distributed import launch, messages, others
from tallystick.run.distributed.checks import Hand, ShareChecks, ShareDraws
from tallystick.run.distributed.claims import ConvictedWorker, WorkerConvictedError
from tallystick.run.distributed.exchange import Spreading
from tallystick.run.distributed.going_on import GoingOn, train_on
from tallystick.run.distributed.messages import Consent
from tallystick.run.distributed.others import Others, record_convictions
from tallystick.run.distributed.transport import (
    Meeting,
    PeerLostError,
    Transport,
    TransportFaultError,
    WorkerError,
)
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.directory import RunStore
from tallystick_bench.local_team import LocalTransport, train_in_threads

LIAR = ConvictedWorker(1, 3, "ab" * 32, 4, 3, "3.1", Path("evidence"), Path("job"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_share_job(tmp_path_factory.mktemp("on") / "job", 3)


def at_once(retries: int, convictions: bool = False) -> GoingOn:
    return GoingOn(convictions, retries, wait=lambda _: None)


# -- a retry ---------------------------------------------------------------------------------------
def test_a_retry_before_the_run_begins_still_overwrites(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished run that is there is not this command's. A key of its own signs each run."""
    out, asked = tmp_path / "run", list[bool]()
    old = train_job(job, out)

    def welcome(*_: object) -> None:
        raise WorkerError("Worker 1 did not come.", "Wait.")

    monkeypatch.setattr(launch, "welcome", welcome)
    monkeypatch.setattr(Others, "start", lambda *_: None)

    def once(workers: int, options: Options) -> RunSummary:
        asked.append(options.overwrite)
        if len(asked) == 1:
            return launch.train_with(launch.Workers(workers, timeout=5), job, out, options, None)
        return train_job(job, out, options)

    found = train_on(once, 2, Options(overwrite=True), at_once(1))
    assert asked == [True, True]
    assert found.run_root == old.run_root and found.signer != old.signer


def test_a_retry_of_a_run_that_began_goes_on_with_it(job: Job, tmp_path: Path) -> None:
    class NoMemory(Hand):
        def before_claim(self, checks: ShareChecks) -> None:
            if checks.rank and checks.step == 1:
                raise MemoryError

    out = tmp_path / "run"
    checking = shares.checking_of(1.0, job.directory, out)
    with pytest.raises(WorkerError, match="too little memory") as why:
        train_in_threads(job, out, 2, checking, lambda _: NoMemory())
    assert why.value.begun
    asked = list[bool]()

    def once(workers: int, options: Options) -> RunSummary:
        asked.append(options.overwrite)
        if len(asked) == 1:
            raise why.value
        return train_job(job, out, options)

    train_on(once, 2, Options(overwrite=True), at_once(1))
    assert asked == [True, False] and len(RunStore(out).journal(job).sessions) == 2


def test_connections_end_where_no_team_was_made(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next team of this process could make none."""
    closed = list[bool]()

    def lost(*_: object) -> None:
        raise PeerLostError(1, "gone")

    made = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(launch, "welcome", lambda *_: made)
    monkeypatch.setattr(launch, "ShareChecks", lost)
    monkeypatch.setattr(others, "LAST_WORDS_SECONDS", 0)
    monkeypatch.setattr(Others, "start", lambda *_: None)
    checking = shares.checking_of(1.0, job.directory, tmp_path / "run")
    with pytest.raises(PeerLostError):
        two = launch.Workers(2, timeout=5, checking=checking)
        launch.train_with(two, job, tmp_path / "run", Options(), None)
    assert closed == [True]


def test_connections_that_cannot_be_made_are_errors_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Meeting(0, 1, 5).connect()
    try:
        with pytest.raises(UsageError, match="has a process group of torch"):
            Meeting(0, 1, 5).connect()
    finally:
        first.close()

    def refused(*_: object, **__: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr("torch.distributed.init_process_group", refused)
    with pytest.raises(PeerLostError, match="no such thing"):
        Transport(Meeting(0, 1, 5))


def test_python_refuses_under_torchrun_too(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "x")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(UsageError, match="do not work under torchrun"):
        runs.train(job, tmp_path / "run", workers=2, retries=1, progress=False)


# -- who is named ----------------------------------------------------------------------------------
def test_who_reports_altered_bytes_of_another_is_not_named(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker 2 sends worker 1 alone claims with a false digest, when worker 1's work is drawn."""
    put, armed = LocalTransport.send_copy, list[bool]()

    class Altering(Hand):
        def before_claim(self, checks: ShareChecks) -> None:
            if (checks.rank, checks.step) == (2, 1):
                armed.append(True)

    def altered(self: LocalTransport, kind: str, data: np.ndarray, to: int) -> None:
        if (self.rank, to, kind) == (2, 1, "gather") and data.nbytes > 100 and armed:
            armed.clear()
            data = data.copy()
            data[0] ^= 1
        put(self, kind, data, to)

    real = ShareDraws.checker

    def drawn(draws: ShareDraws, step: int, number: int, owner: int) -> int | None:
        return int(owner != 1) if step > draws.whole else real(draws, step, number, owner)

    monkeypatch.setattr(LocalTransport, "send_copy", altered)
    monkeypatch.setattr(ShareDraws, "checker", drawn)
    out = tmp_path / "run"
    checking = shares.checking_of(0.25, job.directory, out)
    with pytest.raises(WorkerError, match="Worker 1: The claims from worker 2 do not") as why:
        train_in_threads(job, out, 3, checking, lambda _: Altering())
    assert why.value.rank is None and "when its work was drawn" not in str(why.value)
    (session,) = RunStore(out).journal(job).sessions
    assert "ended_by_worker" not in session


@pytest.mark.parametrize(
    ("words", "rank"),
    [
        ({}, 1),
        ({"lost/1": "2"}, 2),
        ({"lost/1": "3", "lost/3": "2"}, 2),
        ({"lost/1": "2", "lost/2": "1"}, None),
        ({"lost/1": "0"}, None),
        ({"lost/1": "None"}, None),
        ({"lost/1": "9" * 5000}, None),
    ],
)
def test_losses_are_followed_to_who_lost_nobody(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, str], rank: int | None
) -> None:
    monkeypatch.setattr(others, "LAST_WORDS_SECONDS", 0.01)
    meeting: Any = SimpleNamespace(
        size=4, has=lambda key: key in words, get=lambda key: words[key].encode()
    )
    found = Others(meeting).explained(PeerLostError(1, "gone"))
    assert found.rank == rank
    assert ("Another worker" if rank is None else f"Worker {rank} ") in found.message


def test_a_fault_that_lasts_is_not_tried_again(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has not got the others' new tensors has another state: the next attempt ends
    alike."""
    write, notices = Spreading.write_parts, list[str]()

    def failing(self: Spreading, *given: Any) -> None:
        if self.rank == 1:
            raise TransportFaultError(0, "new tensors")
        write(self, *given)

    class Heard(Silent):
        def notice(self, text: str) -> None:
            notices.append(text)

    monkeypatch.setattr(Spreading, "write_parts", failing)
    out = tmp_path / "run"
    checking = shares.checking_of(1.0, job.directory, out)
    with pytest.raises(WorkerError, match="Worker 1: The new tensors from worker 0"):
        train_in_threads(job, out, 2, checking, listener=Heard())
    assert not [text for text in notices if "once more" in text]


def test_the_same_bytes_for_all_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, made, sealed = Hub(4), list[int](), messages.sealed

    def counted(*given: Any) -> np.ndarray:
        made.append(1)
        return sealed(*given)

    monkeypatch.setattr(messages, "sealed", counted)
    found: dict[int, dict[int, bytes]] = {}

    def be(rank: int) -> None:
        consent = Consent(ThreadTransport(hub, rank))  # type: ignore[arg-type]
        own = np.full(rank + 1, rank, np.uint8)
        got = consent.spread("values", lambda: [own], [1, 2, 3, 4])
        found[rank] = {source: body.tobytes() for source, body in got.items()}

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    every = {rank: bytes([rank] * (rank + 1)) for rank in range(4)}
    assert found == {r: {s: every[s] for s in every if s != r} for r in range(4)}
    assert len(made) == 4


# -- convictions are told --------------------------------------------------------------------------
def test_an_error_after_a_conviction_says_so() -> None:
    """Nothing else that the caller gets names the worker where the run does not complete."""
    errors = [
        WorkerConvictedError("False.", "Go on.", [LIAR]),
        CannotCheckError("The disk is full.", "Make room."),
    ]

    def once(workers: int, options: Options) -> RunSummary:
        raise errors.pop(0)

    with pytest.raises(CannotCheckError, match=r"full\. Before that: Worker 1 of 3 \(key abab"):
        train_on(once, 3, Options(), at_once(0, convictions=True))
    both = [replace(LIAR, worker=2), LIAR]
    told = list[str]()
    errors += [
        WorkerConvictedError("False.", "Go on.", both),
        WorkerConvictedError("Again.", "End.", [replace(LIAR, worker=0)]),
    ]
    with pytest.raises(WorkerConvictedError) as why:
        train_on(once, 4, Options(), GoingOn(convictions=True, tell=told.append))
    assert [c.worker for c in why.value.convicted] == [2, 1, 0]
    assert told[-1] == "The run goes on without them, with 2 workers."


def test_a_pause_after_a_conviction_says_so(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = SimpleNamespace(finished=False, steps=2, convicted=(LIAR,))
    monkeypatch.setattr(training, "train_by", lambda *_, **__: paused)
    with pytest.raises(KeyboardInterrupt, match="Before that: Worker 1 of 3"):
        runs.train(job, tmp_path / "run", progress=False)


def test_a_later_command_tells_of_convictions_in_the_journal(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_job(job, out, Options(stop_before=1))
    record_convictions([1, 2], SimpleNamespace(job=job), out)  # type: ignore[arg-type]
    (session,) = RunStore(out).journal(job).sessions
    assert (session["convicted_worker"], session["convicted_too"]) == (1, 2)
    found = train_on(lambda _, given: train_job(job, out, given), 1, Options(), GoingOn())
    assert found.finished and found.convicted == ()
    assert found.convicted_before == ((1, 1), (2, 1))
