"""A run that is put on an object store while it is made (run/store/publish.py)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'tallystick[objects]'")

from unit.objects.stores import ADDRESS, filled, memory, names

from tallystick.cli.main import run as command
from tallystick.disk.objects.address import parse_address
from tallystick.disk.objects.opening import objects_at, opened_objects
from tallystick.disk.objects.store import Found, Objects
from tallystick.errors import MismatchError, StoreConflictError, StoreError, UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute import published as module
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.published import published
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.summary import RunSummary
from tallystick.run.store import publish
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.journal import parse_journal, read_journal
from tallystick.run.store.publish import Publisher

URL = "s3://bucket/run"


class Recorded(Objects):
    """Writes down what is put and removed, in the order in which it is there."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.order: list[tuple[str, int]] = []

    def put(self, name: str, data: bytes | Path, condition: str = "") -> str:
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        tag = super().put(name, data, condition)
        self.order.append((name, size))
        return tag

    def delete(self, names: Any) -> None:
        self.order += [(f"-{name}", 0) for name in names]
        super().delete(names)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """The store that every URL of the test names."""
    found = Recorded(ADDRESS, memory())
    monkeypatch.setattr(module, "objects_at", lambda address, made=False: found)
    yield found


def _train(job: Job, work: Path, **options: Any) -> RunSummary:
    with published(URL, job, Silent(), work) as (directory, listener, _):
        return train_job(job, directory, Options(keep=6, **options), listener)


@contextmanager
def _downloaded(store: Objects, target: Path) -> Iterator[Path]:
    """A plain copy of the prefix, as `aws s3 sync` makes it."""
    for name, found in store.listing().items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(store.read(name, 0, found.size, found)))
    yield target
    shutil.rmtree(target)


def test_what_is_published_is_the_run(store: Recorded, mlp_job: Job, tmp_path: Path) -> None:
    made = _train(mlp_job, tmp_path / "work", trace=(6, 8))
    local = {
        path.relative_to(tmp_path / "work").as_posix()
        for path in (tmp_path / "work").rglob("*")
        if path.is_file()
    }
    assert names(store) == local - {"signer.pem", "lock"}
    with opened_objects(store) as directory:
        assert fsck(directory).clean and audit_run(directory).accepted
    with _downloaded(store, tmp_path / "copy") as copy:  # a plain copy is a run directory
        assert fsck(copy).clean and audit_run(copy).run_root == made.run_root


def test_a_plain_upload_is_a_run_to_go_on_with(
    store: Recorded, mlp_job: Job, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train_job(mlp_job, run, Options(stop_before=7))
    for name, found in (uploaded := filled(run)).listing().items():
        store.put(name, bytes(uploaded.read(name, 0, found.size, found)))
    made = _train(mlp_job, tmp_path / "work")
    assert made.finished
    with opened_objects(store) as directory:
        assert audit_run(directory).accepted


def test_the_order_is_the_disks(
    store: Recorded, mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment the objects are a run that another machine goes on with."""

    class Slow(Silent):
        def step(self, step: int, loss: float, seconds: float) -> None:
            time.sleep(0.02)

    monkeypatch.setattr(publish, "POLL_S", 0.001)
    with published(URL, mlp_job, Slow(), tmp_path / "work") as (directory, listener, _):
        train_job(mlp_job, directory, Options(keep=6, trace=(6, 8)), listener)
    order = [name for name, _ in store.order]
    assert order[-1] == "commitment.json"
    assert order.index("job/job.json") < order.index("run.json") < order.index("journal")
    replayed = Recorded(ADDRESS, memory())
    journal = (tmp_path / "work" / "journal").read_bytes()
    for name, size in store.order:
        if name.startswith("-"):
            replayed.delete([name[1:]])
            continue
        path = tmp_path / "work" / name
        data = path.read_bytes() if path.exists() else b"?" * size
        replayed.put(name, journal[:size] if name == "journal" else data)
        states = [n for n in names(replayed) if n.startswith("checkpoints/")]
        if "journal" not in names(replayed):
            assert not states
            continue
        (tmp_path / "j").write_bytes(journal[: _size(replayed, "journal")])
        content = read_journal(tmp_path / "j")
        assert not content.torn_bytes and len(content.losses) in content.roots
        assert {int(n[-20:-12]) for n in states} <= set(content.roots)
        assert "commitment.json" not in names(replayed) or content.finished


def test_nothing_is_put_before_what_it_needs(
    whole_run: RunSummary, copied: Callable[[Path], Path], mlp_job: Job
) -> None:
    """Rounds at chosen moments: the journal stands between two checkpoints, a state and the claim
    are there before the journal that has them (as no trainer leaves them)."""
    work = copied(whole_run.directory)
    whole = (work / "journal").read_bytes()

    def up_to(step: int) -> bytes:
        """The shortest whole journal with the losses of `step` steps."""
        for length in range(60, len(whole)):
            content = parse_journal(whole[:length], work)[0]
            if len(content.losses) == step and not content.torn_bytes:
                return whole[:length]
        raise AssertionError

    objects = Objects(ADDRESS, memory())
    publisher = Publisher(objects, {}, None, RunStore(work), mlp_job, print)

    def states() -> list[int]:
        return sorted(int(n[-20:-12]) for n in names(objects) if n.startswith("checkpoints/"))

    def settle(final: bool = False) -> None:
        publisher._round(final)
        for put in list(publisher._states.values()):
            put.result()
        publisher._round(final)

    (work / "journal").write_bytes(up_to(8) + whole[len(up_to(8)) :][:5])  # and half a record
    settle()
    listing = objects.listing()
    published_journal = bytes(
        objects.read("journal", 0, listing["journal"].size, listing["journal"])
    )
    content = parse_journal(published_journal, work)[0]
    assert (len(content.losses), content.torn_bytes) == (5, 0)
    assert states() == [5] and "commitment.json" not in names(objects)
    (work / "journal").write_bytes(up_to(11))
    settle(final=True)
    assert states() == [5, 10] and "commitment.json" not in names(objects)
    (work / "journal").write_bytes(whole)
    settle(final=True)
    assert states() == [5, 10, 12] and "commitment.json" in names(objects)
    with opened_objects(objects) as directory:
        assert fsck(directory).clean
    (work / "checkpoints/step-00000005.safetensors").unlink()
    settle(final=True)
    assert states() == [10, 12]
    publisher.close()


def test_the_newest_state_stays_until_a_newer_one_is_there(
    whole_run: RunSummary, copied: Callable[[Path], Path], mlp_job: Job
) -> None:
    work = copied(whole_run.directory)
    later = [work / f"checkpoints/step-{step:08d}.safetensors" for step in (10, 12)]
    held = [path.read_bytes() for path in later]
    for path in later:
        path.unlink()
    objects = Objects(ADDRESS, memory())
    publisher = Publisher(objects, {}, None, RunStore(work), mlp_job, print)
    publisher._round(final=True)
    (work / "checkpoints/step-00000005.safetensors").unlink()
    publisher._round(final=True)
    assert "checkpoints/step-00000005.safetensors" in names(objects)
    later[0].write_bytes(held[0])
    publisher._round(final=True)
    assert {n for n in names(objects) if n.startswith("checkpoints/")} == {
        "checkpoints/step-00000010.safetensors"
    }
    publisher.close()


def _size(objects: Objects, name: str) -> int:
    return objects.listing()[name].size


def test_a_run_goes_on_elsewhere(store: Recorded, mlp_job: Job, tmp_path: Path) -> None:
    first = _train(mlp_job, tmp_path / "a", stop_before=7)
    assert not first.finished and "checkpoints/step-00000007.safetensors" in names(store)
    shutil.rmtree(tmp_path / "a")
    second = _train(mlp_job, tmp_path / "b")
    assert second.finished
    assert read_journal(tmp_path / "b" / "journal").sessions[-1]["start_step"] == 7
    with opened_objects(store) as directory:
        assert fsck(directory).clean and audit_run(directory).accepted
    third = _train(mlp_job, tmp_path / "c")  # finished: nothing is trained, the claim is the same
    assert (third.run_root, third.signer) == (second.run_root, second.signer)
    with opened_objects(store) as directory:
        assert fsck(directory).clean


def test_the_directory_that_is_ahead_is_published(
    store: Recorded, mlp_job: Job, tmp_path: Path
) -> None:
    _train(mlp_job, tmp_path / "work", stop_before=3)
    train_job(mlp_job, tmp_path / "work", Options(stop_before=9))  # while the store was away
    assert _train(mlp_job, tmp_path / "work").finished
    content = read_journal(tmp_path / "work" / "journal")
    assert [s["start_step"] for s in content.sessions] == [0, 3, 9]


def test_a_published_run_with_other_bits_is_refused(
    store: Recorded, mlp_job: Job, tmp_path: Path
) -> None:
    from tallystick.run.store.journal import Journal

    _train(mlp_job, tmp_path / "work", stop_before=7)
    forged = tmp_path / "forged"
    forged.mkdir()
    journal = Journal.open(forged / "journal", mlp_job.digest)
    journal.loss(0, 12345)
    journal.close()
    store.put("journal", (forged / "journal").read_bytes())
    before = store.listing()
    with pytest.raises(MismatchError, match="different losses"):
        _train(mlp_job, tmp_path / "work")
    assert store.listing() == before


def test_an_altered_state_is_passed_over(store: Recorded, mlp_job: Job, tmp_path: Path) -> None:
    _train(mlp_job, tmp_path / "a", stop_before=7)
    name = "checkpoints/step-00000007.safetensors"
    assert "checkpoints/step-00000005.safetensors" in names(store)
    data = bytearray((tmp_path / "a" / name).read_bytes())
    data[-1] ^= 1
    store.put(name, bytes(data))
    assert _train(mlp_job, tmp_path / "b").finished
    start = read_journal(tmp_path / "b" / "journal").sessions[-1]["start_step"]
    assert start == 5


def test_two_trainers_of_one_url_are_noticed(store: Recorded, mlp_job: Job, tmp_path: Path) -> None:
    _train(mlp_job, tmp_path / "a", stop_before=3)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with (
        pytest.raises(StoreConflictError, match="Another process wrote"),
        published(URL, mlp_job, Silent(), tmp_path / "a") as (directory, listener, _),
    ):
        _train(mlp_job, tmp_path / "b", stop_before=7)
        train_job(mlp_job, directory, Options(), listener)
    assert _train(mlp_job, tmp_path / "b").finished


def test_one_directory_has_one_trainer(store: Recorded, mlp_job: Job, tmp_path: Path) -> None:
    with published(URL, mlp_job, Silent(), tmp_path / "a"), pytest.raises(StoreError.__mro__[1]):
        _train(mlp_job, tmp_path / "a")


def test_a_store_that_is_away_stops_no_training(
    store: Recorded, mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise StoreError("The store failed to write.", "Check the network.")

    with monkeypatch.context() as away:
        away.setattr(store, "put", fail)
        with pytest.raises(StoreError, match="not completely published"):
            _train(mlp_job, tmp_path / "work")
    assert RunStore(tmp_path / "work").signed and not names(store)
    assert _train(mlp_job, tmp_path / "work").finished
    with opened_objects(store) as directory:
        assert fsck(directory).clean


def test_a_put_whose_answer_was_lost_meets_itself(
    store: Recorded, mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Recorded.put

    def twice(self: Recorded, name: str, data: Any, condition: str = "") -> str:
        real(self, name, data, condition)
        return real(self, name, data, condition)  # as the library's repetition does

    monkeypatch.setattr(Recorded, "put", twice)
    assert _train(mlp_job, tmp_path / "work").finished
    with opened_objects(store) as directory:
        assert fsck(directory).clean


def test_logs_are_published_before_the_journal_that_names_them(
    store: Recorded, logged_job: Job, tmp_path: Path
) -> None:
    _train(logged_job, tmp_path / "a", stop_before=3)
    order = [name for name, _ in store.order]
    assert order.index("logs/0000000002.log") < len(order) - 1 - order[::-1].index("journal")
    assert "logs/0000000003.log" not in order
    shutil.rmtree(tmp_path / "a")
    assert _train(
        logged_job, tmp_path / "b"
    ).finished  # without the first logs, which are on the store
    assert len([n for n in names(store) if n.startswith("logs/")]) == 6
    with opened_objects(store) as directory:
        assert fsck(directory).clean and audit_run(directory).accepted
    store.delete(["logs/0000000004.log"])
    with opened_objects(store) as directory:
        assert [p.path for p in fsck(directory).problems] == ["logs/0000000004.log"]


@pytest.fixture(scope="session")
def logged_job(jobs: Path) -> Job:
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    return new_job(
        "logreg", jobs / "logged", pairs, steps=6, checkpoint_interval=2, contract="replay/1"
    )


def _other_log(path: Path) -> bytes:
    """As many bytes as the log at `path`, of another machine's rounding."""
    return bytes(b ^ 1 for b in path.read_bytes())


@pytest.mark.parametrize("parts", [publish.PART_BYTES, 10])
def test_the_log_of_a_trainer_that_was_killed_is_replaced(
    store: Recorded, logged_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """It has put the log of a step, and not the journal that names it."""
    monkeypatch.setattr(publish, "PART_BYTES", parts)
    train_job(logged_job, tmp_path / "other", Options())
    _train(logged_job, tmp_path / "a", stop_before=2)
    store.put("logs/0000000003.log", _other_log(tmp_path / "other/logs/0000000003.log"))
    assert _train(logged_job, tmp_path / "a").finished
    with opened_objects(store) as directory:
        assert fsck(directory).clean and audit_run(directory).accepted


@pytest.mark.parametrize("parts", [publish.PART_BYTES, 10])
def test_a_log_of_another_trainer_stays(
    store: Recorded, logged_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """Its journal may name it, and is put after it."""
    monkeypatch.setattr(publish, "PART_BYTES", parts)
    train_job(logged_job, tmp_path / "other", Options())
    theirs = _other_log(tmp_path / "other/logs/0000000003.log")
    _train(logged_job, tmp_path / "a", stop_before=2)
    with (
        pytest.raises(StoreConflictError, match=r"wrote .*logs/0000000003\.log"),
        published(URL, logged_job, Silent(), tmp_path / "a") as (directory, listener, _),
    ):
        store.put("logs/0000000003.log", theirs)
        train_job(logged_job, directory, Options(), listener)
    found = store.listing()["logs/0000000003.log"]
    assert bytes(store.read("logs/0000000003.log", 0, found.size, found)) == theirs


def test_a_large_log_whose_answer_was_lost_meets_itself(
    store: Recorded, logged_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "PART_BYTES", 10)
    real, lost = Recorded.put, []

    def lose(self: Recorded, name: str, data: Any, condition: str = "") -> str:
        tag = real(self, name, data, condition)
        if name == "logs/0000000001.log" and not lost:
            lost.append(name)
            raise StoreError("The store failed to answer.", "Check the network.")
        return tag

    monkeypatch.setattr(Recorded, "put", lose)
    train_job(logged_job, tmp_path / "a", Options())
    publisher = Publisher(store, {}, None, RunStore(tmp_path / "a"), logged_job, print)
    with pytest.raises(StoreError, match="failed to answer"):
        publisher._round(final=True)
    publisher._round(final=True)
    publisher.close()
    assert [name for name, _ in store.order].count("logs/0000000001.log") == 1
    with opened_objects(store) as directory:
        assert fsck(directory).clean


def test_files_of_another_job_without_a_run_are_replaced(
    store: Recorded, mlp_job: Job, tmp_path: Path
) -> None:
    """A trainer of another job was killed before it put the run's manifest."""
    name = "job/data/train.safetensors"
    data = bytearray((mlp_job.directory / "data/train.safetensors").read_bytes())
    data[-1] ^= 1
    store.put(name, bytes(data))
    assert _train(mlp_job, tmp_path / "a").finished
    with opened_objects(store) as directory:
        assert fsck(directory).clean


@pytest.mark.parametrize("there", ["memory", "directory"])
def test_two_trainers_of_two_jobs_at_an_empty_url(
    mlp_job: Job,
    logreg_job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: str,
) -> None:
    """Both find nothing there; the second one to write is refused, and has written nothing."""
    place = parse_address((tmp_path / "there").as_uri())
    found = Objects(ADDRESS, memory()) if there == "memory" else objects_at(place, made=True)
    monkeypatch.setattr(module, "objects_at", lambda address, made=False: found)
    found.put("job/job.json", (mlp_job.directory / "job.json").read_bytes())
    with pytest.raises(StoreConflictError, match="contains the files of another job"):
        _train(logreg_job, tmp_path / "b")  # it looks before it trains
    before = found.listing()

    def late(objects: Objects, store: RunStore, job: Job) -> tuple[dict[str, Found], None]:
        store.create(job)
        return {}, None  # it looked before the first one wrote

    with monkeypatch.context() as patched:
        patched.setattr(module, "join", late)
        with pytest.raises(StoreConflictError, match="contains the files of another job"):
            _train(logreg_job, tmp_path / "c")
        assert found.listing() == before
        assert _train(mlp_job, tmp_path / "d").finished
    with opened_objects(found) as directory:
        assert fsck(directory).clean


@pytest.mark.parametrize("name", ["notes.txt", "journal", "checkpoints/x"])
def test_a_prefix_with_other_objects_is_refused(
    store: Recorded, mlp_job: Job, tmp_path: Path, name: str
) -> None:
    store.put(name, b"1")
    with pytest.raises(UsageError, match="other objects"):
        _train(mlp_job, tmp_path / "work")


def test_a_run_of_another_job_is_refused(
    store: Recorded, mlp_job: Job, logreg_job: Job, tmp_path: Path
) -> None:
    _train(logreg_job, tmp_path / "a")
    with pytest.raises(UsageError, match="another job"):
        _train(mlp_job, tmp_path / "b")


def test_the_bytes_of_a_long_run_are_not_quadratic(mlp_job: Job, tmp_path: Path) -> None:
    """The puts of a journal that grows a checkpoint at a time: at most 17 times its last size, and
    a constant number of bytes a second."""
    now = [0.0]
    publisher = Publisher(
        Objects(ADDRESS, memory()), {}, None, RunStore(tmp_path), mlp_job, print, lambda: now[0]
    )
    total, puts, checkpoint = 0, 0, 1000
    for length in range(checkpoint, 20_000_000, checkpoint):
        publisher._tail.length = length
        now[0] += 0.5
        if publisher._due(final=False):
            total, puts = total + length, puts + 1
            publisher._put_length, publisher._put_at = length, now[0]
    assert total <= 17 * length + (64 << 10) * now[0] + length
    assert puts < 500  # of 20,000 checkpoints


def test_a_command_publishes_a_run_in_a_directory(
    mlp_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, job = (tmp_path / "out").as_uri(), mlp_job.directory.as_uri()
    assert command(["train", job, "--out", url, "--quiet", "--work", str(tmp_path / "w")]) == 0
    assert f"at {url} (" in capsys.readouterr().err
    assert command(["fsck", str(tmp_path / "out")]) == 0
    assert command(["audit", url, "--job", job, "--quiet"]) == 0
    assert command(["train", job, "--out", url, "--quiet", "--work", str(tmp_path / "v")]) == 0
    assert command(["train", job, "--out", url, "--overwrite"]) == 3
    assert command(["train", job, "--out", str(tmp_path / "d"), "--work", "x"]) == 3
    key = str(tmp_path / "w" / "signer.pem")
    sides = ["dispute", url, str(tmp_path / "w"), "--job", job, "--out", str(tmp_path / "e")]
    assert command([*sides, "--key-a", key]) == 0  # the same run twice
    assert command(["serve", url, "--listen", "127.0.0.1:0", "--referee", key]) == 3
    assert "--sessions" in capsys.readouterr().err


def test_a_process_that_we_start_reads_the_same_run(whole_run: RunSummary, tmp_path: Path) -> None:
    import subprocess
    import sys

    from tallystick.disk.objects.opening import opened

    code = (
        "import sys; from pathlib import Path; from tallystick.run.store.fsck import fsck\n"
        "sys.exit(not fsck(Path(sys.argv[1])).clean)"
    )
    with opened(Path(whole_run.directory).as_uri()) as directory:
        assert subprocess.run([sys.executable, "-c", code, str(directory)]).returncode == 0
        assert audit_run(directory).accepted
