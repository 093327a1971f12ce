"""Workers of a distributed run that lie about their shares (docs/adr/0024), as threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from share_samples import make_share_job

from tallystick.errors import MachineFaultError, StorageError
from tallystick.job.job import Job
from tallystick.prover import lying_worker, shares
from tallystick.run.cheats.workers import FalseBytes, OtherBytes
from tallystick.run.distributed.checks import ShareChecks
from tallystick.run.distributed.draws import Draws
from tallystick.run.distributed.false_share import WorkerConvictedError
from tallystick.run.distributed.hand import Hand
from tallystick.run.execute.trainer import RunSummary, train_job
from tallystick.run.store.directory import RunStore
from tallystick_bench.local_team import train_in_threads


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_share_job(tmp_path_factory.mktemp("lying") / "job", 6)


@pytest.fixture(scope="module")
def one(job: Job) -> RunSummary:
    return train_job(job, job.directory.parent / "one")


def lied(job: Job, out: Path, workers: int, fraction: float = 1.0, **lie: Any) -> RunSummary:
    checking = lying_worker.checking_of(fraction, job.directory, out, workers, lie)

    def hand(rank: int) -> Hand:
        return lying_worker.hand_of({"rank": rank, "lie": lie})

    return train_in_threads(job, out, workers, checking, hand, lying_worker.answer)


LONG = pytest.mark.long


@pytest.mark.parametrize("workers", [3, *(pytest.param(w, marks=LONG) for w in (2, 4, 6))])
def test_checks_change_no_bit(job: Job, one: RunSummary, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "run"
    checking = shares.checking_of(1.0, job.directory, out, workers)
    assert train_in_threads(job, out, workers, checking).run_root == one.run_root
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("false-gradient", {"step": 0, "part": 3}),
        pytest.param("false-gradient", {"step": 4, "part": 2}, marks=LONG),
        pytest.param("false-bytes", {"step": 2, "part": 2}, marks=LONG),
        ("false-check", {"step": 1}),
    ],
)
def test_the_liar_alone_is_convicted(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, where: dict[str, int]
) -> None:
    """Nothing of the step is used: the journal ends before it."""
    # By chance worker 1 would be nobody's checker in one step of four.
    monkeypatch.setattr(Draws, "checker", lambda *drawn: int(drawn[-1] != 1))
    named = r"Convicted: worker 1 \(key \w+\), in phase"
    with pytest.raises(WorkerConvictedError, match=named) as why:
        lied(job, tmp_path / "run", 3, rank=1, kind=kind, **where)
    assert len(RunStore(tmp_path / "run").journal(job).losses) == where["step"]
    assert "--workers 2 --check-workers 1.0" in str(why.value)
    if kind == "false-gradient":
        assert "in phase 3, case 3." in str(why.value)


def test_a_lie_that_is_not_drawn_stands(job: Job, one: RunSummary, tmp_path: Path) -> None:
    """No check is made that was not drawn. Only an audit of the run finds the lie then."""
    lie = {"rank": 1, "kind": "false-gradient", "step": 2, "part": 3}
    assert lied(job, tmp_path / "run", 3, 1e-12, **lie).run_root != one.run_root


def test_other_bytes_are_asked_for_once_more(job: Job, one: RunSummary, tmp_path: Path) -> None:
    lie = {"rank": 1, "kind": "other-bytes", "step": 2, "part": 3}
    assert lied(job, tmp_path / "run", 3, times=1, **lie).run_root == one.run_root
    with pytest.raises(MachineFaultError, match="bytes that worker 1 sent in step 2 are not"):
        lied(job, tmp_path / "again", 3, **lie)


class _SecondThoughts(Hand):
    """It sees how long the others take, and so whether it is drawn. Then it has the step repeated,
    and lies."""

    times = 0

    def before_claim(self, checks: ShareChecks) -> None:
        self.times += checks.step == 2
        if self.times == 2:
            FalseBytes(2, 3).before_claim(checks)

    def after_claim(self, checks: ShareChecks) -> None:
        if self.times == 1:
            OtherBytes(2, 3).after_claim(checks)


class _Retraction(Hand):
    """It lies, sees that it is drawn, and has the step repeated before anything is compared."""

    times = 0

    def before_claim(self, checks: ShareChecks) -> None:
        self.times += checks.step == 2
        if self.times == 1:
            FalseBytes(2, 3).before_claim(checks)

    def before_check(self, checks: ShareChecks, sums: object) -> None:
        if self.times == 1:
            raise StorageError("Of course.", "Wait.")


@pytest.mark.parametrize(("kind", "fraction"), [(_SecondThoughts, 1e-12), (_Retraction, 1.0)])
def test_a_step_that_is_repeated_is_signed_as_before(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Hand], fraction: float
) -> None:
    if fraction == 1:
        monkeypatch.setattr(Draws, "checker", lambda *drawn: int(drawn[-1] != 1))
    out = tmp_path / "run"
    checking = shares.checking_of(fraction, job.directory, out, 3)

    def hand(rank: int) -> Hand:
        return kind() if rank == 1 else Hand()

    with pytest.raises(MachineFaultError, match="Worker 1 has signed two different values"):
        train_in_threads(job, out, 3, checking, hand)
    assert len(RunStore(out).journal(job).losses) == 2


class _NoMemory(Hand):
    def before_claim(self, checks: ShareChecks) -> None:
        if checks.rank and checks.step == 1:
            raise MemoryError


def test_too_little_memory_convicts_nobody(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    checking = shares.checking_of(1.0, job.directory, out, 2)
    with pytest.raises(MachineFaultError, match="too little memory"):
        train_in_threads(job, out, 2, checking, lambda _: _NoMemory())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_party_whose_machine_fails_is_not_convicted(job: Job, tmp_path: Path) -> None:
    """The dispute ends without a verdict: no answer is no lie."""

    def broken(checks: ShareChecks, run: Path) -> Any:
        raise MemoryError("no room")

    lie = {"rank": 1, "kind": "false-bytes", "step": 1, "part": 3}
    checking = lying_worker.checking_of(1.0, job.directory, tmp_path / "run", 2, lie)

    def hand(rank: int) -> Hand:
        return lying_worker.hand_of({"rank": rank, "lie": lie})

    with pytest.raises(Exception, match="No party is convicted") as why:
        train_in_threads(
            job, tmp_path / "run", 2, checking, hand, lambda checks: shares.answer(checks, broken)
        )
    assert not isinstance(why.value, WorkerConvictedError)
