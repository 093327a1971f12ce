"""What every example does with its signed run: an audit, a cheat, a referee, a judge."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import tallystick


def audited(run: Path, job: Path) -> None:
    """Another party repeats the run, with another number of threads, and compares every root."""
    report = tallystick.audit(run, job, threads=1, progress=False)
    assert report.accepted, report.difference
    print(f"audit  MATCH, run root {report.run_root.hex()}")


def convicted(name: str, run: Path, job: Path, directory: Path) -> None:
    """A second provider cheats (`tallystick attack --list`); a referee asks both and convicts it;
    a judge repeats the verdict from the evidence, without model and data."""
    cheat = directory / name
    command = [sys.executable, "-m", "tallystick", "attack", name, str(job), "--out", str(cheat)]
    subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    found = tallystick.dispute(run, cheat, job, as_attack=["B"], out=cheat / "evidence")
    assert found.convicted == ("B",)
    guilty = found.verdict.convicted[0]
    print(f"{name}: CONVICTED, step {found.verdict.place.step}: {guilty.sentence}")
    assert tallystick.judge(cheat / "evidence", job).verdict == found.verdict
    print(f"       the judge says the same, from {len(found.evidence):,} bytes of evidence")


def in_directory(main: Callable[[Path], None]) -> None:
    """Run the example in the directory that the command line names, or in one that goes away."""
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
