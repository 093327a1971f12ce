"""A run on an object store, read through its mirror (docs/adr/0023-object-stores.md)."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'tallystick[objects]'")

from unit.objects.stores import ADDRESS, Lying, filled, memory

from tallystick.cli.main import run as command
from tallystick.disk import mounts
from tallystick.disk.objects.mirror import Mirror
from tallystick.disk.objects.opening import opened, opened_objects
from tallystick.disk.objects.store import PART_BYTES, Found, Objects
from tallystick.disk.regular import names as listed
from tallystick.disk.regular import open_file, present, read_file, size_of
from tallystick.disk.tensorfile import read_tensors, write_tensors
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    CounterpartyError,
    StorageError,
    StoreError,
    UsageError,
)
from tallystick.run.execute.auditor import audit_run
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.fsck import fsck


@pytest.fixture
def run(whole_run: RunSummary, copied: Callable[[Path], Path]) -> Path:
    """A finished run of 12 steps; states after steps 5, 10 and 12, traces of 6 and 7."""
    found = copied(whole_run.directory)
    (found / "signer.pem").unlink()
    return found


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_a_run_on_a_store_is_checked_and_repeated(run: Path) -> None:
    objects = filled(run)
    with opened_objects(objects) as directory:
        assert fsck(directory).clean
        assert audit_run(directory).accepted
        assert mounts.url_of(directory) == "s3://bucket/run"
    assert not directory.exists()
    # One listing, and each object once: but for `lock` and `metrics.jsonl`, which nobody reads.
    assert objects.counts.requests == {"list": 1, "get": len(_files(run)) - 2}


def test_only_what_is_needed_is_fetched(run: Path) -> None:
    objects = filled(run)
    with opened_objects(objects) as directory:
        report = audit_run(directory, steps=(10, 12))
        states = {path.name for path in (directory / "checkpoints").iterdir()}
    assert report.accepted and report.first_step == 10
    # The start, and the stored state that the segment's own result is compared with.
    assert states == {"step-00000010.safetensors", "step-00000012.safetensors"}


def test_a_listing_says_sizes_without_a_fetch(run: Path) -> None:
    objects = filled(run)
    with opened_objects(objects) as directory:
        assert set(listed(directory)) == set(os.listdir(run))
        path = "checkpoints/step-00000012.safetensors"
        assert present(directory / path) and present(directory / "checkpoints")
        assert size_of(directory / path, "state", directory) == (run / path).stat().st_size
        assert not present(directory / "commitment")
    assert "get" not in objects.counts.requests


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("journal", "alter"),
        ("run.json", "alter"),
        ("job/job.json", "alter"),
        ("job/program.txt", "alter"),
        ("job/state0.safetensors", "alter"),
        ("job/data/train.safetensors", "alter"),
        ("checkpoints/step-00000012.safetensors", "alter"),
        ("checkpoints/step-00000012.safetensors", "cut"),
        ("checkpoints/step-00000012.safetensors", "empty"),
        ("checkpoints/step-00000012.safetensors", "remove"),
        ("commitment.json", "alter"),
        ("commitment.json", "remove"),
        ("journal", "remove"),
        ("nodes/step-00000006.bin", "cut"),
        ("job/data/train.safetensors", "remove"),
    ],
)
def test_fsck_names_the_object_at_fault(run: Path, name: str, action: str) -> None:
    objects = filled(run)
    data = bytearray((run / name).read_bytes())
    if action == "remove":
        objects.delete([name])
    else:
        data[-3] ^= 1
        objects.put(name, bytes({"alter": data, "cut": data[:-7], "empty": b""}[action]))
    with opened_objects(objects) as directory:
        report = fsck(directory)
    named = {p.path for p in report.problems}
    assert not report.clean
    # A missing data file is named by the check of the directory that needs it.
    assert any(name == p or name in text for p in named for text in [_messages(report)]), named


def _messages(report: object) -> str:
    return " ".join(f"{p.path} {p.message}" for p in report.problems)  # type: ignore[attr-defined]


def test_swapped_states_are_found(run: Path) -> None:
    objects = filled(run)
    a, b = (f"checkpoints/step-{s:08d}.safetensors" for s in (10, 12))
    objects.put(a, (run / b).read_bytes())
    objects.put(b, (run / a).read_bytes())
    with opened_objects(objects) as directory:
        assert {a, b} <= {p.path for p in fsck(directory).problems}
        report = audit_run(directory)
    assert not report.accepted and "s3://" in mounts.named(report.difference.sentence)


def test_what_does_not_belong_is_named(run: Path) -> None:
    objects = filled(run)
    for name in ("notes.txt", "checkpoints/step-00000003.safetensors", "checkpoints/x/y"):
        objects.put(name, b"?")
    with opened_objects(objects) as directory:
        found = {p.path for p in fsck(directory).problems}
    assert found == {"notes.txt", "checkpoints/step-00000003.safetensors", "checkpoints/x"}


def test_errors_name_the_object(run: Path) -> None:
    objects = filled(run)
    objects.put("journal", b"nonsense")
    with (
        pytest.raises(CounterpartyError, match="s3://bucket/run/journal"),
        opened_objects(objects) as directory,
    ):
        audit_run(directory)


# -- stores that lie or fail -----------------------------------------------------------------------
def test_an_invented_object_is_the_stores_fault(run: Path) -> None:
    def invent(found: dict[str, Found]) -> None:
        found["checkpoints/step-00000005.safetensors"] = Found(10_000, "")

    objects = filled(run)
    objects.delete(["checkpoints/step-00000005.safetensors"])
    with (
        pytest.raises(
            StoreError, match=r"lists .*step-00000005\.safetensors, but does not give it"
        ),
        opened_objects(Lying(objects, invent)) as directory,
    ):
        fsck(directory)


@pytest.mark.parametrize("size", [1, 1 << 50])
def test_a_false_size_is_the_stores_fault(run: Path, size: int) -> None:
    def lie(found: dict[str, Found]) -> None:
        found["journal"] = Found(size, found["journal"].tag)

    with (
        opened_objects(Lying(filled(run), lie)) as directory,
        pytest.raises((StoreError, CorruptFileError), match="journal"),
    ):
        audit_run(directory)


def test_an_object_of_a_run_under_way_comes_as_it_is_now(run: Path) -> None:
    objects = filled(run)
    objects.put("journal", (run / "journal").read_bytes()[:-99])
    with opened_objects(objects) as directory:
        objects.put("journal", (run / "journal").read_bytes())
        assert audit_run(directory).accepted


def test_an_object_that_changes_while_it_is_read_is_refused(run: Path) -> None:
    class Busy(Objects):
        def read(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
            if name == "journal":
                self.put(name, (run / "journal").read_bytes())  # the same bytes, a new version
            return super().read(name, start, stop, expected)

    with (
        opened_objects(Busy(ADDRESS, filled(run)._store)) as directory,
        pytest.raises(StoreError, match="changed while it was read"),
    ):
        audit_run(directory)


@pytest.mark.parametrize("name", ["job/data/train.safetensors", "b"])
def test_what_is_fetched_again_has_the_bytes_that_were_checked(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An auditor hashes the records, and opens their file again to execute with them."""
    large = np.random.default_rng(1).bytes(2 * PART_BYTES)

    class Altering(Objects):
        reads = 0

        def read(self, asked: str, start: int, stop: int, expected: Found) -> memoryview:
            data = bytearray(super().read(asked, start, stop, expected))
            Altering.reads += asked == name and start == 0
            if asked == name and Altering.reads > 1:
                data[-1] ^= 1  # under the same tag
            return memoryview(bytes(data))

    monkeypatch.setenv("TALLYSTICK_CACHE_BYTES", "1000")
    objects = filled(run)
    objects.put("b", large)
    with (
        opened_objects(Altering(ADDRESS, objects._store)) as directory,
        pytest.raises(StoreError, match=f"{name} was read twice, and the bytes differed"),
    ):
        if name != "b":
            audit_run(directory)
        for other in (name, "journal", name):
            read_file(directory / other, 1 << 30, "file", directory)


def test_processes_that_share_a_mirror_have_the_same_bytes(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = filled(run)
    monkeypatch.setenv("TALLYSTICK_CACHE_BYTES", "1000")
    with opened_objects(objects) as directory:
        data = read_file(directory / "journal", 1 << 20, "file", directory)
        read_file(directory / "run.json", 1 << 20, "file", directory)  # the journal goes
        objects.put("journal", data[:-1] + b"?")
        other = Mirror(Objects(ADDRESS, objects._store), directory, directory.parent, 1000)
        with pytest.raises(StoreError, match="read twice"), other.held("journal", "file", None):
            pass
        other.close()


def test_a_trace_that_a_store_does_not_give_is_no_difference(run: Path) -> None:
    class Away(Objects):
        def read(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
            if name.startswith("nodes/"):
                raise StoreError("The store failed to read it.", "Check the network.")
            return super().read(name, start, stop, expected)

    with (
        opened_objects(Away(ADDRESS, filled(run)._store)) as directory,
        pytest.raises(StoreError, match="failed to read"),
    ):
        audit_run(directory)


def test_a_hidden_object_is_missing(run: Path) -> None:
    objects = Lying(filled(run), lambda found: found.pop("commitment.json") and None)
    with opened_objects(objects) as directory:
        assert [p.path for p in fsck(directory).problems] == ["commitment.json"]


@pytest.mark.parametrize("name", ["../x", "a//b", "/etc/passwd", "checkpoints/../../y", ".", "a\0"])
def test_a_name_that_is_no_path_writes_nothing(run: Path, tmp_path: Path, name: str) -> None:
    objects = Lying(filled(run), lambda found: found.update({name: Found(1, "")}))
    with opened_objects(objects) as directory:
        odd = [p.path for p in fsck(directory).problems]
        assert odd == [name.replace("/", "%2F").replace("\0", "%00")] or name == "."
        assert not (directory.parent / "x").exists()


def test_a_file_and_a_directory_of_one_name(run: Path) -> None:
    objects = filled(run)
    objects.put("journal/x", b"1")
    with opened_objects(objects) as directory:
        assert [p.path for p in fsck(directory).problems] == ["journal%2Fx"]


def test_a_refused_store_is_no_problem_of_the_run(run: Path) -> None:
    class Refusing(Objects):
        def read(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
            raise StoreError("The store does not let us read it.", "Check the credentials.")

    objects = filled(run)
    with (
        opened_objects(Refusing(ADDRESS, objects._store)) as directory,
        pytest.raises(StoreError),
    ):
        fsck(directory)


# -- the files of a mirror -------------------------------------------------------------------------
def _big(tmp_path: Path, count: int = 3) -> tuple[Objects, list[bytes]]:
    objects = Objects(ADDRESS, memory())
    data = [np.random.default_rng(n).bytes(2 * PART_BYTES + 17 * n) for n in range(count)]
    for n, content in enumerate(data):
        objects.put(f"b/{n}", content)
    return objects, data


def test_large_objects_come_in_parts(tmp_path: Path) -> None:
    objects, data = _big(tmp_path, 2)
    with opened_objects(objects) as directory:
        for n, content in enumerate(data):
            assert read_file(directory / "b" / str(n), 1 << 30, "file", directory) == content
    assert objects.counts.requests["get"] == 2 + 3


def test_the_mirror_keeps_to_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_CACHE_BYTES", str(3 * PART_BYTES))
    objects, data = _big(tmp_path)
    with opened_objects(objects) as directory:
        first, _ = open_file(directory / "b/0", "file", directory)
        with first:
            for n in (1, 2):
                read_file(directory / "b" / str(n), 1 << 30, "file", directory)
                assert [p.name for p in (directory / "b").iterdir()] == [str(n)]
            assert first.read() == data[0]  # one that is open stays readable
        assert read_file(directory / "b/0", 1 << 30, "file", directory) == data[0]
        assert set(listed(directory / "b")) == {"0", "1", "2"}


def test_a_limit_holds_before_a_byte_is_fetched(tmp_path: Path) -> None:
    objects, _ = _big(tmp_path, 1)
    with (
        opened_objects(objects) as directory,
        pytest.raises(CorruptFileError, match=r"s3://bucket/run/b/0 has .* limit of 1000"),
    ):
        read_file(directory / "b/0", 1000, "file", directory)
    assert "get" not in objects.counts.requests


def test_a_header_is_checked_before_the_tensors_are_fetched(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_tensors(path, {"w": np.zeros(3 * PART_BYTES // 4, np.float32)})
    objects = Objects(ADDRESS, memory())
    objects.put("state", path.read_bytes())

    def refuse(*_: object) -> None:
        raise CorruptFileError("It is of another step.", "Restore it.")

    with (
        opened_objects(objects) as directory,
        pytest.raises(CorruptFileError, match="another step"),
    ):
        read_tensors(directory / "state", "state", check=refuse, inside=directory)
        assert objects.counts.bytes_read <= 64 << 10
        tensors, _ = read_tensors(directory / "state", "state", inside=directory)
        assert tensors["w"].nbytes == 3 * PART_BYTES


def test_an_object_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    objects = Objects(ADDRESS, memory())
    objects.put("f", b"1")
    large = Lying(objects, lambda found: found.update(f=Found(1 << 60, "")))
    with opened_objects(large) as directory, pytest.raises(StorageError, match="room for"):
        open_file(directory / "f", "file")


def test_many_readers_fetch_an_object_once(tmp_path: Path) -> None:
    objects, data = _big(tmp_path, 1)
    wrong: list[object] = []

    def read() -> None:
        if read_file(directory / "b/0", 1 << 30, "file", directory) != data[0]:
            wrong.append(1)

    with opened_objects(objects) as directory:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong and objects.counts.requests["get"] == 2


def test_numbered_files_come_ahead(tmp_path: Path) -> None:
    objects = Objects(ADDRESS, memory())
    for n in range(30):
        objects.put(f"logs/{n:010d}.log", b"%d" % n)
    with opened_objects(objects) as directory:
        for n in range(3):
            read_file(directory / f"logs/{n:010d}.log", 100, "log", directory)
        deadline = threading.Event()
        for _ in range(100):
            if objects.counts.requests["get"] >= 11:
                break
            deadline.wait(0.05)
        assert objects.counts.requests["get"] == 11  # 0 to 2, and the eight after
        assert read_file(directory / "logs/0000000003.log", 100, "log", directory) == b"3"
        assert objects.counts.requests["get"] <= 12


def test_files_of_our_own_are_ordinary(run: Path) -> None:
    with opened_objects(filled(run)) as directory:
        (directory / "scratch-1").mkdir()
        (directory / "scratch-1" / "s").write_bytes(b"own")
        assert read_file(directory / "scratch-1/s", 10, "file", directory) == b"own"
        assert "scratch-1" in listed(directory)


def test_mirrors_of_killed_commands_go(run: Path, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "mirrors" / "mirror-left"
    left.mkdir(parents=True)
    (left / "lock").write_bytes(b"")
    with opened_objects(filled(run)) as directory:
        assert not left.exists()
        with opened_objects(filled(run)):  # one in use stays
            assert directory.exists()


# -- addresses and the command line ----------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
        "s3://key:secret@bucket/a",
        "s3:///a",
        "gs://b/a?x=1",
        "az://b/a%2Fb",
        "file://host/a",
        "file:///",
        "http://host/a",
        "s4://b/a",
    ],
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError), opened(text):
        pass


def test_an_address_made_a_path_is_refused() -> None:
    with pytest.raises(UsageError, match="as a string"), opened(Path("s3://bucket/a")):
        pass


def test_a_path_is_itself(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as directory:
        assert directory == tmp_path


def test_commands_take_the_url_of_a_directory(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = run.as_uri()
    assert command(["fsck", url]) == 0
    assert command(["audit", url, "--quiet", "--json"]) == 0
    assert f'"run": "{url}"' in capsys.readouterr().out
    model = tmp_path / "model.safetensors"
    assert command(["export", url, "-o", str(model)]) == 0
    assert command(["verify-model", str(model), url]) == 0
    assert command(["inspect", url]) == 0
    assert command(["inspect", f"{url}/job"]) == 0
    assert command(["job", "verify", f"{url}/job"]) in (0, 2)
    (run / "journal").unlink()
    shutil.copy(run / "run.json", run / "extra")
    capsys.readouterr()
    assert command(["fsck", url]) == 1
    out = capsys.readouterr().out
    assert f"{url}/journal: " in out and f"{url}/extra: It does not belong here." in out
    assert not list((tmp_path / "cache" / "mirrors").iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["keys", "new", "s3://b/k"],
        ["export", "RUN", "-o", "s3://b/model"],
        ["demo", "--out", "gs://b/x"],
        ["job", "new", "mlp", "--out", "s3://b/job"],
        ["audit", "RUN", "--trust", "x", "--job", "s4://b/j"],
        ["attack", "wrong-learning-rate", "JOB", "--out", "az://b/x"],
    ],
)
def test_what_takes_no_url_refuses_it_by_name(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(words) == 3
    assert "://b/" in capsys.readouterr().err


def test_without_the_package_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "obstore", None)
    with (
        pytest.raises(CannotCheckError, match=r"pip install 'tallystick\[objects\]'"),
        opened("s3://bucket/a"),
    ):
        pass
