"""Runs under the published form (NUMERICS 14.9): recorded and followed by unlike torch kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from replay_tools import replay_job

from tallystick.cli.audit import say_findings
from tallystick.contracts.replay.entries import pack, unpack
from tallystick.contracts.replay.published import kernels
from tallystick.contracts.replay.stock.emulated import kind_named
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.logs.writer import LogWriter
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck

CONTRACT = "replay/1;form=published;b=32;tau=0"  # every rounding is logged


@contextmanager
def played(name: str) -> Iterator[None]:
    """torch's kernels are those of another kind of hardware."""
    stock = kind_named(name).stock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "load_stock", lambda: stock)
        yield


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return replay_job(tmp_path_factory.mktemp("published") / "job", 8, 4, CONTRACT)


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    """A finished run. Never change it."""
    with played("plain"):
        return train_job(job, tmp_path_factory.mktemp("published-run") / "run")


def test_every_kind_follows_it_to_the_same_bits(job: Job, run: RunSummary, tmp_path: Path) -> None:
    packed = sum(
        -(-t.numel // 5) for n in job.program.nodes for t in n.out_types if n.op == "aten.mm"
    )
    assert run.log_bytes > 8 * packed > 0
    assert fsck(run.directory).clean
    for name in ("split-k", "permuted"):
        with played(name):
            report = audit_run(run.directory)
            follower = train_job(job, tmp_path / name, Options(replay=run.directory))
        assert report.accepted and not report.findings
        assert follower.run_root == run.run_root
        assert follower.followed is not None and follower.followed.accepted


def test_a_segment_and_resume(job: Job, run: RunSummary, tmp_path: Path) -> None:
    with played("permuted"):
        assert audit_run(run.directory, steps=(5, 7)).accepted
    out = tmp_path / "run"
    with played("split-k"):
        train_job(job, out, Options(stop_before=6))
    logs = [path.read_bytes() for path in sorted((out / "logs").iterdir())]
    for path in (out / "checkpoints").iterdir():
        path.unlink()
    with played("permuted"):
        assert train_job(job, out).finished
    assert [p.read_bytes() for p in sorted((out / "logs").iterdir())][:6] == logs
    assert audit_run(out).accepted


def test_a_damaged_log_is_named(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with played("plain"):
        train_job(job, out)
    path = RunStore(out).log_path(6)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    report = audit_run(out)
    assert report.difference is not None
    assert (report.difference.kind, report.difference.step) == ("log", 6)
    assert report.difference.operator is not None
    assert [p.path for p in fsck(out).problems] == ["logs/0000000006.log"]


def test_an_unfit_entry_is_not_called_a_lie(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NUMERICS 14.9.2: an auditor's values can have parted from an honest trainer's, and then the
    trainer's entries do not fit them. Here the entries change, and no value does."""
    honest = LogWriter.published

    def swapped(self: LogWriter, number: int, packed: bytes) -> None:
        if (self.step, number) == (6, 0):
            entries = unpack(packed, self.sections[number].elements)
            packed = pack(2 - entries)
        honest(self, number, packed)

    with played("plain"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogWriter, "published", swapped)
        made = train_job(job, tmp_path / "run")
    with played("split-k"):
        report = audit_run(made.directory)
    assert not report.accepted and report.difference is not None
    assert {found["kind"] for found in report.findings} == {"unfit entry"}
    say_findings(report.findings, report.unnamed)
    for words in (report.difference.sentence, capsys.readouterr().out):
        assert "from the auditor's operands" in words and "14.9.2" in words
        assert "forged" not in words and "an honest one" not in words


def test_without_torch_it_is_refused_in_a_sentence(
    job: Job, run: RunSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tallystick.contracts.replay.stock.stock", None)
    with pytest.raises(TallystickError, match="PyTorch"):
        audit_run(run.directory)
