"""A command's exit code is its verdict, whether or not anyone reads what it says (INTERFACE).

In processes of their own: what counts is the code that a shell sees, after the interpreter's end.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tallystick.job.job import Job
from tallystick.run.show.summary import RunSummary

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def _unread(stack: ExitStack) -> int:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    stack.callback(os.close, writer)
    return writer


def _full(stack: ExitStack) -> int:
    """A full disk."""
    return stack.enter_context(FULL.open("wb")).fileno()


Lost = Callable[[ExitStack], int]


def _started(words: list[str], stdout: Any, stderr: Any, closed: str = "") -> subprocess.Popen[Any]:
    """The command, started by a shell that closes descriptors as `closed` says."""
    line = [sys.executable, "-m", "tallystick", *words]
    shell = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *line] if closed else line
    return subprocess.Popen(
        shell, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _code(words: list[str], out: Lost | None, err: Lost | None, closed: str = "") -> int:
    with ExitStack() as stack:
        streams = [subprocess.DEVNULL if lost is None else lost(stack) for lost in (out, err)]
        return _started(words, *streams, closed).wait(120)


@pytest.fixture(scope="module")
def altered(jobs: Path, logreg_run: RunSummary) -> Path:
    """A copy of a run whose last state is not the committed one: `fsck` says 1."""
    import shutil

    copy = jobs / "altered-last-state"
    shutil.copytree(logreg_run.directory, copy)
    last = max((copy / "checkpoints").iterdir())
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    return copy


_COMMANDS: list[tuple[str, int]] = [
    ("--help", 0),
    ("--version", 0),
    ("audit --help", 0),
    ("inspect RUN", 0),
    ("audit RUN", 0),
    ("audit RUN --quiet", 0),
    ("fsck RUN", 0),
    ("fsck ALTERED", 1),
    ("inspect JOB", 0),
    ("job show JOB", 0),
    ("job recipes", 0),
    ("attack --list", 0),
    ("evaluate RUN", 0),
    ("export RUN -o OUT/model", 0),
    ("report RUN -o OUT/page", 0),
    ("dispute RUN RUN --job JOB --out OUT/evidence", 0),
    ("train JOB --out OUT/run", 0),
    ("train JOB --out OUT/run --estimate", 0),
    ("keys new OUT/key", 0),
    ("judge OUT/missing --job JOB", 2),
    ("audit", 3),
    ("nothing", 3),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("line", "code"), _COMMANDS)
def test_the_code_is_the_verdict(
    line: str, code: int, logreg_job: Job, logreg_run: RunSummary, altered: Path, tmp_path: Path
) -> None:
    """Without a reader, and with a full disk, of both streams at once."""
    for name, lost in (("unread", _unread), ("full", _full)):
        if lost is _full and not FULL.exists():
            continue
        out = tmp_path / name
        out.mkdir()
        words = line.replace("ALTERED", str(altered)).replace("RUN", str(logreg_run.directory))
        words = words.replace("JOB", str(logreg_job.directory)).replace("OUT", str(out))
        assert _code(words.split(), lost, lost) == code, (line, name)


@pytest.mark.parametrize("lost", [_unread, pytest.param(_full, marks=needs_full)])
def test_each_stream_alone(lost: Lost, logreg_run: RunSummary) -> None:
    words = ["audit", str(logreg_run.directory)]
    assert _code(words, lost, None) == 0
    assert _code(words, None, lost) == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", "0>&- >&- 2>&-"])
def test_closed_descriptors(closed: str, logreg_run: RunSummary, altered: Path) -> None:
    """Then no file of the run may get the number of standard error."""
    assert _code(["audit", str(logreg_run.directory)], None, None, closed) == 0
    assert _code(["fsck", str(altered)], None, None, closed) == 1


_JSON = [
    "inspect RUN",
    "fsck ALTERED",  # 1 if it were delivered
    "audit MISSING",
    "audit",  # 3 if it were delivered
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("line", _JSON)
@pytest.mark.parametrize("how", ["unread", "closed", pytest.param("full", marks=needs_full)])
def test_a_json_object_that_is_not_delivered_is_2(
    line: str, how: str, logreg_run: RunSummary, altered: Path, tmp_path: Path
) -> None:
    words = line.replace("RUN", str(logreg_run.directory)).replace("ALTERED", str(altered))
    words = words.replace("MISSING", str(tmp_path / "missing")) + " --json"
    if how == "closed":
        assert _code(words.split(), None, None, ">&-") == 2
    else:
        assert _code(words.split(), _unread if how == "unread" else _full, None) == 2


def test_progress_and_notices_are_no_result(logreg_run: RunSummary, altered: Path) -> None:
    assert _code(["audit", str(logreg_run.directory), "--json"], None, _unread) == 0
    assert _code(["fsck", str(altered), "--json"], None, _unread) == 1


@needs_full
def test_what_is_lost_is_told(logreg_run: RunSummary) -> None:
    words, told = ["inspect", str(logreg_run.directory)], "Standard output could not be written"
    with FULL.open("wb") as full:
        done = _started(words, full, subprocess.PIPE)
        assert told in done.communicate(timeout=120)[1].decode() and done.returncode == 0
        done = _started([*words, "--json"], full, subprocess.PIPE)
        said = done.communicate(timeout=120)[1].decode()
        assert told in said and "JSON" in said and done.returncode == 2


@needs_full
def test_a_file_that_is_not_written_is_2(logreg_run: RunSummary) -> None:
    for verb in ("export", "report"):
        words = [verb, str(logreg_run.directory), "-o", str(FULL)]
        assert _code(words, _unread, _unread) == 2


def _first_bytes(words: list[str]) -> tuple[bytes, int]:
    """Read a little of what is said through a small pipe, and go; the exit code."""
    reader, writer = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    done = _started(words, writer, subprocess.DEVNULL)
    os.close(writer)
    try:
        said = os.read(reader, 10)
    finally:
        os.close(reader)
    return said, done.wait(120)


def test_a_reader_that_goes_midway(logreg_job: Job) -> None:
    """`| head -1`: more is written than the pipe takes."""
    said, code = _first_bytes(["train", "--help"])
    assert said == b"Usage: tal" and code == 0
    said, code = _first_bytes(["attack", "--list", str(logreg_job.directory), "--json"])
    assert said.startswith(b"{") and code == 2


def test_a_terminal_that_goes_away(logreg_run: RunSummary) -> None:
    """The live line of progress then meets EIO."""
    leader, follower = pty.openpty()
    done = _started(["audit", str(logreg_run.directory)], subprocess.DEVNULL, follower)
    os.close(follower)
    os.close(leader)
    assert done.wait(120) == 0


def test_a_pipe_that_does_not_block_is_waited_for(logreg_job: Job) -> None:
    """A shell's other process may have made it so: nothing is lost, and nothing raised."""
    reader, writer = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    done = _started(
        ["attack", "--list", str(logreg_job.directory), "--json"], writer, subprocess.DEVNULL
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    assert done.wait(120) == 0 and len(said) > 4096
    assert json.loads(said)["attacks"]
