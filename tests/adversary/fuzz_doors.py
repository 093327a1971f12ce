"""One hostile tree behind three doors: a directory, `file:///`, and S3 (moto's server).

    PYTHONPATH=tests python tests/adversary/fuzz_doors.py [--reads 5000] [--seed 1]

Files of a run become FIFOs, sockets, devices, loops, links to what would be the right bytes and
links to a tree outside; the same things stand under names that are no part of a run. Every reading
command, and a trainer that publishes there, must end within SECONDS, with an exit code of DESIGN 9
and a typed error. Nothing outside may be read, listed or written: the outside tree has old times of
access, which a read renews, and FIFOs, which hang whoever opens them. The exit code is the same at
the first two doors. On S3 the names are hostile instead. Counts go to docs/proofs/fuzz.md.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_trees as trees

from tallystick.cli.main import run as command
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, train_job

SECONDS = 20
OLD = 1_000_000_000  # seconds since 1970: a time of access before the time of change

# --- the tree outside -----------------------------------------------------------------------------


class Outside:
    """A tree that nothing may touch: files, a FIFO, a link to the root of the machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "deep").mkdir()
        (directory / "secret").write_text("marker\n")
        (directory / "deep" / "secret").write_text("marker\n")
        os.mkfifo(directory / "fifo")
        (directory / "root").symlink_to("/")

    def wind_back(self) -> dict[str, int]:
        """Set every time of access back; what `touched` compares with."""
        for path in self._all():
            found = os.lstat(path)
            os.utime(path, ns=(OLD * 10**9, found.st_mtime_ns), follow_symlinks=False)
        return self._times()

    def touched(self, before: dict[str, int]) -> list[str]:
        """What was read, listed, written, made or removed since."""
        # The times are taken before the tree is listed, which is an access itself.
        now = {name: self._time(Path(name)) for name in before}
        changed = [name for name, at in before.items() if now[name] != at]
        return changed + sorted({str(p) for p in self._all()} ^ set(before))

    def _all(self) -> list[Path]:
        return [self.directory, *sorted(self.directory.rglob("*"))]

    def _times(self) -> dict[str, int]:
        paths = self._all()  # lists them, so their times are set after it
        for path in paths:
            if path.is_dir() and not path.is_symlink():
                os.utime(path, ns=(OLD * 10**9, os.lstat(path).st_mtime_ns))
        return {str(path): self._time(path) for path in paths}

    @staticmethod
    def _time(path: Path) -> int:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return -1
        # A link's own time of access is renewed by whoever reads where it leads, without following.
        accessed = 0 if path.is_symlink() else found.st_atime_ns
        return hash((accessed, found.st_mtime_ns, found.st_size, found.st_nlink))


# --- what is done to a tree -----------------------------------------------------------------------
Change = Callable[[Path, Outside, random.Random], None]


def _file(run: Path, rng: random.Random) -> Path:
    return run / rng.choice(trees.files_of(run))


def _stranger(run: Path, rng: random.Random) -> Path:
    """A new name in a directory of the run."""
    directories = [run, *[p for p in sorted(run.rglob("*")) if p.is_dir() and not p.is_symlink()]]
    return rng.choice(directories) / f"stranger-{rng.randrange(10**6)}"


def folder(path: Path) -> None:
    """A directory that is not empty: an empty one is nothing on a store."""
    trees.directory(path)
    (path / "x").write_bytes(b"x")


def replaced(run: Path, _: Outside, rng: random.Random) -> None:
    places = (trees.fifo, trees.sock, trees.dangling, trees.loop, trees.endless, folder)
    rng.choice(places)(_file(run, rng))


def planted(run: Path, _: Outside, rng: random.Random) -> None:
    rng.choice((trees.fifo, trees.sock, trees.loop, trees.endless))(_stranger(run, rng))


def moved_outside(run: Path, outside: Outside, rng: random.Random) -> None:
    """The right bytes, or the right directory, behind a link."""
    directories = [p for p in sorted(run.rglob("*")) if p.is_dir() and not p.is_symlink()]
    path = rng.choice([_file(run, rng), *directories])
    target = outside.directory / f"moved-{rng.randrange(10**9)}"
    path.rename(target)
    path.symlink_to(target, target.is_dir())


def linked(run: Path, outside: Outside, rng: random.Random) -> None:
    """A file, or a new name, that leads outside: to a file, a FIFO, a directory, everything."""
    path = rng.choice((_file, _stranger))(run, rng)
    path.unlink(missing_ok=True)
    path.symlink_to(outside.directory / rng.choice(("secret", "fifo", "deep", "", "root")))


def circle(run: Path, _: Outside, rng: random.Random) -> None:
    """A directory that leads to one above it, or a chain of links."""
    path = _stranger(run, rng)
    if rng.randrange(2):
        path.symlink_to(rng.choice((".", "..", "../..", str(run))), True)
    else:
        path.symlink_to(path.name + "-b")
        path.with_name(path.name + "-b").symlink_to(path.name)


def deep(run: Path, outside: Outside, rng: random.Random) -> None:
    """Directories below each other, a link or a FIFO at the end."""
    path = _stranger(run, rng)
    for _ in range(rng.choice((3, 30))):
        path = path / "d"
    path.mkdir(parents=True)
    if rng.randrange(2):
        os.mkfifo(path / "end")
    else:
        (path / "end").symlink_to(outside.directory, True)


CHANGES: tuple[Change, ...] = (replaced, planted, moved_outside, linked, circle, deep)


def hostile_names(run: Path, rng: random.Random) -> dict[str, bytes | None]:
    """Objects to put (None: to remove) on a store, whose names no directory would have."""
    name = rng.choice(trees.files_of(run))
    data = (run / name).read_bytes()
    choices: list[dict[str, bytes | None]] = [
        {f"{name}/below": b"x"},
        {f"{name}/../../outside": data},
        {"../outside": b"x"},
        {"/etc/outside": b"x"},
        {f"{name.rpartition('/')[0]}//{name}": data},
        {f"{name}/": b""},
        {"a\x1b[2Jb\u202ec": b"x"},
        {"n" * 400: b"x"},
        {"/".join("d" * 300): b"x"},
        {"./" + name: data, name: None},
        {name: None},
        {name: b""},
        {name: data[: len(data) // 2]},
        {name: bytes(rng.randbytes(max(1, len(data))))},
        {"checkpoints": b"a file where a directory is"},
    ]
    return rng.choice(choices)


_OF_JOB = 3  # command lines that name the run's job


# --- the doors ------------------------------------------------------------------------------------
def commands(place: str, honest: Path, job: Path, out: Path) -> list[list[str]]:
    """Command lines that read the run at `place`; the last _OF_JOB read its job."""
    return [
        ["inspect", place, "--json"],
        ["fsck", place],
        ["audit", place, "--quiet"],
        ["audit", place, "--job", str(job), "--steps", "2:4", "--quiet"],
        ["export", place, "-o", str(out / "model")],
        ["evaluate", place],
        ["report", place, "-o", str(out / "page")],
        ["dispute", str(honest), place, "--job", str(job), "--out", str(out / "evidence")],
        ["train", str(job), "--out", str(out / "follows"), "--replay", place, "--quiet"],
        ["inspect", place + "/job"],
        ["fsck", place + "/job"],
        ["job", "verify", place + "/job"],
    ]


class World:
    """A run under `replay/1`, and counts of what was done."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        pairs = {"features": "4", "classes": "2", "records": "16", "batch_size": "2"}
        self.job: Job = new_job(
            "logreg", directory / "job", pairs, steps=6, checkpoint_interval=2, evaluate_every=3,
            contract="replay/1",
        )  # fmt: skip
        self.honest = directory / "honest"
        train_job(self.job, self.honest, Options(trace=(2, 3)))
        self.outside = Outside(directory / "outside")
        self.counts: Counter[str] = Counter()

    def outcome(self, words: list[str]) -> tuple[int, str]:
        """Exit code and what was said of one command, which must keep to its bounds."""
        out = io.StringIO()
        # A native call does not hear a signal: the watch ends the process.
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = command(words)
        faulthandler.cancel_dump_traceback_later()
        said = out.getvalue()
        assert code in (0, 1, 2, 3), (code, words)
        assert "this is a bug" not in said and "Traceback" not in said, (words, said[-3000:])
        assert "marker" not in said, (words, said)
        left = list((self.directory / "cache" / "mirrors").glob("*/files/**/*"))
        assert not left, (words, left)
        return code, said

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty directory for what a command writes."""
        with tempfile.TemporaryDirectory(dir=self.directory) as name:
            yield Path(name)


def behind_two_doors(world: World, rng: random.Random, done: Counter[str]) -> None:
    """Change a copy of the run, and read it as a directory and by its URL."""
    run = world.directory / "run"
    shutil.copytree(world.honest, run)
    made = [rng.choice(CHANGES) for _ in range(rng.choice((1, 1, 2, 3)))]
    for change in made:
        # A change may find that an earlier one has left it nothing to work on.
        with contextlib.suppress(IndexError, OSError):
            change(run, world.outside, rng)
        world.counts[change.__name__] += 1
    lines = commands("", run, run, run)
    # A directory that a person names may be a link: then not the commands that name the job's.
    whole = len(lines) if not (run / "job").is_symlink() else len(lines) - _OF_JOB
    number = rng.randrange(whole)
    codes, said = dict[str, int](), dict[str, str]()
    for door, place in (("directory", str(run)), ("file", run.as_uri())):
        with world.scratch() as out:
            words = commands(place, world.honest, world.job.directory, out)[number]
            before = world.outside.wind_back()
            codes[door], said[door] = world.outcome(words)
        touched = world.outside.touched(before)
        assert not touched, (door, words, [c.__name__ for c in made], touched)
        done[door] += 1
    assert codes["directory"] == codes["file"], (words, codes, [c.__name__ for c in made], said)
    with world.scratch() as work:
        before = world.outside.wind_back()
        words = ["train", str(world.job.directory), "--out", run.as_uri(), "--quiet"]
        world.outcome([*words, "--work", str(work / "work")])
        touched = world.outside.touched(before)
        assert not touched, ("publish", [c.__name__ for c in made], touched)
    done["publish"] += 1
    shutil.rmtree(run)


def behind_s3(world: World, server: Any, rng: random.Random, done: Counter[str]) -> None:
    """Put the run on a store under hostile names, and read it by its URL."""
    from e2e.moto_server import BUCKET

    client, prefix = server.client(), f"run-{done['s3']}"
    names = {name: (world.honest / name).read_bytes() for name in trees.files_of(world.honest)}
    held: dict[str, bytes | None] = {**names}
    for _ in range(rng.choice((1, 1, 2))):
        held |= hostile_names(world.honest, rng)
    for name, data in held.items():
        if data is not None:
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data)
    with world.scratch() as out:
        place = f"s3://{BUCKET}/{prefix}"
        lines = commands(place, world.honest, world.job.directory, out)
        beside = set(world.directory.rglob("outside*"))
        before = world.outside.wind_back()
        for words in rng.sample(lines, 4):
            world.outcome(words)
            done["s3"] += 1
        touched = world.outside.touched(before)
        assert not touched, (words, touched)
        assert (
            set(world.directory.rglob("outside*")) == beside and not Path("/etc/outside").exists()
        )
    world.counts["hostile_names"] += 1


def check_the_watch(world: World) -> None:
    """The watch itself: it sees a read, a list, a write, and nothing else."""
    outside = world.outside
    assert outside.touched(outside.wind_back()) == []
    for touch in (
        lambda: (outside.directory / "secret").read_text(),
        lambda: os.listdir(outside.directory / "deep"),
        lambda: (outside.directory / "deep" / "new").write_text("x"),
        lambda: (outside.directory / "deep" / "new").unlink(),
    ):
        before = outside.wind_back()
        touch()
        assert outside.touched(before), "this disk does not note accesses: TMPDIR may name another"


def fuzz(reads: int, seed: int) -> dict[str, Any]:
    """At least so many reads at the first two doors, and a tenth of them on S3 where moto is."""
    rng, done = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        world = World(Path(name))
        os.environ["TALLYSTICK_CACHE"] = str(world.directory / "cache")
        check_the_watch(world)
        server = None
        with contextlib.suppress(ImportError):
            from e2e.moto_server import serving

            server = stack.enter_context(serving())
            os.environ.update(server.environment())
        while done.total() < reads:
            try:
                behind_two_doors(world, rng, done)
                if server is not None and done["s3"] * 10 <= done.total():
                    behind_s3(world, server, rng, done)
            except BaseException:
                print(f"seed {seed}, after {done.total()} reads", file=sys.stderr)
                raise
        changes = dict(sorted(world.counts.items()))
    return {"reads": done.total(), "seed": seed, "by_door": dict(done), "changes": changes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reads", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    found = fuzz(given.reads, given.seed)
    found["seconds"] = round(time.monotonic() - began, 1)
    found["tallystick"], found["date"] = tallystick_version(), time.strftime("%Y-%m-%d")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
