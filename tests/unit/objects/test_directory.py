"""A directory as an object store: what a path's door refuses, `file:///` refuses in its words
(docs/adr/0023-object-stores.md). The fuzz is tests/adversary/fuzz_doors.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.cli.main import run as command
from tallystick.disk.objects.address import parse_address
from tallystick.disk.objects.directory import Directory
from tallystick.disk.objects.store import NEW, Found
from tallystick.errors import CorruptFileError, StoreChangedError, StoreConflictError, StoreError
from tallystick.run.show.summary import RunSummary


@pytest.fixture
def objects(tmp_path: Path) -> Directory:
    return Directory(parse_address((tmp_path / "store").as_uri()), made=True)


def _fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "file")


Plant = Callable[[Path, Path], None]


@pytest.mark.parametrize(("plant", "kind"), [(_fifo, "a FIFO"), (_link, "a link")])
def test_what_is_no_object_is_named(
    plant: Plant, kind: str, objects: Directory, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"outside")
    (tmp_path / "store" / "x").mkdir()
    plant(tmp_path / "store" / "x" / "bad", tmp_path)
    objects.put("x/good", b"1")
    found = objects.listing()
    assert set(found) == {"x/bad", "x/good"}
    assert found["x/good"].is_object and not found["x/bad"].is_object
    for touch in (
        lambda: objects.head("x/bad"),
        lambda: objects.read("x/bad", 0, 7, Found(7, "")),
        lambda: objects.put("x/bad", b"2"),
        lambda: objects.put("x/bad", b"2", NEW),
    ):
        with pytest.raises(CorruptFileError, match=kind):
            touch()
    assert (tmp_path / "file").read_bytes() == b"outside"
    objects.delete(["x/bad"])  # the name goes, not what it leads to
    assert set(objects.listing()) == {"x/good"} and (tmp_path / "file").exists()


def test_no_directory_leads_out(objects: Directory, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"outside")
    (tmp_path / "store" / "x").symlink_to(tmp_path / "outside")
    assert set(objects.listing()) == {"x"}
    for touch in (
        lambda: objects.head("x/file"),
        lambda: objects.read("x/file", 0, 7, Found(7, "")),
        lambda: objects.put("x/new", b"2"),
        lambda: objects.delete(["x/file"]),
    ):
        with pytest.raises(CorruptFileError, match="a link, not a directory"):
            touch()
    assert os.listdir(tmp_path / "outside") == ["file"]


def test_conditions_of_a_put(objects: Directory, tmp_path: Path) -> None:
    first = objects.put("a", b"1", NEW)
    with pytest.raises(StoreConflictError):
        objects.put("a", b"2", NEW)
    second = objects.put("a", b"22", first)
    with pytest.raises(StoreConflictError):
        objects.put("a", b"3", first)
    assert objects.head("a") == objects.listing()["a"]
    assert objects.listing()["a"].tag == second
    with pytest.raises(StoreChangedError):
        objects.read("a", 0, 2, Found(2, first))
    assert bytes(objects.read("a", 0, 2, Found(2, second))) == b"22"
    assert os.listdir(tmp_path / "store") == ["a"]  # nothing half put is left
    with pytest.raises(FileNotFoundError):
        objects.put("b", tmp_path / "gone")


def test_a_put_that_was_killed_is_no_object(objects: Directory, tmp_path: Path) -> None:
    (tmp_path / "store" / ("a.0123456789abcdef.part")).write_bytes(b"half")
    assert objects.listing() == {}


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("none", "fifo"):
        with pytest.raises(StoreError, match="no such directory"):
            Directory(parse_address((tmp_path / name).as_uri()))


@pytest.mark.parametrize(("plant", "kind"), [(_fifo, "a FIFO"), (_link, "a link")])
def test_commands_say_what_they_say_of_a_path(
    plant: Plant,
    kind: str,
    whole_run: RunSummary,
    copied: Callable[[Path], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = copied(whole_run.directory)
    (run / "journal").rename(tmp_path / "file")
    plant(run / "journal", tmp_path)
    for verb, code in (("inspect", 2), ("audit", 2), ("fsck", 1)):
        said = []
        for place in (str(run), run.as_uri()):
            assert command([verb, place]) == code
            out, err = capsys.readouterr()
            said.append(out + err)
            assert f"journal {place}/journal is {kind}, not a regular file" in out + err
