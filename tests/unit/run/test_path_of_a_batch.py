"""A batch passes few files in one step (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from tallystick.job.recipes import new_job
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job

PACKAGE = re.compile(r"/tallystick/(.+)\.py$")
# What computes a node, what a node means, the disk, and what tells people of the step.
BESIDE = re.compile(
    r"(contracts|devices|kernels|products|numerics|disk|terminal)/|run/(execute/listener|show/)"
)
PATH = {
    "run/execute/loop", "run/execute/engine", "run/execute/checkpoints",
    "commit/timetable", "commit/stream", "commit/order", "commit/data", "commit/tensor",
    "commit/job", "job/job", "program/terms",
    "program/executor", "program/state",
    "commit/state", "commit/encoding", "run/store/journal",
}  # fmt: skip


class Watching(Silent):
    """Notes the files that are entered in one step, between the listener's calls around it."""

    def __init__(self, step: int) -> None:
        self.wanted, self.passed = step, set[str]()

    def step(self, step: int, loss: float, seconds: float) -> None:
        sys.setprofile(self.watch if step + 1 == self.wanted else None)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        return None

    def watch(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.passed.update(PACKAGE.findall(frame.f_code.co_filename))


def test_a_batch_passes_sixteen_files(tmp_path: Path) -> None:
    """From its place in the order of the records to the loss in the journal. A step with a
    checkpoint adds what hashes and stores it."""
    job = new_job("mlp", tmp_path / "job", {}, steps=9, checkpoint_interval=100, evaluate_every=0)
    watching = Watching(step=5)
    try:
        train_job(job, tmp_path / "run", Options(), watching)
    finally:
        sys.setprofile(None)
    assert {name for name in watching.passed if not BESIDE.match(name)} == PATH
