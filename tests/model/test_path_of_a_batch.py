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

ROOMS = re.compile(r"/tallystick/((?:run|program|job|commit)/(?:\w+/)*\w+)\.py$")
PATH = {
    "run/execute/loop", "run/execute/engine",
    "commit/timetable", "commit/stream", "commit/order", "commit/data", "commit/tensor",
    "commit/job", "program/terms",
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
            self.passed.update(ROOMS.findall(frame.f_code.co_filename))


def test_a_batch_passes_fourteen_files(tmp_path: Path) -> None:
    """Without the kernels, the devices and the disk: from its place in the order of the records to
    the loss in the journal. A step with a checkpoint adds what hashes and stores it."""
    job = new_job("mlp", tmp_path / "job", {}, steps=9, checkpoint_interval=100, evaluate_every=0)
    watching = Watching(step=5)
    train_job(job, tmp_path / "run", Options(), watching)
    assert watching.passed - {"run/execute/listener"} == PATH  # by which this test watches
