"""What the package's judge takes for the evidence that judge/tools/hostile.js has made.

    PYTHONPATH=tests python tests/adversary/dear_evidence.py FOLDER/files

A line of JSON a file, each judged in a process of its own: milliseconds by the clock and of a
processor, and how far its memory grew beyond that for the job's terms (docs/proofs/judge.md).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from tallystick.errors import TallystickError
from tallystick.job.job_file import load_terms
from tallystick.protocol.judge import judge


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cost(place: Path) -> dict[str, object]:
    """What the evidence of one folder costs."""
    evidence, terms = (place / "evidence.bin").read_bytes(), load_terms(place)
    before, clock, work = peak_mb(), time.perf_counter(), time.process_time()
    try:
        outcome = ", ".join(c.clause for c in judge(terms, evidence).verdict.convicted)
    except TallystickError as error:
        outcome = f"refused: {error}"
    ms, cpu = time.perf_counter() - clock, time.process_time() - work
    return {
        "name": (place / "name.txt").read_text(), "ms": round(1000 * ms), "cpu": round(1000 * cpu),
        "mb": round(peak_mb() - before), "outcome": outcome[:120],
    }  # fmt: skip


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if (folder / "evidence.bin").exists():
        print(json.dumps(cost(folder)))
    else:
        for one in sorted(folder.iterdir()):
            subprocess.run([sys.executable, __file__, str(one)], check=True)
