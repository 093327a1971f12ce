"""Directories that another party has prepared, and every command that reads them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tallystick.cli.main import run
from tallystick.job.job import Job
from tallystick.run.execute.trainer import RunSummary

LIMIT_S = 60  # far more than any command here takes: what is looked for waits for ever
Place = Callable[[Path], None]
Capture = Callable[[], tuple[str, str]]


class HungError(BaseException):
    """The command was still running after LIMIT_S; no handler in the package catches it."""


@contextmanager
def alarm() -> Iterator[None]:
    """Interrupt the block where it hangs."""

    def ring(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def commands(run_directory: Path, honest: RunSummary, job: Job, out: Path) -> list[list[str]]:
    """Every command that reads the run at `run_directory`, which is of `job`; `honest` is an
    intact run of the same job, `out` an empty directory for what is written."""
    bad, good, terms = str(run_directory), str(honest.directory), str(job.directory)
    model = str(out / "model.safetensors")
    return [
        ["inspect", bad],
        ["inspect", bad, "--json"],
        ["fsck", bad],
        ["audit", bad, "--quiet"],
        ["audit", bad, "--job", terms, "--quiet"],
        ["audit", bad, "--steps", "0:2", "--quiet"],
        ["export", bad, "-o", model],
        ["verify-model", model, bad],
        ["evaluate", bad],
        ["sample", bad],
        ["report", bad, "-o", str(out / "page.html")],
        ["dispute", bad, good, "--job", terms, "--out", str(out / "evidence")],
        ["train", terms, "--out", bad, "--quiet"],
        ["train", terms, "--out", str(out / "follows"), "--replay", bad, "--quiet"],
        ["train", terms, "--out", str(out / "new"), "--key", f"{bad}/signer.pem", "--estimate"],
        ["keys", "show", f"{bad}/signer.pem"],
        *job_commands(run_directory / "job", out),
    ]


def job_commands(directory: Path, out: Path) -> list[list[str]]:
    """Every command that reads the job at `directory`."""
    bad = str(directory)
    return [
        ["inspect", bad],
        ["fsck", bad],
        ["job", "show", bad],
        ["job", "verify", bad],
        ["train", bad, "--out", str(out / "trained"), "--quiet"],
        ["attack", "silent", bad, "--out", str(out / "attacked"), "--quiet"],
        ["calibrate", "sample", bad, "--out", str(out / "sample")],
        ["judge", str(out / "none"), "--job", bad],
    ]


def outcome(arguments: Sequence[str], capture: Capture) -> str:
    """Run one command line; what is wrong with how it ended, or nothing."""
    try:
        with alarm():
            code = run(list(arguments))
    except HungError:
        return "it hangs"
    noted = capture()[1]
    if "not enough memory" in noted:
        return "it allocates what a file says"
    if "Traceback" in noted or "this is a bug" in noted:
        return noted.strip().splitlines()[-2][:200]
    return "" if code in (0, 1, 2, 3) else f"exit code {code}"


def files_of(directory: Path) -> list[str]:
    """Names of all files of a run or a job, relative to it."""
    return sorted(
        str(Path(at, name).relative_to(directory))
        for at, _, names in os.walk(directory)
        for name in names
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fifo(path: Path) -> None:
    _remove(path)
    os.mkfifo(path)


def directory(path: Path) -> None:
    _remove(path)
    path.mkdir()


def dangling(path: Path) -> None:
    _remove(path)
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    _remove(path)
    path.symlink_to(path.name)


def endless(path: Path) -> None:
    _remove(path)
    path.symlink_to("/dev/zero")


def link_outside(path: Path) -> None:
    """The file itself, behind a link that leads out of the directory."""
    outside = path.parent.parent / f"outside-{path.name}"
    _remove(outside)
    path.rename(outside)
    path.symlink_to(outside)


def sock(path: Path) -> None:
    _remove(path)
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's whole name has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def sparse(path: Path) -> None:
    """3 GiB of zeros that take no room; the beginning stays."""
    with open(path, "r+b") as file:
        file.truncate(3 << 30)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def copied_to(source: Path, to: Path) -> Path:
    """A fresh copy of a directory at `to`."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)
    return to
