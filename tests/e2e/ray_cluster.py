"""An audit on a local Ray cluster of three nodes, one of which is killed during it.

python tests/e2e/ray_cluster.py [STEPS]   # prints what docs/proofs/parallel-audit.md records
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Ray reads them when it is imported: no report to its makers, no waiting for a metrics agent.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_enable_metrics_collection", "0")

from tallystick.job.recipes import new_job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel import cluster as clusters
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.show.audit_report import AuditReport

STORE_BYTES = 100 << 20
SEGMENTS = 24
SETTINGS = {
    "features": "256", "classes": "10", "records": "2000", "hidden": "256", "layers": "2",
    "batch_size": "128",
}  # fmt: skip
OWN_FIGURES = ("isa", "threads", "seconds", "segments")


@contextmanager
def three_nodes() -> Iterator[tuple[Any, list[Any]]]:
    """A cluster of three node processes with one processor each, and its two removable nodes."""
    from ray.cluster_utils import Cluster

    room = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**room, "include_dashboard": False})
    try:
        yield cluster, [cluster.add_node(**room) for _ in range(2)]
    finally:
        cluster.shutdown()


@dataclass
class Killer(Silent):
    """Kills a node that repeats a segment, when so many segments are done; keeps what is said."""

    cluster: Any
    nodes: list[Any]
    after: int = 3

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self.killed_at: tuple[int, int] | None = None
        self.executor: clusters.Cluster | None = None

    def notice(self, text: str) -> None:
        self.notes.append(text)

    def segments(self, steps: int, of_steps: int, segments: int, of_segments: int) -> None:
        if segments < self.after or self.killed_at is not None or self.executor is None:
            return
        busy = [node for node in self.nodes if node.node_id in self.executor.busy()]
        if busy:
            self.killed_at = (segments, of_segments)
            self.cluster.remove_node(busy[0], allow_graceful=False)


def make_run(directory: Path, steps: int) -> Path:
    """A run of `SEGMENTS` segments, or fewer for fewer steps."""
    interval = max(1, steps // SEGMENTS)
    job = new_job(
        "mlp", directory / "job", SETTINGS, steps=steps, checkpoint_interval=interval,
        evaluate_every=0,
    )  # fmt: skip
    train_job(job, directory / "run", Options(keep=steps))
    return directory / "run"


def with_a_killed_node(run: Path) -> tuple[AuditReport, Killer]:
    """Audit `run` on three nodes, one of them killed after three segments."""
    with three_nodes() as (cluster, nodes):
        killer = Killer(cluster, nodes)
        connect = clusters.cluster

        def seen(*words: Any) -> clusters.Cluster:
            killer.executor = connect(*words)
            return killer.executor

        options = ParallelOptions(ray=cluster.address)
        with patch.object(clusters, "cluster", seen):
            return audit_in_parallel(run, options=options, listener=killer), killer


def same_verdict(report: AuditReport, run: Path) -> bool:
    """Whether the serial audit says the same of the run."""
    a, b = asdict(report), asdict(audit_run(run))
    return all(a[key] == b[key] for key in a if key not in OWN_FIGURES)


def main() -> None:
    import ray

    steps = int(sys.argv[1]) if sys.argv[1:] else 9600
    with tempfile.TemporaryDirectory() as room:
        run = make_run(Path(room), steps)
        began = time.monotonic()
        report, killer = with_a_killed_node(run)
        seconds = time.monotonic() - began
        assert report.accepted and killer.killed_at is not None and report.segments is not None
        done, total = killer.killed_at
        print(f"ray {ray.__version__}, Python {sys.version.split()[0]}")
        print(f"{total} segments of {steps} steps; a node killed after {done} of them")
        for note in killer.notes:
            print(f"| {note}")
        print(f"retries {report.segments.retries}, stragglers {report.segments.stragglers}")
        print(f"accepted {report.accepted}, in {seconds:.0f} s with the cluster's start")
        print(f"the serial audit says the same: {same_verdict(report, run)}")


if __name__ == "__main__":
    main()
