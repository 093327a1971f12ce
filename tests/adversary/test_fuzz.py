"""A little of what the scripts fuzz_*.py do at length (docs/proofs/fuzz.md).

Each in a process of its own: the bound on memory stays with the process that sets it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def _counts(script: str, *words: str) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *words], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds memory by /proc")
def test_changed_runs_and_jobs() -> None:
    """A typed error or the truth, from every reading command."""
    found = _counts("fuzz_runs.py", "--reads", "30", "--seed", "3")
    assert found["reads"] >= 30  # type: ignore[operator]
    assert len(found["by_command"]) >= 9  # type: ignore[arg-type]


def test_a_hostile_tree_behind_three_doors() -> None:
    """Nothing hangs, nothing outside is read, and `file:///` says what the directory says."""
    found = _counts("fuzz_doors.py", "--reads", "30", "--seed", "3")
    doors: dict[str, int] = found["by_door"]  # type: ignore[assignment]
    assert doors["file"] == doors["directory"] >= 10 and doors["publish"] >= 10
    assert len(found["changes"]) >= 6  # type: ignore[arg-type]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds memory by /proc")
def test_changed_evidence() -> None:
    """PROTOCOL P2, 8.3: refused, or a verdict that does not convict the honest party."""
    found = _counts("fuzz_evidence.py", "--files", "20", "--seed", "3", "--cases", "10")
    assert found["honest_convicted"] == 0
    assert found["outcomes"]["convicted"] > 0  # type: ignore[index]
