"""Processes of ours import nothing from the directory that the user stands in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tallystick.started import command_of

_FOREIGN = "import os; os._exit(7)\n"


@pytest.mark.parametrize("safe", ["", "1"])
def test_a_run_brings_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: str) -> None:
    for name in ("json", "runpy", "tallystick", "numpy"):
        (tmp_path / f"{name}.py").write_text(_FOREIGN)
    monkeypatch.setenv("PYTHONSAFEPATH", safe)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    worker = command_of("tallystick.run.parallel.worker")
    ended = subprocess.run(worker, cwd=tmp_path, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0


def test_arguments_are_the_modules() -> None:
    said = subprocess.run(command_of("json.tool", "--help"), capture_output=True, check=True)
    assert b"sort-keys" in said.stdout
