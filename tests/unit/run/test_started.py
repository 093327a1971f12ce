"""Processes of ours import nothing from the directory that the user stands in; how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tallystick.started import Child, command_of

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


def of_source(path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Child:
    """A child that says on its standard output that it has begun, and executes `source`."""
    begin = "import sys; sys.stdout.write('begun\\n'); sys.stdout.flush()\n"
    (path / "child_of_test.py").write_text(begin + source)
    monkeypatch.setenv("PYTHONPATH", f"{path}:{':'.join(filter(None, sys.path))}")
    child = Child("child_of_test", answering=True)
    assert child.output.readline() == b"begun\n"
    return child


def test_a_child_that_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last twelve lines are kept, and nothing can be written to it."""
    source = "for n in range(40): print(n, file=sys.stderr)\nsys.exit(3)\n"
    child = of_source(tmp_path, monkeypatch, source)
    while child.code() is None:
        time.sleep(0.01)
    with pytest.raises(OSError, match=r"[Pp]ipe"):
        child.write(b"more")
    assert child.end() == child.code() == 3
    assert child.said() == " ".join(map(str, range(28, 40)))
    child.output.close()


def test_a_child_ends_with_its_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = of_source(tmp_path, monkeypatch, "sys.stdin.read()\n")
    assert child.code() is None
    child.dismiss()
    assert child.end(60) == 0
    child.output.close()


def test_a_child_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, at once or after its grace."""
    source = "import time\nsys.stdin.read()\ntime.sleep(600)\n"
    for grace in (0.0, 0.2):
        child = of_source(tmp_path, monkeypatch, source)
        child.dismiss()
        began = time.monotonic()
        assert child.end(grace) == -signal.SIGKILL
        assert grace <= time.monotonic() - began < 60
        child.output.close()


@pytest.mark.parametrize("given", [None, "7"])
def test_threads_of_blas_do_not_spin_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    """A program that only imports the library has not set the variable; the command line has."""
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    source = "import os\nprint(os.environ['OPENBLAS_THREAD_TIMEOUT'], flush=True)\n"
    child = of_source(tmp_path, monkeypatch, source)
    assert child.output.readline().decode().strip() == (given or "4")
    assert child.end(60) == 0
    child.output.close()
