"""Runs under `replay/1`: trained, audited, followed and taken up again, on other engines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from reference.orders import LeftToRight, Nudged, Shuffled

pytest.importorskip("torch", reason="torch is not installed")

from replay_tools import forging, replay_job, some_more, trained

from tallystick.devices.context import DEFAULT
from tallystick.errors import DigestMismatchError, MismatchError, UsageError
from tallystick.job.job import Job
from tallystick.products.engines import NumpyEngine, using
from tallystick.program.state import State
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.show.inspect import inspect_run
from tallystick.run.show.preview import estimate_run
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.journal import REASONS, Journal

ENGINES = (LeftToRight(), Shuffled(3), Nudged(8))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return replay_job(tmp_path_factory.mktemp("replay") / "job")


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    """A finished run. Never change it: copy it."""
    return trained(job, tmp_path_factory.mktemp("replay-run") / "run", Nudged(1))


@pytest.fixture(scope="module")
def first_node(job: Job) -> int:
    """The first product of a step."""
    return next(i for i, n in enumerate(job.program.nodes) if n.op in ("aten.mm", "aten.addmm"))


def _logs(run: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((run / "logs").iterdir())]


def test_a_run_has_a_log_for_every_step_and_says_so(job: Job, run: RunSummary) -> None:
    store = RunStore(run.directory)
    assert store.logged_steps() == list(range(20))
    assert run.log_bytes == sum(map(len, _logs(run.directory))) > 0
    found = inspect_run(run.directory)
    assert found["log_bytes"] == run.log_bytes
    assert found["contract"] == "replay/1-draft.1;b=32;form=bounded"
    report = fsck(run.directory)
    assert report.clean, report.problems
    assert "logs/0000000019.log" in report.checked
    final = store.load_state(job, 20, run.final_state_root)
    assert final.log_chain != bytes(32)


@pytest.mark.parametrize("engine", [NumpyEngine(), *ENGINES], ids=lambda e: e.name)
def test_any_engine_follows_it_to_the_same_bits(
    engine: Nudged, job: Job, run: RunSummary, tmp_path: Path
) -> None:
    with using(engine):
        report = audit_run(run.directory)
    assert report.accepted and report.whole
    assert report.checkpoints_compared == 2
    assert report.choices is not None
    left, taken = report.choices
    assert left > taken > 0, "a job without choices shows nothing"
    follower = trained(job, tmp_path / "follower", engine, Options(replay=run.directory))
    assert follower.run_root == run.run_root
    assert follower.losses == run.losses
    assert _logs(follower.directory) == _logs(run.directory)
    assert follower.followed is not None and follower.followed.accepted
    # An engine that agrees with an entry does not look whether there was a choice.
    assert abs(follower.followed.left - left) < 0.1 * left
    assert follower.followed.taken == taken
    assert fsck(follower.directory).clean


def test_who_follows_no_log_differs(job: Job, run: RunSummary, tmp_path: Path) -> None:
    assert trained(job, tmp_path / "run", Nudged(2)).final_state_root != run.final_state_root


def test_a_segment_begins_at_a_stored_state_with_its_log_chain(run: RunSummary) -> None:
    with using(Nudged(5)):
        report = audit_run(run.directory, steps=(12, 17))
    assert report.accepted and (report.first_step, report.last_step) == (10, 20)
    assert report.choices is not None and report.choices[0] > 0


def test_a_forged_entry_is_named_and_changes_no_value(
    job: Job, run: RunSummary, first_node: int, tmp_path: Path
) -> None:
    with forging(some_more(14, first_node)):
        forged = trained(job, tmp_path / "forged", Shuffled(1))
    assert not fsck(forged.directory).problems, "the log is the committed one"
    with using(Nudged(2)):
        report = audit_run(forged.directory)
    assert not report.accepted
    assert report.difference is not None and report.difference.kind == "log"
    assert report.difference.step == 14 and report.difference.interval == (10, 15)
    assert report.last_step == 20 and report.checkpoints_compared == 2, "the audit goes on"
    found = report.findings[0]
    assert f"element {found['element']}" in report.difference.sentence
    assert 1 <= len(report.findings) <= 8
    for one in report.findings:
        assert (one["kind"], one["step"], one["node"]) == ("forged entry", 14, first_node)
        assert one["element"] in range(5, 13)
        assert (one["output"], one["direction"]) == (0, 1)
    follower = trained(job, tmp_path / "follower", Nudged(3), Options(replay=forged.directory))
    assert follower.followed is not None and not follower.followed.accepted
    assert follower.followed.findings == report.findings
    assert follower.followed.difference is None, "the values are what the log gives"
    assert follower.finished and follower.losses == forged.losses
    assert follower.run_root != forged.run_root, "its own log is the honest one"
    with using(LeftToRight()):
        assert audit_run(follower.directory).accepted


def test_a_wrong_value_is_a_difference_to_audit_and_follower(job: Job, tmp_path: Path) -> None:
    class Flip(Override):
        def after(self, step: int, state: State) -> None:
            if step == 13:
                state.slots["param.0.weight"].view("u4").reshape(-1)[0] ^= 1

    cheat = trained(job, tmp_path / "cheat", Shuffled(1), Options(maker=Cheat(Flip())))
    report = audit_run(cheat.directory)
    assert report.difference is not None and report.difference.interval == (10, 20)
    follower = trained(job, tmp_path / "follower", Shuffled(2), Options(replay=cheat.directory))
    assert follower.followed is not None and follower.finished
    difference = follower.followed.difference
    assert difference is not None and difference["interval"] == [10, 20]
    assert difference["slot"] is not None
    assert audit_run(follower.directory).accepted


def _missing(path: Path) -> None:
    path.unlink()


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _swapped(path: Path) -> None:
    shutil.copy(path.with_name("0000000003.log"), path)


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_missing, _truncated, _empty, _swapped, _flipped])
def test_a_damaged_log_is_named(damage: object, job: Job, run: RunSummary, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run.directory, broken)
    damage(broken / "logs" / "0000000012.log")  # type: ignore[operator]
    report = audit_run(broken)
    assert not report.accepted
    assert report.difference is not None and report.difference.kind == "log"
    assert (report.difference.step, report.difference.interval) == (12, (10, 13))
    assert "step 12" in report.difference.sentence
    problems = fsck(broken).problems
    assert [p.path for p in problems] == ["logs/0000000012.log"]
    assert "step 12" in problems[0].message
    if damage not in (_missing, _flipped):
        return
    follower = trained(job, tmp_path / "follower", Nudged(4), Options(replay=broken))
    assert follower.finished and follower.followed is not None
    assert follower.followed.findings[0]["step"] == 12
    assert follower.followed.findings[0]["kind"].endswith(" log")
    assert audit_run(follower.directory).accepted


def test_a_log_of_another_run_of_the_same_job_is_refused(
    job: Job, run: RunSummary, tmp_path: Path
) -> None:
    """Well formed, of this job and step: only the chain tells."""
    other = trained(job, tmp_path / "other", Nudged(9))
    broken = tmp_path / "broken"
    shutil.copytree(run.directory, broken)
    for number in range(20):  # in at least one step the two differ
        name = f"{number:010d}.log"
        shutil.copy(other.directory / "logs" / name, broken / "logs" / name)
    report = audit_run(broken)
    assert report.difference is not None and report.difference.kind == "log"
    assert "committed" in report.difference.sentence
    assert not fsck(broken).clean


def test_a_segment_of_repeated_steps_follows_the_own_logs(
    job: Job, run: RunSummary, tmp_path: Path
) -> None:
    """What an engine chose before a crash stands, whatever engine goes on."""
    out = tmp_path / "run"
    stopped = trained(job, out, Nudged(1), Options(stop_before=17))
    assert stopped.steps == 17
    before = _logs(out)
    for path in (out / "checkpoints").iterdir():
        path.unlink()
    (out / "logs" / "0000000017.log").write_bytes(before[3])  # no record of the journal names it
    (out / "logs" / "0000000018.log.part").write_bytes(b"half")
    done = trained(job, out, Nudged(6))
    assert done.finished
    assert _logs(out)[:17] == before
    assert fsck(out).clean
    assert audit_run(out).accepted


def test_a_lost_log_is_made_again_or_the_machine_is_named(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained(job, out, Shuffled(2), Options(stop_before=15))
    before = _logs(out)
    for path in (out / "checkpoints").iterdir():
        path.unlink()
    for number in (2, 9):
        (out / "logs" / f"{number:010d}.log").unlink()
    again = tmp_path / "again"
    shutil.copytree(out, again)
    trained(job, out, Shuffled(2), Options(stop_before=16))
    assert _logs(out)[:15] == before
    for path in (again / "logs").iterdir():
        path.unlink()
    with pytest.raises(MismatchError, match="log"):
        trained(job, again, Nudged(3))


def test_a_follower_is_taken_up_as_one(job: Job, run: RunSummary, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = Options(replay=run.directory, stop_before=13)
    trained(job, out, Shuffled(5), options)
    with pytest.raises(UsageError, match="following the run"):
        train_job(job, out)
    done = trained(job, out, Nudged(5), Options(replay=run.directory))
    assert done.run_root == run.run_root
    assert done.followed is not None and done.followed.accepted
    whole = trained(job, tmp_path / "whole", Nudged(6), Options(replay=run.directory))
    assert whole.followed is not None and whole.followed.taken == done.followed.taken
    plain = tmp_path / "plain"
    trained(job, plain, Shuffled(5), Options(stop_before=3))
    with pytest.raises(UsageError, match="without --replay"):
        train_job(job, plain, Options(replay=run.directory))


def test_what_makes_no_sense_is_refused(
    job: Job, run: RunSummary, mlp_job: Job, mlp_run: RunSummary, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no rounding logs"):
        train_job(mlp_job, tmp_path / "a", Options(replay=mlp_run.directory))
    with pytest.raises(UsageError, match="no rounding logs"):
        train_job(mlp_job, tmp_path / "b", Options(compress=True))
    with pytest.raises(UsageError, match="another job"):
        train_job(job, tmp_path / "c", Options(replay=mlp_run.directory))
    with pytest.raises(UsageError, match="not a run"):
        train_job(job, tmp_path / "d", Options(replay=tmp_path))


def test_compressed_logs_say_the_same(job: Job, run: RunSummary, tmp_path: Path) -> None:
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    options = Options(replay=run.directory, compress=True)
    follower = trained(job, tmp_path / "run", Shuffled(1), options)
    assert follower.run_root == run.run_root
    assert _logs(follower.directory) != _logs(run.directory)
    assert audit_run(follower.directory).accepted


def test_the_estimate_counts_logs(job: Job, run: RunSummary, tmp_path: Path) -> None:
    estimate = estimate_run(job, tmp_path, DEFAULT, 2)
    assert 0.5 * run.log_bytes < estimate.disk.logs < 2 * run.log_bytes
    assert "rounding logs" in estimate.sentence()


def test_a_journal_that_names_no_logs_is_no_claim(
    job: Job, run: RunSummary, tmp_path: Path
) -> None:
    """Its roots are the signed ones: what is missing is what a follower goes by."""
    out = tmp_path / "run"
    shutil.copytree(run.directory, out)
    store = RunStore(out)
    before = store.journal()
    store.journal_path.unlink()
    journal = Journal.open(store.journal_path, job.digest)
    for step, bits in enumerate(before.losses):
        if step in before.roots:
            journal.checkpoint(step, before.roots[step])
        journal.loss(step, bits)
    journal.checkpoint(20, before.roots[20])
    journal.end(20, REASONS[0], run.run_root)
    journal.close()
    with pytest.raises(DigestMismatchError, match="rounding logs"):
        train_job(job, tmp_path / "follower", Options(replay=out))
    with pytest.raises(DigestMismatchError, match="rounding logs"):
        audit_run(out)
    assert any("rounding logs" in p.message for p in fsck(out).problems)
