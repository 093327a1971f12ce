"""Audits on a Ray cluster: three nodes, one killed; a node that does not see the run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from e2e.ray_cluster import make_run, same_verdict, three_nodes, with_a_killed_node

from tallystick.errors import UsageError
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
        with pytest.raises(UsageError, match="does not see the run") as caught:
            audit_in_parallel(broken, options=options)
        assert "at this very path" in caught.value.next_action
