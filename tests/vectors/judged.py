"""What `judge --json` prints of evidence, less what is about the file or may be reworded."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallystick.cli.main import run

OF_THE_FILE = ("evidence", "evidence_digest")


def judged(
    evidence: bytes, job: Path, scratch: Path, referees: Sequence[str] = ()
) -> tuple[int, dict[str, Any]]:
    """Exit code and findings; of an error its kind."""
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "evidence"
    path.write_bytes(evidence)
    words = ["judge", str(path), "--job", str(job), "--json"]
    for number, pem in enumerate(referees):
        key = scratch / f"referee{number}"
        key.write_text(pem)
        words += ["--trust-referee", str(key)]
    out, noise = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(noise):
        code = run(words)
    found = json.loads(out.getvalue())
    if "error" in found:
        return code, {"error": found["kind"]}
    for one in found["convicted"]:
        del one["sentence"]
    return code, {k: v for k, v in found.items() if k not in OF_THE_FILE}
