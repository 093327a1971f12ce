"""Small jobs and runs that many tests share; made once per session."""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

from tallystick import _core
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.products import probe
from tallystick.run.execute.trainer import Options, RunSummary, train_job

# torch's threads wait for one another asleep: test processes share the processors, and a thread
# that spins takes one from a thread with work. Read when torch is loaded; no bit changes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# All tests and modules live to the end: with Python's own numbers a fifth of the time is spent on
# looking whether they may go.
gc.set_threshold(100_000, 10, 10)

# A shared machine has bad minutes: a test may be slow, it may not be random.
settings.register_profile("tallystick", deadline=None, derandomize=True)
settings.load_profile("tallystick")


# A test as a record of mutants names it: `unit/protocol/test_x.py::test_y[case]`.
_TEST_ID = re.compile(r"\w+(?:/\w+)*/test_\w+\.py::test_\w+(?:\[[^|\n]*\])?")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="every case of the tests that take a sample by default (docs/proofs/README.md)",
    )
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="a skipped test fails: for a machine that has what the tests want, such as a GPU",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.getoption("--no-skips"):
        report.outcome = "failed"
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some cases run with --exhaustive only: those with the mark `long`, and of a test with the
    mark `sample(n)` those that are not in the sample, and that no record of mutants names."""
    if config.getoption("--exhaustive"):
        return
    skipped = pytest.mark.skip(reason="with --exhaustive only (docs/proofs/README.md)")
    named = named_in_proofs()
    for item in items:
        sample = item.get_closest_marker("sample")
        left_out = item.get_closest_marker("long") is not None
        if sample is not None and isinstance(item, pytest.Function):
            left_out |= not in_sample(item, *sample.args) and item.nodeid not in named
        if left_out:
            item.add_marker(skipped)


EXAMPLES = 50


def in_sample(item: pytest.Function, every: int) -> bool:
    """Whether a case is one of every `every`: the places of its parameters add up to a multiple of
    it, or of the number of values of the second longest one, if that is less. So of several
    parameters each value is taken, together with some of the others'. A parameter
    with more than EXAMPLES values is a list of examples: only one in `every` is taken.

    Names that one mark gives together are one parameter. pytest itself numbers the cases of all
    marks in one row (`callspec.indices`): by that, three names would be three times the same
    number, and of marks of three values each only the first value of the last one would be taken.
    """
    places = dict(item.callspec.indices)
    total, sizes = 0, list[int]()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        own = [places.pop(name) for name in names]
        found = _place_of([item.callspec.params[name] for name in names], mark.args[1])
        total += own[0] if found is None else found
        sizes.append(len(mark.args[1]) if isinstance(mark.args[1], Sized) else every)
    # A fixture may have parameters too.
    fixtures = item._fixtureinfo.name2fixturedefs
    sizes += [len(fixtures[name][-1].params or ()) for name in places]
    if len(sizes) > 1 and max(sizes) <= EXAMPLES:
        every = min(every, sorted(sizes)[-2])
    return (total + sum(places.values())) % every == 0


def _place_of(values: list[object], rows: Iterable[object]) -> int | None:
    """The first row of a mark that has these very values; None if it has none (an iterator)."""
    for place, row in enumerate(rows):
        given = row.values if isinstance(row, ParameterSet) else row
        given = given if isinstance(row, ParameterSet) or len(values) > 1 else [given]
        if all(one is other for one, other in zip(values, given, strict=True)):  # type: ignore[call-overload]
            return place
    return None


def named_in_proofs() -> set[str]:
    """The tests that the records of mutants name as the first that fails. They run by default, so
    that `make test` notices each of these changes."""
    root = Path(__file__).resolve().parents[1]
    texts = [path.read_text() for path in sorted((root / "docs" / "proofs").glob("mutation*.md"))]
    return {f"tests/{found}" for text in texts for found in _TEST_ID.findall(text)}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Each of several test processes takes its share of the processors.

    Tests about threads set their number, and the processes that tests start have the usual one.
    """
    share = max(1, _core.threads() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    _core.set_threads(share)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(share)


@pytest.fixture(scope="session")
def is_exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether a test runs every case that it has; else it runs a fixed sample of them."""
    return bool(request.config.getoption("--exhaustive"))


TEXT = ("the quick brown fox jumps over the lazy dog; " * 200).encode()


@pytest.fixture(autouse=True)
def restore_dispatch() -> Iterator[None]:
    """A test may choose instruction set and threads; the next one does not inherit them."""
    isa, threads = _core.isa(), _core.threads()
    yield
    _core.set_isa(isa)
    _core.set_threads(threads)


@pytest.fixture
def probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of numpy's BLAS are probed once for each engine and number, not once a step.

    For long runs on several threads, into which no stranger comes (NUMERICS 1.7).
    """
    monkeypatch.setattr(probe, "entries", lambda: 0)


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory that holds the session's jobs and finished runs."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="session")
def logreg_job(jobs: Path) -> Job:
    """A few hundred bytes of state; 6 steps, committed every 2."""
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    return new_job(
        "logreg", jobs / "logreg", pairs, steps=6, checkpoint_interval=2, evaluate_every=3
    )


@pytest.fixture(scope="session")
def mlp_job(jobs: Path) -> Job:
    """Dropout, AdamW, clipping, a schedule; 12 steps, committed every 5 and at the end."""
    pairs = {
        "features": "6",
        "classes": "3",
        "records": "64",
        "hidden": "8",
        "layers": "1",
        "batch_size": "8",
        "dropout": "0.25",
        "optimizer": "adamw",
        "weight_decay": "0.1",
        "clip_norm": "1.0",
        "schedule": "cosine",
        "warmup": "3",
    }
    return new_job("mlp", jobs / "mlp", pairs, steps=12, checkpoint_interval=5, seed=7)


@pytest.fixture(scope="session")
def gpt2_job(jobs: Path) -> Job:
    """A one-block GPT-2 on a repeated sentence; 8 steps, committed every 3."""
    from tallystick.job.recipes.base import Sources

    path = jobs / "text.txt"
    path.write_bytes(TEXT)
    pairs = {
        "n_layer": "1",
        "n_head": "2",
        "n_embd": "16",
        "block_size": "8",
        "batch_size": "2",
        "warmup": "2",
    }
    return new_job("gpt2", jobs / "gpt2", pairs, Sources(text=path), steps=8, checkpoint_interval=3)


@pytest.fixture(scope="session")
def mlp_run(jobs: Path, mlp_job: Job) -> RunSummary:
    """A finished run of `mlp_job`, steps 6 and 7 traced. Never change it: copy it."""
    return train_job(mlp_job, jobs / "mlp-run", Options(trace=(6, 8)))


@pytest.fixture(scope="session")
def logreg_run(jobs: Path, logreg_job: Job) -> RunSummary:
    """A finished run of `logreg_job`, step 3 traced. Never change it: copy it."""
    return train_job(logreg_job, jobs / "logreg-run", Options(trace=(3, 4)))


@pytest.fixture(scope="session", autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test writes into the caches of the person who runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    """Copy a run or a job to a place of the test's own."""

    def copy(source: Path) -> Path:
        target = tmp_path / f"copy-{source.name}"
        shutil.copytree(source, target)
        return target

    return copy
