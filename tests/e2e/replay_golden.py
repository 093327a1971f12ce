"""The golden runs under `replay/1`: the golden jobs' settings, by the plainest engine there is.

    python tests/e2e/replay_golden.py --write      after a deliberate change of bits (a new draft)

Writes vectors/runs/replay-roots.json. Run it with `tests` on the path.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from e2e.golden import RUNS, golden_job
from reference.orders import LeftToRight

from tallystick.job.job import Job
from tallystick.products.engines import using
from tallystick.run.execute.trainer import RunSummary, train_job

REPLAY_ROOTS = RUNS / "replay-roots.json"
NAMES = ("mlp", "gpt2")


def replay_golden_job(name: str, directory: Path) -> Job:
    """The golden job `name` under `replay/1`, in `directory`/`name`."""
    return golden_job(name, directory, "replay/1", evaluate_every=0)


def golden_run(job: Job, out: Path) -> RunSummary:
    """With a log, a root depends on the engine: this one gives the same bits everywhere."""
    with using(LeftToRight()):
        return train_job(job, out)


def replay_entry(job: Job, run: RunSummary) -> dict[str, object]:
    """What is golden about a run."""
    return {
        "contract": run.contract,
        "job_digest": job.digest.hex(),
        "run_root": run.run_root.hex(),
        "log_bytes": run.log_bytes,
        "final_loss": run.losses[-1].hex(),
    }


def write() -> None:
    """Make the golden file anew."""
    roots = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in NAMES:
            job = replay_golden_job(name, Path(scratch))
            roots[name] = replay_entry(job, golden_run(job, Path(scratch) / f"{name}-run"))
    REPLAY_ROOTS.write_text(json.dumps(roots, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    write()
