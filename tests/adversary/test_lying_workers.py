"""Workers of a distributed run that lie about their shares (docs/adr/0024), as threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from share_samples import make_share_job

from tallystick.errors import MachineFaultError, MismatchError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.prover import lying_worker, shares
from tallystick.run.cheats.workers import FalseBytes, OtherBytes
from tallystick.run.distributed.checks import Hand, ShareChecks, ShareDraws
from tallystick.run.distributed.claims import WorkerConvictedError
from tallystick.run.distributed.going_on import GoingOn, going_on
from tallystick.run.distributed.transport import WorkerError
from tallystick.run.execute.listener import Silent
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
    checking = lying_worker.checking_of(fraction, job.directory, out, lie)

    def hand(rank: int) -> Hand:
        return lying_worker.hand_of({"rank": rank, "lie": lie})

    return train_in_threads(job, out, workers, checking, hand, lying_worker.answer)


LONG = pytest.mark.long


@pytest.mark.parametrize("workers", [3, *(pytest.param(w, marks=LONG) for w in (2, 4, 6))])
def test_checks_change_no_bit(job: Job, one: RunSummary, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "run"
    checking = shares.checking_of(1.0, job.directory, out)
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
    monkeypatch.setattr(ShareDraws, "checker", lambda *drawn: int(drawn[-1] != 1))
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
        monkeypatch.setattr(ShareDraws, "checker", lambda *drawn: int(drawn[-1] != 1))
    out = tmp_path / "run"
    checking = shares.checking_of(fraction, job.directory, out)

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
    checking = shares.checking_of(1.0, job.directory, out)
    with pytest.raises(MachineFaultError, match="too little memory"):
        train_in_threads(job, out, 2, checking, lambda _: _NoMemory())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_party_whose_machine_fails_is_not_convicted(job: Job, tmp_path: Path) -> None:
    """The dispute ends without a verdict: no answer is no lie."""

    def broken(checks: ShareChecks, run: Path) -> Any:
        raise MemoryError("no room")

    lie = {"rank": 1, "kind": "false-bytes", "step": 1, "part": 3}
    checking = lying_worker.checking_of(1.0, job.directory, tmp_path / "run", lie)

    def hand(rank: int) -> Hand:
        return lying_worker.hand_of({"rank": rank, "lie": lie})

    with pytest.raises(Exception, match="No party is convicted") as why:
        train_in_threads(
            job, tmp_path / "run", 2, checking, hand, lambda checks: shares.answer(checks, broken)
        )
    assert not isinstance(why.value, WorkerConvictedError)


# -- the run goes on -------------------------------------------------------------------------------
class _Heard(Silent):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


def checked_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every share is computed again, worker 1's by worker 0 and all others' by worker 1."""
    monkeypatch.setattr(ShareDraws, "checker", lambda *drawn: int(drawn[-1] != 1))


def at_once(retries: int, convictions: bool = False) -> GoingOn:
    return GoingOn(convictions, retries, wait=lambda _: None)


def sessions_of(job: Job, out: Path) -> list[dict[str, Any]]:
    return RunStore(out).journal(job).sessions


def test_the_run_goes_on_without_the_convicted(
    job: Job, one: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three lie in one step, one in each team; the last worker trains alone to the root of
    one. Each evidence stands, and the journal says who was left out."""
    checked_by_all(monkeypatch)
    out, told = tmp_path / "run", list[str]()
    checking = shares.checking_of(1.0, job.directory, out)

    def hand(rank: int) -> Hand:
        return FalseBytes(3, 3) if rank == 1 else Hand()

    how = GoingOn(convictions=True, tell=told.append)
    found = train_in_threads(job, out, 3, checking, hand, how=how)
    assert found.finished and found.run_root == one.run_root
    assert [(c.worker, c.workers, c.step) for c in found.convicted] == [(1, 3, 3), (1, 2, 3)]
    assert found.convicted_before == ()
    again = train_in_threads(job, out, 2, checking)
    assert (again.convicted, again.convicted_before) == ((), ((1, 3), (1, 2)))
    assert [s["workers"] for s in sessions_of(job, out)[:2]] == [3, 2]
    assert [s.get("convicted_worker") for s in sessions_of(job, out)] == [1, 1, None]
    for convicted, name in zip(found.convicted, ("step-3", "step-3-2"), strict=True):
        assert convicted.evidence == tmp_path / f"run-false-share-{name}" / "evidence"
        assert convicted.evidence.exists() and convicted.job.is_dir()
    assert f"Worker 1 of 3 (key {found.convicted[0].key[:16]}) is convicted" in told[0]
    assert str(found.convicted[0].evidence) in told[0]
    assert told[1] == "The run goes on without it, with 2 workers."
    assert told[3] == "The run goes on without it, with worker 0 alone, and without checks."


def test_a_conviction_of_worker_0_ends_the_run(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the command itself: nobody could go on without it."""
    checked_by_all(monkeypatch)
    out = tmp_path / "run"
    checking = shares.checking_of(1.0, job.directory, out)
    how = GoingOn(convictions=True)
    with pytest.raises(WorkerConvictedError, match="Convicted: worker 0 ") as why:
        train_in_threads(
            job, out, 2, checking, lambda r: Hand() if r else FalseBytes(1, 0), how=how
        )
    assert [c.worker for c in why.value.convicted] == [0]


def test_a_step_that_is_repeated_is_told_and_recorded(
    job: Job, one: RunSummary, tmp_path: Path
) -> None:
    out, heard = tmp_path / "run", _Heard()
    checking = shares.checking_of(1e-12, job.directory, out)

    def hand(rank: int) -> Hand:
        return OtherBytes(2, 3, times=1) if rank == 1 else Hand()

    found = train_in_threads(job, out, 3, checking, hand, listener=heard)
    assert found.run_root == one.run_root
    repeated = [text for text in heard.notices if text.startswith("Step 2 is executed once more:")]
    assert len(repeated) == 1 and "The bytes that worker 1 sent in step 2" in repeated[0]
    (session,) = sessions_of(job, out)
    # Of the steps that a session takes up every share is drawn: of a new run, its first.
    assert (session["repeated_steps"], session["checked_shares"]) == (1, 3)


class _Ending(Hand):
    """It lies in a step, and ends the run as soon as others take so long that it must be drawn."""

    def __init__(self, step: int) -> None:
        self.step = step

    def before_claim(self, checks: ShareChecks) -> None:
        FalseBytes(self.step, 3).before_claim(checks)

    def before_check(self, checks: ShareChecks, sums: object) -> None:
        if checks.step == self.step:
            raise StorageError("Of course.", "Wait.")


def test_who_ends_the_run_when_it_is_drawn_is_named_and_gets_no_other_draw(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step in which it did so is drawn as a whole when the run is taken up: there it must be
    honest. Where it does so again in a later step, the message counts."""
    out = tmp_path / "run"
    checking = shares.checking_of(0.25, job.directory, out)
    real, chance = ShareDraws.checker, {1, 3}

    def drawn(draws: ShareDraws, step: int, number: int, owner: int) -> int | None:
        if step > draws.whole:
            return int(owner != 1) if step in chance else None
        return real(draws, step, number, owner)

    monkeypatch.setattr(ShareDraws, "checker", drawn)

    def lying(step: int) -> RunSummary:
        return train_in_threads(
            job, out, 3, checking, lambda r: _Ending(step) if r == 1 else Hand()
        )

    for step, times in ((1, 1), (3, 2)):
        named = rf"in step {step} when its work was drawn .*: so it was {times} of the {times} time"
        with pytest.raises(WorkerError, match=named + r".*probability 0\.25\.") as why:
            lying(step)
        assert why.value.rank == 1 and "Worker 1: Of course." in str(why.value)
    assert [s["ended_by_worker"] for s in sessions_of(job, out)] == [1, 1]
    chance.clear()
    with pytest.raises(WorkerConvictedError, match="Convicted: worker 1 "):
        train_in_threads(job, out, 3, checking, lambda r: FalseBytes(3, 3) if r == 1 else Hand())


def test_retries_go_on_with_new_workers(job: Job, one: RunSummary, tmp_path: Path) -> None:
    out, told = tmp_path / "run", list[str]()
    hands = [_NoMemory(), _NoMemory(), Hand()]
    checking = shares.checking_of(1.0, job.directory, out)
    with pytest.raises(MachineFaultError, match="too little memory"):
        train_in_threads(job, out, 2, checking, lambda _: _NoMemory(), how=at_once(1))

    def hand(rank: int) -> Hand:
        return hands.pop(0) if rank else Hand()

    waits = list[float]()
    how = GoingOn(retries=2, tell=told.append, wait=waits.append)
    found = train_in_threads(job, out, 2, checking, hand, how=how)
    assert waits == [0.5, 1.0]
    assert (found.run_root, found.workers, found.convicted) == (one.run_root, 2, ())
    assert [text.rpartition("; ")[2] for text in told] == [
        "1 of 2 retries are left.",
        "0 of 2 retries are left.",
    ]


def test_a_lie_from_before_the_conviction_is_no_fault_of_the_machine(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the journal, so honest workers get other losses when they repeat its steps."""
    out = tmp_path / "run"
    monkeypatch.setattr(
        ShareDraws, "checker", lambda _, step, *n: int(n[-1] != 1) if step == 4 else None
    )

    class Twice(Hand):
        def before_claim(self, checks: ShareChecks) -> None:
            for step in (2, 4):
                FalseBytes(step, 3).before_claim(checks)

    checking = shares.checking_of(0.5, job.directory, out)
    with pytest.raises(WorkerConvictedError, match="before that step which were not drawn may be"):
        train_in_threads(job, out, 2, checking, lambda _: Twice())
    RunStore(out).drop_state(4)
    with pytest.raises(MismatchError, match="A worker of this run was convicted"):
        train_in_threads(job, out, 2, checking)


def test_what_cannot_go_on_is_refused() -> None:
    for given, named in (
        (("continue", 0, 2, False, False), "only be convicted if workers check"),
        (("continue", 0, 2, True, True), "do not work under torchrun"),
        (("stop", 1, 2, True, True), "do not work under torchrun"),
        (("stop", 1, 1, False, False), "no other worker can continue"),
        (("stop", -1, 2, False, False), "retries -1 is out of range"),
        (("stop", 1001, 2, False, False), "Choose from 0 to 1,000"),
        (("go", 0, 2, True, False), "--on-conviction='go' is not known"),
    ):
        with pytest.raises(UsageError, match=named):
            going_on(*given)
    assert going_on("stop", 0, 1, True, True) == GoingOn()
    assert going_on("continue", 2, 3, True, False) == GoingOn(True, 2)
