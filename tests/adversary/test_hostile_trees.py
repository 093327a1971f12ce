"""Hostile directories: every reading command ends, with a typed error and no traceback.

DESIGN 3: a run, a job, evidence and keys come from someone who wants us to hang, to run out of
memory, or to read and write elsewhere.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_trees import (
    Capture,
    Place,
    commands,
    copied_to,
    dangling,
    directory,
    empty,
    endless,
    fifo,
    files_of,
    job_commands,
    link_outside,
    loop,
    outcome,
    sock,
    sparse,
)

from tallystick.cli.main import run
from tallystick.job.job import Job
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.directory import RunStore


@pytest.fixture(scope="module")
def replay_job(jobs: Path) -> Job:
    from tallystick.job.recipes import new_job

    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    path = jobs / "hostile-replay"
    return new_job("logreg", path, pairs, steps=3, checkpoint_interval=2, contract="replay/1")


@pytest.fixture(scope="module")
def replay_run(jobs: Path, replay_job: Job) -> RunSummary:
    options = Options(trace=(1, 2))
    return train_job(replay_job, jobs / "hostile-replay-run", options)


# Commands that list steps, or say what a session record says.
_STEPS = frozenset({"inspect", "fsck", "audit", "report", "train"})


def _run_files() -> list[str]:
    return [
        "checkpoints/step-00000003.safetensors",
        "commitment.json",
        "job/data/train.safetensors",
        "job/job.json",
        "job/program.txt",
        "job/state0.safetensors",
        "journal",
        "lock",
        "logs/0000000000.log",
        "logs/0000000002.log",
        "nodes/step-00000001.bin",
        "override.json",
        "run.json",
        "signer.pem",
    ]


def test_the_list_of_files_is_whole(replay_run: RunSummary) -> None:
    there = set(files_of(replay_run.directory))
    named = set(_run_files()) - {"override.json"}
    others = {name for name in there - named if not name.startswith(("logs/", "checkpoints/"))}
    assert named <= there
    assert {Path(name).name for name in others} <= {"validation.safetensors", "eval.txt",
                                                    "forward.txt"}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", _run_files())
def test_no_command_waits_for_a_fifo(
    name: str, replay_run: RunSummary, replay_job: Job, tmp_path: Path, capture: Capture
) -> None:
    """The kind of file is known before it is opened."""
    _each_command(fifo, name, replay_run, replay_job, tmp_path, capture)


_STATE = "checkpoints/step-00000003.safetensors"
_STANDS = [
    *[(place, "journal") for place in (directory, dangling, loop, endless, sock, sparse, empty)],
    *[(place, "logs/0000000000.log") for place in (directory, dangling, sparse, empty)],
    *[(place, "job/state0.safetensors") for place in (dangling, endless, sparse)],
    *[(place, "job/job.json") for place in (directory, loop, sparse)],
    *[(place, "run.json") for place in (endless, sparse)],
    *[(place, "lock") for place in (directory, dangling)],
    *[(place, _STATE) for place in (endless, sparse)],
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("place", "name"), _STANDS)
def test_whatever_stands_for_a_file(
    place: Place,
    name: str,
    replay_run: RunSummary,
    replay_job: Job,
    tmp_path: Path,
    capture: Capture,
) -> None:
    with Memory(2 << 30):
        _each_command(place, name, replay_run, replay_job, tmp_path, capture)


class Memory:
    """No more address space than now and `more` bytes, so that an endless read ends."""

    def __init__(self, more: int) -> None:
        self._more = more

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + self._more
        resource.setrlimit(resource.RLIMIT_AS, (limit, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self._before)


def _each_command(
    place: Place,
    name: str,
    honest: RunSummary,
    job: Job,
    tmp_path: Path,
    capture: Capture,
    only: frozenset[str] = frozenset(),
) -> None:
    """Every command, or those of `only`, on a copy of the run with `name` replaced."""
    faults = []
    for number, (verb, *_) in enumerate(commands(tmp_path, honest, job, tmp_path)):
        if only and verb not in only:
            continue
        copy, out = copied_to(honest.directory, tmp_path / "run"), tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        shutil.copy(copy / "checkpoints/step-00000003.safetensors", out / "model.safetensors")
        place(copy / name)
        arguments = commands(copy, honest, job, out)[number]
        capture()
        fault = outcome(arguments, capture)
        if fault:
            faults.append(f"{' '.join(arguments[:2])}: {fault}")
    assert faults == []


@pytest.mark.parametrize("name", ["journal", "commitment.json", "job/job.json", "signer.pem",
                                  "checkpoints", "job", "job/data", "logs", "nodes"])  # fmt: skip
def test_no_link_leads_out_of_a_run(
    name: str, replay_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    """Inside a run a link is refused by name, even to what would be the right bytes."""
    copy = copied_to(replay_run.directory, tmp_path / "deep" / "run")
    link_outside(copy / name)
    capture()
    assert run(["fsck", str(copy)]) == 1
    said, _ = capture()
    assert "is a link" in said
    for arguments in (["export", str(copy), "-o", str(tmp_path / "m")], ["audit", str(copy)]):
        code = run(arguments)
        noted = capture()[1]
        if name not in ("signer.pem", "nodes", "logs", "job/data"):  # not read by both
            assert code == 2, (arguments, noted)
            assert "is a link" in noted


def test_the_directory_named_may_be_a_link(
    replay_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    (tmp_path / "run").symlink_to(replay_run.directory)
    for command in (["inspect"], ["fsck"], ["audit", "--quiet"]):
        assert run([command[0], str(tmp_path / "run"), *command[1:]]) == 0, capture()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/step-9999999999999.safetensors",
        "checkpoints/step-0000000000003.safetensors",
        "nodes/step-0000000000001.bin",
        "logs/0000000000001.log",
        "logs/0000000000007.log",
        "logs/9999999999999.log",
    ],
)
def test_names_of_steps_with_13_digits(
    name: str, replay_run: RunSummary, replay_job: Job, tmp_path: Path, capture: Capture
) -> None:
    """A step has one name; another spelling of it is a stranger."""

    def place(path: Path) -> None:
        path.write_bytes(b"x")

    _each_command(place, name, replay_run, replay_job, tmp_path, capture, _STEPS)
    copy = copied_to(replay_run.directory, tmp_path / "run")
    (copy / name).write_bytes(b"x")
    assert run(["fsck", str(copy)]) == 1
    assert Path(name).name in capture()[0]


def _forged(path: Path, records: list[tuple[int, bytes]]) -> None:
    """Append records to a journal, their checks right: the chain has no key."""
    from tallystick.run.store import journal

    _, chain, end = journal.parse_journal(path.read_bytes(), path)
    data = path.read_bytes()[:end] + b"".join(chain.frame(k, p) for k, p in records)
    path.write_bytes(data)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "session",
    [
        b'{"threads":"many"}',
        b'{"threads":null}',
        b'{"threads":[1]}',
        b'{"isa":{"a":"b"},"threads":1}',
        b'{"replay":7}',
        b'{"replay":[1]}',
        b'{"threads":1.5}',
        b"[]",
        b'{"other":{"deep":[1]}}',
    ],
)
def test_a_session_record_of_other_types(
    session: bytes, replay_run: RunSummary, replay_job: Job, tmp_path: Path, capture: Capture
) -> None:
    from tallystick.run.store.journal import SESSION

    def place(path: Path) -> None:
        _forged(path, [(SESSION, session)])

    _each_command(place, "journal", replay_run, replay_job, tmp_path, capture, _STEPS)


def test_a_session_of_another_build_is_read(replay_run: RunSummary, tmp_path: Path) -> None:
    """Members that this build does not know, of plain types, are no fault."""
    from tallystick.run.store.journal import SESSION

    copy = copied_to(replay_run.directory, tmp_path / "run")
    _forged(copy / "journal", [(SESSION, b'{"host":"a","threads":2}')])
    journal = RunStore(copy).journal()
    assert journal.torn_bytes == 0
    assert journal.sessions[-1] == {"host": "a", "threads": 2}


def test_a_journal_is_no_longer_than_its_job_can_need(
    replay_run: RunSummary, replay_job: Job, tmp_path: Path, capture: Capture
) -> None:
    from tallystick.run.store.journal import journal_limit

    copy = copied_to(replay_run.directory, tmp_path / "run")
    os.truncate(copy / "journal", journal_limit(replay_job) + 1)
    assert run(["inspect", str(copy)]) == 2
    assert "needs at most" in capture()[1]


def test_a_state_of_3_gib_is_refused_by_its_header(
    logreg_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    """The types in a header are the program's before a byte of data is read or allocated."""
    from tallystick.disk.tensorfile import header_bytes

    copy = copied_to(logreg_run.directory, tmp_path / "run")
    header, _ = header_bytes({"param.0.weight": ("f32", ((3 << 30) // 4,))}, {})
    for name in ("job/state0.safetensors", "checkpoints/step-00000006.safetensors"):
        path = copy / name
        path.write_bytes(header)
        os.truncate(path, len(header) + (3 << 30))
        with Memory(1 << 30):
            code = run(["fsck", str(copy)])
        said, noted = capture()
        assert code == 1, noted
        assert "not enough memory" not in noted
        assert "slot" in said


def test_fsck_names_some_strangers_and_counts_the_others(
    logreg_run: RunSummary, tmp_path: Path, capture: Capture
) -> None:
    from tallystick.limits import LIMITS

    copy = copied_to(logreg_run.directory, tmp_path / "run")
    for number in range(LIMITS.strays_named + 23):
        (copy / "nodes" / f"stray-{number:05d}").write_bytes(b"")
    assert run(["fsck", str(copy)]) == 1
    said, _ = capture()
    assert said.count("It does not belong here.") == LIMITS.strays_named
    assert "nodes: 23 more files do not belong here." in said


def test_lists_of_directories_are_bounded(logreg_run: RunSummary, tmp_path: Path) -> None:
    from tallystick.disk.regular import names
    from tallystick.errors import CorruptFileError

    for number in range(5):
        (tmp_path / str(number)).touch()
    assert len(names(tmp_path, limit=5)) == 5
    with pytest.raises(CorruptFileError, match=f"{tmp_path} has more than 4 entries"):
        names(tmp_path, limit=4)


@pytest.fixture
def weird(replay_run: RunSummary, tmp_path: Path) -> Iterator[Path]:
    """A run among names of every kind, and a deep tree."""
    copy = copied_to(replay_run.directory, tmp_path / "run")
    for name in (b"a\nb", b"\xff\xfe", b"n" * 255, "\u202e.gpj".encode(), b"[red]x", b"-rf", b" "):
        for place in ("", "checkpoints", "logs", "nodes", "job", "job/data"):
            Path(os.fsdecode(os.path.join(os.fsencode(copy / place), name))).touch()
    deep = copy / "deep"
    here = os.getcwd()
    deep.mkdir()
    os.chdir(deep)
    for _ in range(400):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.chdir(here)
    os.link(copy / "journal", copy / "journal-again")
    yield copy
    shutil.rmtree(copy, ignore_errors=True)


def test_weird_names_deep_trees_hard_links(
    weird: Path, replay_run: RunSummary, replay_job: Job, tmp_path: Path, capture: Capture
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    faults = []
    for arguments in commands(weird, replay_run, replay_job, out):
        capture()
        if fault := outcome(arguments, capture):
            faults.append(f"{' '.join(arguments[:2])}: {fault}")
    assert faults == []


@pytest.mark.parametrize(
    "name", ["n" * 5000, "a/" * 3000, "\udcff", "x\ny", "", "loop", "run.json"]
)
def test_paths_that_a_person_cannot_have_meant(
    name: str, replay_run: RunSummary, replay_job: Job, tmp_path: Path, capture: Capture
) -> None:
    loop(tmp_path / "loop")
    (tmp_path / "run.json").touch()
    path = Path(str(tmp_path) + "/" + name)
    faults = []
    wanted = [*commands(path, replay_run, replay_job, path), *job_commands(path, path)]
    for arguments in wanted:
        capture()
        if fault := outcome(arguments, capture):
            faults.append(f"{' '.join(arguments[:1])}: {fault}")
    assert faults == []
