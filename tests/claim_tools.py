"""The unchanged tools of others that read our claims, run in processes of their own.

`make claim-tools` installs them into build/claim-tools, beside the environment and not into it: so
no version of theirs replaces one of ours. TALLYSTICK_CLAIM_TOOLS names another such directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACE = Path(
    os.environ.get("TALLYSTICK_CLAIM_TOOLS")
    or Path(__file__).resolve().parents[1] / "build" / "claim-tools"
)

# Appended: what the environment has too is taken from the environment.
_START = "import sys; sys.path.append({place!r})\n"


def needs(package: str) -> None:
    """Skip the test where the tool is not installed."""
    if not (PLACE / package).is_dir():
        pytest.skip(f"{package} is not in {PLACE}: run `make claim-tools`")


def python(code: str, *arguments: object, cwd: Path | None = None) -> str:
    """What `code` prints that may import the tools; it must end with exit code 0."""
    done = tried(code, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tried(
    code: str, *arguments: object, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """As `python`, with whatever exit code."""
    start = _START.format(place=str(PLACE))
    return subprocess.run(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        capture_output=True, text=True, timeout=300, cwd=cwd,
    )  # fmt: skip
