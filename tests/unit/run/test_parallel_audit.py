"""Audits by segments say what the serial audit says: honest runs, cheats, damaged files."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from format_three import make_stream_job
from journals import rewrite, with_loss
from parallel_audits import found, in_parallel, serial
from parallel_audits import inline as inline
from replay_tools import forging, replay_job, some_more
from unit.protocol.validated import make_validated_job

from tallystick.cli import main
from tallystick.errors import CannotCheckError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.run.cheats.attacks import attack_names
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.auditor import audit_run, check_claim
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.task import segments_of
from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import Declaration

KEEP = 100  # every checkpoint
SETTINGS = {
    "features": "4", "classes": "3", "records": "40", "hidden": "6", "layers": "1",
    "batch_size": "4", "dropout": "0.25",
}  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return new_job(
        "mlp", tmp_path_factory.mktemp("parallel") / "job", SETTINGS, steps=14,
        checkpoint_interval=2, evaluate_every=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run with 7 segments; steps 5 to 8 are traced. Never change it: copy it."""
    out = tmp_path_factory.mktemp("parallel-run") / "run"
    train_job(job, out, Options(keep=KEEP, trace=(5, 9)))
    return out


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.mark.usefixtures("inline")
def test_segments_of_a_job_with_short_batches(tmp_path: Path) -> None:
    """Segments begin in the middle of epochs and of passes (COMMITMENTS 7.7)."""
    job = make_stream_job(tmp_path / "job", validates=True, steps=12, interval=2)
    train_job(job, tmp_path / "run", Options(keep=KEEP))
    assert in_parallel(tmp_path / "run") == serial(tmp_path / "run")
    assert audit_run(tmp_path / "run", steps=(5, 9)).accepted
    report = audit_in_parallel(
        tmp_path / "run", None, None, ParallelOptions(workers=3, threads=1, sample=Fraction(1, 2))
    )
    assert report.accepted and report.sampled
    cheat = tmp_path / "cheat"
    declared = Declaration("data-poisoning", {"step": 9})  # a short batch
    train_job(job, cheat, Options(keep=KEEP, maker=declared_cheat(job, declared)))
    assert in_parallel(cheat) == serial(cheat)
    difference = audit_run(cheat).difference
    assert difference is not None and difference.interval == (8, 10)


def cheated(job: Job, out: Path, name: str) -> Path | None:
    """A run of the attack with every state stored; None where it has nothing to do."""
    try:
        train_job(job, out, Options(keep=KEEP, maker=declared_cheat(job, Declaration(name, {}))))
    except UsageError:
        return None
    return out


# ---- the same report ----------------------------------------------------------------------------
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("steps", [None, (0, 14), (3, 9), (4, 5), (13, 14)])
def test_an_honest_run(run: Path, job: Job, steps: tuple[int, int] | None) -> None:
    expected = serial(run, job, steps)
    assert isinstance(expected, dict) and expected["accepted"]
    assert in_parallel(run, job, steps) == expected
    assert in_parallel(run, None, steps, workers=1) == expected


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("keep", [1, 3])
def test_few_stored_states_make_long_segments(job: Job, keep: int, tmp_path: Path) -> None:
    train_job(job, tmp_path / "run", Options(keep=keep))
    assert len(segments_of(check_claim(tmp_path / "run"))) == keep
    assert in_parallel(tmp_path / "run") == serial(tmp_path / "run")


DEFAULT_ATTACKS = (
    "data-poisoning", "fewer-steps", "lie-genesis", "lie-loss-curve", "lie-output",
    "patched-commitments", "skipped-steps", "unreproducible-root",
)  # fmt: skip


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("name", DEFAULT_ATTACKS)
def test_a_cheat(job: Job, name: str, tmp_path: Path) -> None:
    out = cheated(job, tmp_path / "run", name)
    assert out is not None
    expected = serial(out, job)
    assert not isinstance(expected, dict) or not expected["accepted"]
    assert in_parallel(out, job) == expected


# Their runs are honest.
LIES_IN_THE_GAME = (
    "lie-attribute", "lie-edge", "lie-input-digest", "lie-node-count", "refuses", "silent",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("which", ["mlp", "validated", "replay"])
@pytest.mark.parametrize("name", attack_names())
def test_every_cheat(job: Job, name: str, which: str, tmp_path: Path) -> None:
    if which == "validated":
        job = make_validated_job(tmp_path / "job", rate=0.1, min_delta=1)
    elif which == "replay":
        job = replay_job(tmp_path / "job", steps=8, interval=2)
    out = cheated(job, tmp_path / "run", name)
    if out is None:
        pytest.skip(f"{name} has nothing to do")
    expected = serial(out, job)
    assert in_parallel(out, job) == expected
    if isinstance(expected, dict) and expected["accepted"]:
        assert name in LIES_IN_THE_GAME


@pytest.mark.usefixtures("inline")
def test_a_run_that_stops_early(tmp_path: Path) -> None:
    job = make_validated_job(tmp_path / "job")
    train_job(job, tmp_path / "run", Options(keep=KEEP))
    expected = serial(tmp_path / "run", job)
    assert isinstance(expected, dict) and expected["accepted"]
    assert expected["last_step"] < job.steps
    assert in_parallel(tmp_path / "run", job) == expected
    ignored = cheated(job, tmp_path / "cheat", "ignored-stop")
    assert ignored is not None
    expected = serial(ignored, job)
    assert isinstance(expected, dict) and expected["difference"]["kind"] == "end"
    assert in_parallel(ignored, job) == expected


# ---- damaged files ------------------------------------------------------------------------------
def _flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def _weight(run: Path) -> None:
    _flipped(RunStore(run).checkpoint_path(6), -70)


def _header(run: Path) -> None:
    _flipped(RunStore(run).checkpoint_path(6), 3)


def _last_state(run: Path) -> None:
    _flipped(RunStore(run).checkpoint_path(14), -70)


def _other_step(run: Path) -> None:
    store = RunStore(run)
    shutil.copy(store.checkpoint_path(8), store.checkpoint_path(6))


def _no_file(run: Path) -> None:
    path = RunStore(run).checkpoint_path(6)
    path.unlink()
    path.mkdir()


def _loss(run: Path) -> None:
    rewrite(run / "journal", with_loss(7, struct.unpack("<I", struct.pack("<f", 0.5))[0]))


def _trace(run: Path) -> None:
    store = RunStore(run)
    shutil.copy(store.trace_path(6), store.trace_path(7))


def _two(run: Path) -> None:
    """The loss of the last segment and a state in the middle: the earlier one is named."""
    rewrite(run / "journal", with_loss(13, 0))
    _weight(run)


def _stranger(run: Path) -> None:
    (run / "notes.txt").write_text("hello")


DAMAGES = [
    _weight, _header, _last_state, _other_step, _no_file, _loss, _trace, _two, _stranger,
]  # fmt: skip


@pytest.mark.usefixtures("inline")
def test_no_step_is_said_to_be_executed_before_a_damaged_state(copy: Path) -> None:
    _weight(copy)
    for report in (audit_run(copy, steps=(6, 8)), audit_in_parallel(copy, steps=(6, 8))):
        assert (report.accepted, report.first_step, report.last_step) == (False, 6, 6)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run(copy: Path, damage: Callable[[Path], None]) -> None:
    damage(copy)
    expected = serial(copy)
    assert in_parallel(copy) == expected
    if damage is not _stranger:
        assert not isinstance(expected, dict) or not expected["accepted"]


@pytest.mark.usefixtures("inline")
def test_a_part_that_begins_at_a_damaged_state(copy: Path) -> None:
    _weight(copy)
    expected = serial(copy, None, (7, 12))
    assert isinstance(expected, dict) and expected["difference"]["kind"] == "checkpoint"
    assert in_parallel(copy, None, (7, 12)) == expected


@pytest.mark.usefixtures("inline")
def test_steps_that_are_not_there(run: Path) -> None:
    assert in_parallel(run, None, (3, 99)) == serial(run, None, (3, 99))


# ---- rounding logs ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    room = tmp_path_factory.mktemp("logged")
    job = replay_job(room / "job", steps=6, interval=2)
    train_job(job, room / "run", Options(keep=KEEP))
    return job, room / "run"


@pytest.mark.usefixtures("inline")
def test_each_segment_follows_its_part_of_the_logs(
    logged: tuple[Job, Path], tmp_path: Path
) -> None:
    job, run = logged
    expected = serial(run)
    assert isinstance(expected, dict) and expected["choices"][0] > 0
    assert in_parallel(run) == expected
    broken = Path(shutil.copytree(run, tmp_path / "broken"))
    (broken / "logs" / f"{3:010d}.log").unlink()
    expected = serial(broken)
    assert isinstance(expected, dict) and expected["difference"]["kind"] == "log"
    assert in_parallel(broken) == expected
    first = next(i for i, n in enumerate(job.program.nodes) if n.op in ("aten.mm", "aten.addmm"))
    with forging(some_more(3, first)):
        train_job(job, tmp_path / "forged", Options(keep=KEEP))
    expected = serial(tmp_path / "forged")
    assert isinstance(expected, dict) and expected["findings"]
    assert expected["difference"]["interval"] == (2, 4)
    assert in_parallel(tmp_path / "forged") == expected


# ---- processes ----------------------------------------------------------------------------------
def test_processes_and_what_is_printed(
    run: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = audit_in_parallel(run, options=ParallelOptions(workers=2, threads=1))
    assert found(report) == found(audit_run(run))
    assert report.segments is not None
    assert (report.segments.total, report.segments.workers) == (7, 2)
    _loss(copy)
    words = ["audit", str(copy), "--workers", "2", "--json"]
    assert main.run(words) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["difference"] == json.loads(_said(copy, capsys))["difference"]
    assert "7 segments between stored states" in err


def _said(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.run(["audit", str(run), "--json", "--quiet"]) == 1
    return capsys.readouterr().out


# ---- samples ------------------------------------------------------------------------------------
@pytest.mark.usefixtures("inline")
def test_a_sample_is_never_a_whole_audit(
    run: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["audit", str(run), "--sample", "3", "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accepted"] and report["sampled"] and not report["whole"]
    assert report["segments"]["total"] == 7 and len(report["segments"]["repeated"]) == 3
    assert report["losses_compared"] == 6
    assert [c["exact"] for c in report["confidence"]] == ["3/7"] * 4
    again = ["audit", str(run), "--sample", "3", "--secret", report["secret"], "--quiet"]
    assert main.run([*again, "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["segments"]["repeated"] == report["segments"]["repeated"]
    assert main.run(again) == 0
    said = capsys.readouterr().out
    assert "ACCEPTED AS FAR AS SAMPLED" in said and "MATCH" not in said
    assert report["secret"] in said and "not an audit of the whole run" in said
    # A sample of all is a sample all the same, and meets every difference.
    _weight(copy)
    for sample in ("1.0", "100%", "7"):
        assert main.run(["audit", str(copy), "--sample", sample, "--quiet", "--json"]) == 1
        difference = json.loads(capsys.readouterr().out)["difference"]
        assert (difference["kind"], difference["step"]) == ("checkpoint", 6)


@pytest.mark.parametrize(
    "words",
    [
        ["--sample", "0"], ["--sample", "0.0"], ["--sample", "1.5"], ["--sample", "-1"],
        ["--sample", "8"], ["--sample", "half"], ["--sample", "."], ["--sample", "200%"],
        ["--sample", "0.5", "--steps", "2:4"], ["--secret", "00" * 32],
        ["--sample", "2", "--secret", "00"], ["--workers", "0"],
        ["--ray", "localhost:1", "--device", "cuda"],
    ],
)  # fmt: skip
def test_wrong_words_are_refused(run: Path, words: list[str]) -> None:
    assert main.run(["audit", str(run), *words, "--quiet", "--json"]) == 3


def test_a_run_without_its_states_has_one_segment(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    (segment,) = segments_of(check_claim(copy))
    assert (segment.first, segment.last) == (0, 14)


def test_the_clients_job_is_the_workers_too(run: Path, job: Job, copy: Path) -> None:
    """The run's own copy of the data is damaged: the client's counts, and the copy is named."""
    _flipped(copy / "job" / "data" / "train.safetensors", -9)
    own = load_job(job.directory)
    report = audit_in_parallel(copy, own, options=ParallelOptions(workers=1, threads=1))
    assert found(report) == serial(copy, own)
    assert report.accepted and report.notices


def test_a_cluster_that_is_not_there(run: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    for address, error, words in (
        ("127.0.0.1:1", CannotCheckError, "No Ray cluster"),
        ("ray://127.0.0.1:1", UsageError, "Ray's client"),
    ):
        with pytest.raises(error, match=words):
            audit_in_parallel(run, options=ParallelOptions(ray=address))


def test_a_cluster_is_not_given_a_directory_to_import_from(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run / "job")
    with pytest.raises(UsageError, match="current directory is the run's"):
        audit_in_parallel(run, options=ParallelOptions(ray="127.0.0.1:1"))


def test_without_ray_the_install_command_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(Exception, match=r"tallystick\[ray\]") as caught:
        audit_in_parallel(run, options=ParallelOptions(ray="127.0.0.1:1"))
    assert getattr(caught.value, "exit_code", None) == 2
    assert not isinstance(caught.value, StorageError)
