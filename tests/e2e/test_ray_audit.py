"""Audits on a Ray cluster: three nodes, one killed; runs at URLs; nodes that do not see the run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from e2e.ray_cluster import make_run, same_verdict, three_nodes, with_a_killed_node

from tallystick.disk.objects.opening import opened
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job_file import load_job
from tallystick.run.parallel import cluster as clusters
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("ray"), 9600)


def test_a_killed_node_changes_no_verdict(run: Path) -> None:
    report, killer = with_a_killed_node(run)
    assert killer.killed_at is not None, "the node was killed during the audit"
    assert report.segments is not None and report.segments.retries >= 1
    assert any("a worker died" in note for note in killer.notes)
    assert report.accepted and same_verdict(report, run)
    assert report.segments.executor == "ray"


def test_differences_and_a_run_that_a_node_does_not_see(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Path(shutil.copytree(run, tmp_path / "broken"))
    path = sorted((broken / "checkpoints").iterdir())[4]
    data = bytearray(path.read_bytes())
    data[-70] ^= 1
    path.write_bytes(data)
    with three_nodes() as (cluster, _):
        options = ParallelOptions(ray=cluster.address)
        report = audit_in_parallel(broken, options=options)
        assert not report.accepted and same_verdict(report, broken)
        here = os.getpid()

        def elsewhere(task: str) -> str:
            """A node whose disk has no such run."""
            assert os.getpid() != here
            shutil.rmtree(broken, ignore_errors=True)
            return look(task)

        look = clusters.look
        monkeypatch.setattr(clusters, "look", elsewhere)
        with pytest.raises(UsageError, match="cannot read the run") as caught:
            audit_in_parallel(broken, options=options)
        assert "at this path on every node" in caught.value.next_action


def test_a_killed_node_and_a_run_at_a_url(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    monkeypatch.setenv("TALLYSTICK_CACHE", str(tmp_path / "cache"))
    with opened(run.as_uri()) as directory:
        report, killer = with_a_killed_node(directory)
        assert killer.killed_at is not None
        assert report.accepted and same_verdict(report, directory)


def test_a_run_on_a_server(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without credentials, with them, and an object that was altered."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    pytest.importorskip("moto", reason="moto is not installed: pip install 'moto[server]'")
    from e2e.moto_server import BUCKET, serving

    monkeypatch.setenv("TALLYSTICK_CACHE", str(tmp_path / "cache"))
    with serving() as server:
        client, url = server.client(), f"s3://{BUCKET}/team/run"
        for path in run.rglob("*"):
            if path.is_file() and path.name not in ("signer.pem", "lock"):
                key = f"team/run/{path.relative_to(run).as_posix()}"
                client.upload_file(str(path), BUCKET, key)
        with three_nodes() as (cluster, _), monkeypatch.context() as own:
            for name, value in server.environment().items():
                own.setenv(name, value)
            options = ParallelOptions(ray=cluster.address)
            with opened(url) as directory, pytest.raises(CannotCheckError) as caught:
                audit_in_parallel(directory, options=options)
            assert f"cannot read the run at {url}" in caught.value.message
            assert "`ray start`" in caught.value.next_action
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        with three_nodes() as (cluster, _):
            options = ParallelOptions(ray=cluster.address)
            server.requests.clear()
            with opened(url) as directory, opened(f"{url}/job") as job:
                own_copy = load_job(job)
                report = audit_in_parallel(directory, own_copy, options=options)
                assert report.accepted and same_verdict(report, directory)
            print("\nrequests", dict(server.requests))
            name = sorted(path.name for path in (run / "checkpoints").iterdir())[4]
            data = bytearray((run / "checkpoints" / name).read_bytes())
            data[-70] ^= 1
            client.put_object(Bucket=BUCKET, Key=f"team/run/checkpoints/{name}", Body=bytes(data))
            with opened(url) as directory:
                report = audit_in_parallel(directory, options=options)
                assert not report.accepted and same_verdict(report, directory)
        print("left in the cache:", sorted(p.name for p in (tmp_path / "cache").rglob("*.part")))
