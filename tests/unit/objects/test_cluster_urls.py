"""What a node of a cluster does with a run at a URL, executed in this process (cluster.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'tallystick[objects]'")

from parallel_audits import Inline

from tallystick.disk.mounts import INHERITED
from tallystick.disk.objects.opening import opened
from tallystick.errors import StoreError
from tallystick.job.job_file import load_job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.parallel import cluster as clusters
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.task import Repeater, Segment, Task
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.show.summary import RunSummary


class Node(Inline):
    """A node that has nothing of the auditor's: it opens what the task names."""

    kind = "ray"
    task: Task

    def close(self) -> None:
        super().close()
        self._repeater.close()


@pytest.fixture
def run(whole_run: RunSummary, copied: Callable[[Path], Path]) -> Path:
    return copied(whole_run.directory)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Clusters are one `Node` each; the tasks that they were given."""
    found: list[Task] = []

    def node(address: str, task: Task, workers: int | None, threads: int | None) -> Node:
        found.append(task)
        return Node(task, workers or 2)

    monkeypatch.setattr(clusters, "cluster", node)
    return found


def _audited(url: str, job: str | None = None) -> AuditReport:
    options = ParallelOptions(ray="a cluster")
    with opened(url) as directory:
        if job is None:
            return audit_in_parallel(directory, options=options)
        with opened(job) as own:
            return audit_in_parallel(directory, load_job(own), options=options)


def _mirrors(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "mirrors").iterdir())


def test_a_node_opens_the_urls_of_run_and_job(run: Path, told: list[Task], tmp_path: Path) -> None:
    url, serial = run.as_uri(), audit_run(run)
    report = _audited(url)
    assert report.accepted and report.segments is not None and report.segments.executor == "ray"
    assert report.run_root == serial.run_root
    assert report.checkpoints_compared == serial.checkpoints_compared
    assert _audited(url, f"{url}/job").accepted
    assert [(task.run, task.job) for task in told] == [(url, None), (url, f"{url}/job")]
    assert not _mirrors(tmp_path)


def test_what_a_node_finds_names_the_url(run: Path, told: list[Task]) -> None:
    path = sorted((run / "checkpoints").iterdir())[1]
    path.write_bytes(path.read_bytes()[:100])
    report = _audited(run.as_uri())
    assert report.difference is not None and report.difference.kind == "checkpoint"
    assert f"{run.as_uri()}/checkpoints/{path.name}" in report.difference.sentence
    assert told


def test_a_node_whose_store_fails_answers_with_that(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.disk.objects.store import Objects

    real, away = Objects.read, [True]

    def read(self: Objects, *words: object) -> memoryview:
        if away[0]:
            raise StoreError("The store failed to read it.", "Check the network.")
        return real(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Objects, "read", read)
    repeater = Repeater(Task(run.as_uri(), None, "00" * 32))
    answer = repeater.answer(Segment(0, 5))
    assert answer["error"]["kind"] == "StoreError"
    assert not _mirrors(tmp_path)
    away[0] = False  # the next attempt finds it; but this task is of another run
    answer = repeater.answer(Segment(0, 5))
    assert f"a different run in {run.as_uri()}" in answer["error"]["message"]


def test_a_node_looks_before_the_audit(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [str(tmp_path / "gone" / "files"), "s3://bucket/run"]
    monkeypatch.setenv(INHERITED, json.dumps([gone]))  # of the process that started the node
    url = run.as_uri()

    def seen(place: str, job: str | None = None) -> dict[str, str] | None:
        task = Task(place, job, "00" * 32)
        error: dict[str, str] | None = json.loads(clusters.look(json.dumps(task.as_json())))[
            "error"
        ]
        return error

    assert seen(url) is None and seen(url, f"{url}/job") is None and seen(str(run)) is None
    for place, job in ((f"{url}-gone", None), (url, f"{url}/jobs")):
        found = seen(place, job)
        assert found is not None and (job or place) in found["message"]
    assert seen(str(run), str(run / "jobs")) is not None
    assert not _mirrors(tmp_path)
