"""An audit of a run of many segments by one worker and by two, in turns.

    python benchmarks/parallel_audit.py [--steps 960] [--segments 24] [--repeats 5] [--json]

One thread a worker on both sides, so that two workers have two threads and one has one. The audits
alternate; a ratio is of neighbours, and the median of the ratios is the result. `serial` is the
audit without segments, with one thread. The time of an audit is that of the whole call: the check
of the job, the start of the processes, the segments, the report.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes import new_job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick_bench.machine import machine

SETTINGS = {
    "features": "256", "classes": "10", "records": "4000", "hidden": "384", "layers": "2",
    "batch_size": "128", "dropout": "0.1",
}  # fmt: skip


def make_run(directory: Path, steps: int, segments: int) -> Path:
    """A run with a stored state after every segment; one that is there is used again."""
    run = directory / f"run-{steps}-{segments}"
    if not (run / "commitment.json").exists():
        job = new_job(
            "mlp", directory / f"job-{steps}-{segments}", SETTINGS, steps=steps,
            checkpoint_interval=steps // segments, evaluate_every=0,
        )  # fmt: skip
        train_job(job, run, Options(keep=steps))
    return run


def seconds(run: Path, workers: int) -> float:
    """Of one accepted audit; 0 workers: without segments."""
    if workers:
        options = ParallelOptions(workers=workers, threads=1)
        report = audit_in_parallel(run, options=options)
        assert report.segments is not None and not report.segments.retries
    else:
        report = audit_run(run, context=ExecutionContext(1))
    assert report.accepted and report.whole
    return report.seconds


def measure(run: Path, repeats: int) -> list[dict[str, Any]]:
    """The rows: times of each side, and ratios of neighbours."""
    took: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for _ in range(repeats):
        for workers in took:
            took[workers].append(seconds(run, workers))
    names = {0: "serial", 1: "one", 2: "two"}
    rows: list[dict[str, Any]] = [
        {
            "name": f"parallel-audit/{names[workers]}/time",
            "value": statistics.median(times),
            "unit": "s",
            "all": times,
        }
        for workers, times in took.items()
    ]
    for name, a, b, target in (("two_to_one", 1, 2, 1.8), ("one_to_serial", 0, 1, None)):
        ratios = [x / y for x, y in zip(took[a], took[b], strict=True)]
        rows.append(
            {
                "name": f"parallel-audit/{name}/speed_ratio",
                "value": statistics.median(ratios),
                "unit": "ratio",
                "target": target,
                "all": ratios,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=960)
    parser.add_argument("--segments", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="keep job and run here, and use them again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = make_run(given.out or Path(scratch), given.steps, given.segments)
        rows = measure(run, given.repeats)
    found = {
        "bench": "parallel_audit",
        "machine": machine(),
        "load": os.getloadavg()[0],
        "steps": given.steps,
        "segments": given.segments,
        "rows": rows,
    }
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for row in rows:
        print(f"{row['name']:45} {row['value']:8.3f} {row['unit']}")


if __name__ == "__main__":
    main()
