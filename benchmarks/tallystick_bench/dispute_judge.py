"""A judge in a process of its own: `python -m` this file JOB EVIDENCE; prints JSON.

torch cannot be imported here, and the job has only job.json and program.txt.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    """Judge the evidence once, and print its cost."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # an import of it fails
    from tallystick.disk.regular import read_file
    from tallystick.job.job_file import load_terms
    from tallystick.limits import LIMITS
    from tallystick.protocol.judge import judge
    from tallystick_bench.memory import peak_bytes

    began = time.process_time()
    job = load_terms(Path(sys.argv[1]))
    data = read_file(Path(sys.argv[2]), LIMITS.evidence_bytes, "evidence file")
    verdict = judge(job, data).verdict
    found = {
        "seconds": time.process_time() - began,
        "peak_bytes": peak_bytes(),
        "convicted": [conviction.party for conviction in verdict.convicted],
        "node": verdict.place.node,
        "element": verdict.place.element,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
