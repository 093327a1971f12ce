"""A run that a new job continues: the parameters of one that never stopped (COMMITMENTS 7.6.8)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from format_three import make_stream_job
from unit.protocol.validated import CYCLE, make_validated_job

from tallystick.commit.checkpoint import ContinuationProof
from tallystick.devices.environment import exact_environment
from tallystick.disk.manifest import manifest_bytes
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError
from tallystick.job.continued import CONTINUES
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.claim import read_claim
from tallystick.run.store.continuing import continue_run
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import final_state

SETTINGS = {
    "hidden": "8", "features": "6", "batch_size": "4", "records": "30", "dropout": "0.3",
    "optimizer": "adamw", "lr": "0.01",
}  # fmt: skip


def made(path: Path, steps: int, **more: str) -> Job:
    return new_job("mlp", path, SETTINGS | more, steps=steps, evaluate_every=0)


def trained(job: Job, out: Path) -> Path:
    train_job(job, out, Options())
    return out


@exact_environment()
def slots_of(run: Path) -> dict[str, bytes]:
    store = RunStore(run)
    job = store.job()
    claim = read_claim(store, job)
    state = final_state(store, job, claim.last_step, claim.commitment.final_state_root)
    return {name: array.tobytes() for name, array in state.slots.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("continued")
    return trained(made(path / "job", 50), path / "run")


def test_it_is_as_if_the_run_had_never_stopped(run: Path, tmp_path: Path) -> None:
    """Weights, moments and beta powers; the data's order and dropout go on."""
    whole = trained(made(tmp_path / "whole", 110), tmp_path / "one")
    second = continue_run(run, tmp_path / "job2", 25)
    again = continue_run(trained(second, tmp_path / "two"), tmp_path / "job3", 35)
    assert slots_of(trained(again, tmp_path / "three")) == slots_of(whole)
    report = audit_run(tmp_path / "three")
    assert report.accepted and report.losses_compared == 35


def test_a_run_of_whole_epochs_goes_on(tmp_path: Path) -> None:
    """Batches, rates and random numbers are those of a run that never stopped (COMMITMENTS 7.7)."""
    whole = make_stream_job(tmp_path / "whole", steps=9, interval=3)
    job = make_stream_job(tmp_path / "job", steps=6, interval=3)
    assert job.scalars["lr"] == whole.scalars["lr"][:6]  # type: ignore[index]
    more = continue_run(
        trained(job, tmp_path / "one"),
        tmp_path / "more",
        3,
        {"lr": whole.scalars["lr"][6:]},  # type: ignore[index]
    )
    assert more.commitment.format_version == 3
    assert more.commitment.timetable.streams[0].first == 6
    two = trained(more, tmp_path / "two")
    assert slots_of(two) == slots_of(trained(whole, tmp_path / "never"))
    assert audit_run(two).accepted


def test_a_run_that_ends_inside_of_an_epoch_goes_on(tmp_path: Path) -> None:
    """Its turns go on too; inside of a pass it is refused (COMMITMENTS 7.7.3)."""
    given: dict[str, Any] = {"interval": 7, "validates": True}
    whole = make_stream_job(tmp_path / "whole", steps=6, **given)
    job = make_stream_job(tmp_path / "job", steps=4, **given)
    lr = whole.scalars["lr"]
    assert isinstance(lr, list) and job.steps == 8
    one = trained(job, tmp_path / "one")
    more = continue_run(one, tmp_path / "more", 2, {"lr": lr[4:]})
    assert [tuple(turn) for turn in more.commitment.timetable.turns[:2]] == [(0, 1), (1, 1)]
    two = trained(more, tmp_path / "two")
    assert slots_of(two) == slots_of(trained(whole, tmp_path / "never"))
    with pytest.raises(UsageError, match="inside of a pass"):
        job.commitment.timetable.after(4)


def test_the_job_names_the_run_that_it_continues(run: Path, tmp_path: Path) -> None:
    job = continue_run(run, tmp_path / "job", 5)
    named = job.verify_continuation()
    assert named is not None and named.final_step == 50
    assert named.run_root == read_claim(RunStore(run), RunStore(run).job()).run_root
    assert made(tmp_path / "plain", 5).verify_continuation() is None


def changed(job: Job, **members: object) -> None:
    path = job.directory / CONTINUES
    body = json.loads(path.read_bytes()) | members
    body.pop("manifest_digest")
    path.write_bytes(manifest_bytes(body))


def test_another_chain_or_hash_proves_nothing(run: Path, tmp_path: Path) -> None:
    job = continue_run(run, tmp_path / "job", 5)
    body = json.loads((job.directory / CONTINUES).read_bytes())
    for member, value in (
        ("loss_chain", "00" * 32),
        ("log_chain", "11" * 32),
        ("hashes", ["22" * 32, *body["hashes"][1:]]),
        ("hashes", body["hashes"][1:]),
    ):
        changed(job, **{**body, member: value})
        with pytest.raises(DigestMismatchError, match="does not start from the final state"):
            load_job(job.directory).verify()


def test_the_proof_of_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    job = continue_run(run, tmp_path / "job", 5)
    other = continue_run(trained(made(tmp_path / "other", 7), tmp_path / "run"), tmp_path / "b", 5)
    (job.directory / CONTINUES).write_bytes((other.directory / CONTINUES).read_bytes())
    with pytest.raises(DigestMismatchError, match="another run"):
        load_job(job.directory).verify()


def test_a_chain_of_another_length_proves_nothing() -> None:
    proof = ContinuationProof(bytes(31), bytes(32), ())
    assert not proof.proves([], bytes(32), bytes(32))


def test_a_run_that_stopped_itself_goes_on(tmp_path: Path) -> None:
    """Its slot stays true, so the new job does not stop by it."""
    job = make_validated_job(tmp_path / "job")
    stopped = trained(job, tmp_path / "run")
    more = continue_run(stopped, tmp_path / "more", 6)
    assert job.commitment.stop_on_slot and not more.commitment.stop_on_slot
    done = train_job(more, tmp_path / "on", Options())
    assert done.finished and done.steps == 2 * CYCLE and len(done.validation) == 2
    assert audit_run(tmp_path / "on").accepted


def test_tables_go_on_with_their_last_value_or_get_new_ones(tmp_path: Path) -> None:
    job = made(tmp_path / "job", 6, schedule="cosine", warmup="2")
    run = trained(job, tmp_path / "run")
    table = job.scalars["lr"]
    assert not isinstance(table, float)
    assert continue_run(run, tmp_path / "a", 3).scalars["lr"] == table[-1]
    given = [0.5, 0.25, 0.125]
    assert continue_run(run, tmp_path / "b", 3, {"lr": given}).scalars["lr"] == given
    with pytest.raises(UsageError, match="2 values, but the job has 3 steps"):
        continue_run(run, tmp_path / "c", 3, {"lr": given[:2]})
    with pytest.raises(UsageError, match="no scalar 'rate'"):
        continue_run(run, tmp_path / "d", 3, {"rate": 0.5})


def test_what_is_not_continued_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs at least one more step"):
        continue_run(run, tmp_path / "a", 0)
    with pytest.raises(UsageError, match="already contains a job"):
        continue_run(run, made(tmp_path / "there", 2).directory, 3)
    unfinished = tmp_path / "half"
    train_job(made(tmp_path / "job", 9), unfinished, replace(Options(), stop_before=4))
    with pytest.raises(CannotCheckError, match="not finished"):
        continue_run(unfinished, tmp_path / "b", 3)


def test_derived_tables_need_their_later_numbers(tmp_path: Path) -> None:
    """Adafactor's parts are powers of the number of the step (PROGRAM 8.2)."""
    pairs = {"features": "6", "hidden": "8", "layers": "1", "records": "32", "batch_size": "4"}
    pairs |= {"optimizer": "adafactor", "lr": "0.4"}
    whole = new_job("mlp", tmp_path / "whole", pairs, steps=9)
    half = new_job("mlp", tmp_path / "half", pairs, steps=6)
    ended = train_job(whole, tmp_path / "w")
    train_job(half, tmp_path / "h")
    with pytest.raises(UsageError, match="values of part depend on the number of the step"):
        continue_run(tmp_path / "h", tmp_path / "a", 3)
    later = {name: t[6:] for name, t in whole.scalars.items() if not isinstance(t, float)}
    assert set(later) == {"part", "rate"}
    more = continue_run(tmp_path / "h", tmp_path / "b", 3, later)
    assert train_job(more, tmp_path / "m").losses == ended.losses[6:]


def test_a_rule_that_fired_in_the_last_pass_does_not_end_the_next_run(tmp_path: Path) -> None:
    """The slot is true in the new initial state though the run went to its end."""
    job = make_validated_job(tmp_path / "job", 2)  # its second pass of four is the best
    run = trained(job, tmp_path / "run")
    assert RunStore(run).journal().last_step == job.steps
    more = continue_run(run, tmp_path / "more", 6)
    assert not more.commitment.stop_on_slot
    assert train_job(more, tmp_path / "on", Options()).steps == 2 * CYCLE


def test_a_rule_that_did_not_fire_stays(tmp_path: Path) -> None:
    job = make_validated_job(tmp_path / "job", 9)
    more = continue_run(trained(job, tmp_path / "run"), tmp_path / "more", 6)
    assert more.commitment.stop_on_slot


def test_a_run_that_ended_with_nan_is_not_continued(tmp_path: Path) -> None:
    run = trained(made(tmp_path / "job", 9, lr="1e37"), tmp_path / "run")
    with pytest.raises(UsageError, match="not finite"):
        continue_run(run, tmp_path / "more", 3)
