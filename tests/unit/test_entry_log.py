"""The log of a referee on disk: durable numbered entries, damage, strangers, one writer (12.6)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.disk import entry_log, files
from tallystick.disk.entry_log import EntryLog, EntryLogWriter, entry_name
from tallystick.errors import CorruptFileError, StorageError, TallystickError, UsageError
from tallystick.limits import LIMITS


def entry(number: int, size: int = 40) -> bytes:
    """Bytes in the form of PROTOCOL 13.1: a blob, then 64 bytes."""
    data = (number.to_bytes(4, "big") * (size // 4 + 1))[:size]
    return size.to_bytes(8, "little") + data + bytes(64)


def written(directory: Path, count: int) -> list[bytes]:
    made = [entry(number) for number in range(count)]
    with EntryLogWriter(directory) as log:
        for one in made:
            log.append(one)
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush waits for the disk here; tests/crash/test_crash_entry_log.py counts them."""
    monkeypatch.setattr(files.OsCalls, "fsync", staticmethod(lambda descriptor: None))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three entries in a directory, so that a few entries need more than one."""
    monkeypatch.setattr(entry_log, "PER_DIRECTORY", 3)


def test_it_gives_the_entries_back(tmp_path: Path) -> None:
    made = written(tmp_path / "session", 5)
    for log in (EntryLog(tmp_path / "session"), EntryLogWriter(tmp_path / "session")):
        assert len(log) == 5 and list(log) == made and log.read(3) == made[3]
        assert log.torn is None and list(log.strangers()) == []
        with pytest.raises(UsageError, match="no entry 5"):
            log.read(5)


def test_the_names_are_those_of_the_specification() -> None:
    # PROTOCOL 12.6
    assert entry_name(0) == "log/0000/0000000.bin"
    assert entry_name(999) == "log/0000/0000999.bin"
    assert entry_name(1000) == "log/0001/0001000.bin"
    assert entry_name(LIMITS.log_entries - 1) == "log/1048/1048575.bin"


def test_a_file_is_the_entry_and_nothing_else(tmp_path: Path) -> None:
    made = written(tmp_path, 2)
    for index, one in enumerate(made):
        assert (tmp_path / entry_name(index)).read_bytes() == one
    assert sorted(os.listdir(tmp_path)) == ["lock", "log"]


def test_a_directory_has_a_bounded_number_of_entries(tmp_path: Path) -> None:
    number = 1003
    made = written(tmp_path, number)
    assert [len(os.listdir(tmp_path / "log" / room)) for room in ("0000", "0001")] == [1000, 3]
    assert list(EntryLog(tmp_path)) == made
    with EntryLogWriter(tmp_path) as log:
        log.append(entry(number))
    assert list(EntryLog(tmp_path)) == [*made, entry(number)]


def test_it_goes_on_after_the_entries_there_are(tmp_path: Path) -> None:
    made = written(tmp_path, 3)
    with EntryLogWriter(tmp_path) as log:
        assert list(log) == made
        log.append(entry(3))
        assert list(log) == [*made, entry(3)]


@pytest.mark.parametrize("bad", [b"", bytes(7), entry(1)[:-1], entry(1) + b"\0", bytes(8)])
def test_only_signed_entries_are_taken(bad: bytes, tmp_path: Path) -> None:
    with EntryLogWriter(tmp_path) as log:
        with pytest.raises(UsageError, match="not a signed entry"):
            log.append(bad)
        log.append(entry(0))  # our own mistake costs nothing
    assert list(EntryLog(tmp_path)) == [entry(0)]


def test_an_entry_over_the_limit(tmp_path: Path) -> None:
    largest = entry(0, LIMITS.entry_bytes - 72)
    with EntryLogWriter(tmp_path) as log:
        with pytest.raises(CorruptFileError, match="more than the limit"):
            log.append(entry(0, LIMITS.entry_bytes - 71))
        log.append(largest)
    assert list(EntryLog(tmp_path)) == [largest]


def test_a_full_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log, "LIMITS", replace(LIMITS, log_entries=2))
    written(tmp_path, 2)
    with EntryLogWriter(tmp_path) as log, pytest.raises(StorageError, match="is full") as caught:
        log.append(entry(2))
    assert caught.value.next_action
    path = tmp_path / entry_name(2)
    path.write_bytes(entry(2))
    with pytest.raises(CorruptFileError, match="more than 2 entries"):
        EntryLog(tmp_path)


def test_two_referees_never_write_one_log(tmp_path: Path) -> None:
    with EntryLogWriter(tmp_path) as log:
        with pytest.raises(StorageError, match="Another referee is writing"):
            EntryLogWriter(tmp_path)
        log.append(entry(0))  # the first one is not disturbed
        assert list(EntryLog(tmp_path)) == [entry(0)]  # anyone may read meanwhile
    with EntryLogWriter(tmp_path) as log:
        log.append(entry(1))
    with pytest.raises(StorageError, match="accepts no more entries"):
        log.append(entry(2))
    assert len(EntryLog(tmp_path)) == 2


def test_a_reader_counts_what_a_writer_adds_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two entries arrive while a directory is listed, and the list has the later one only."""
    made = written(tmp_path, 3)
    honest = entry_log.names

    def listed(directory: Path, inside: Path | None = None) -> list[str]:
        return [name for name in honest(directory, inside) if name != "0000001.bin"]

    monkeypatch.setattr(entry_log, "names", listed)
    assert list(EntryLog(tmp_path)) == made


def test_no_log_there(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="contains no referee's log"):
            EntryLog(directory)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TallystickError):
        EntryLogWriter(tmp_path / "file")


# --- an entry that is cut off at the end was not written (PROTOCOL 12.3.1) ------------------------
def test_cut_off_at_the_end_at_every_byte(tmp_path: Path) -> None:
    made = written(tmp_path, 3)
    last = tmp_path / entry_name(2)
    for size in range(len(made[2])):
        last.write_bytes(made[2][:size])
        log = EntryLog(tmp_path)
        assert list(log) == made[:2] and log.torn == last
        with EntryLogWriter(tmp_path) as writer:
            assert list(writer) == made[:2] and writer.torn is None
            assert not last.exists()  # no server publishes half of it any more
            writer.append(made[2])
        assert list(EntryLog(tmp_path)) == made


def test_cut_off_as_the_first_of_a_directory(tmp_path: Path, few: None) -> None:
    made = written(tmp_path, 4)
    path = EntryLog(tmp_path).path(3)
    path.write_bytes(made[3][:9])
    assert list(EntryLog(tmp_path)) == made[:3]
    with EntryLogWriter(tmp_path) as writer:
        writer.append(made[3])
        writer.append(entry(4))
    assert list(EntryLog(tmp_path)) == [*made, entry(4)]


# --- any other damage is an error that says what to do --------------------------------------------
def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def endless(path: Path) -> None:
    path.write_bytes(b"\xff" * 80)


def huge(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    target = path.parents[2] / "target"
    path.rename(target)
    path.symlink_to(target)


DAMAGES = [longer, cut, empty, endless, huge, directory, fifo, link]


def _read_all(directory: Path) -> list[bytes]:
    return list(EntryLog(directory))


def _go_on(directory: Path) -> list[bytes]:
    with EntryLogWriter(directory) as log:
        return list(log)


@pytest.mark.parametrize("use", [_read_all, _go_on])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_damage(
    index: int, damage: Callable[[Path], None], use: Callable[[Path], list[bytes]], tmp_path: Path
) -> None:
    written(tmp_path, 3)
    damage(tmp_path / entry_name(index))
    if index == 2 and damage in (cut, empty):
        assert len(use(tmp_path)) == 2  # 12.3.1, above
        return
    with pytest.raises(CorruptFileError) as caught:
        use(tmp_path)
    assert caught.value.next_action and caught.value.exit_code == 2


@pytest.mark.parametrize("use", [_read_all, _go_on])
def test_a_hole(use: Callable[[Path], list[bytes]], tmp_path: Path, few: None) -> None:
    written(tmp_path, 7)
    hole = EntryLog(tmp_path).path(4)
    hole.unlink()
    with pytest.raises(CorruptFileError, match=r"Entry 4 of the log .* is missing") as caught:
        use(tmp_path)
    assert "intact copy" in caught.value.next_action


def test_a_directory_of_entries_that_is_a_link(tmp_path: Path) -> None:
    made = written(tmp_path / "a", 1)
    room = tmp_path / "a" / "log" / "0000"
    room.rename(tmp_path / "room")
    room.symlink_to(tmp_path / "room")
    for use in (_read_all, _go_on):
        with pytest.raises(CorruptFileError, match="is a link"):
            use(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")  # a directory that a person names may be one
    room.unlink()
    (tmp_path / "room").rename(room)
    assert list(EntryLog(tmp_path / "b")) == made


def test_strangers_decide_nothing_and_are_named(tmp_path: Path) -> None:
    made = written(tmp_path, 2)
    log = tmp_path / "log"
    strangers = [log / "0000" / "0000002.bin.part", log / "0000" / "0001000.bin", log / "notes",
                 log / "12345", log / "0000" / "00000003.bin"]  # fmt: skip
    for path in strangers:
        path.write_bytes(b"something")
    assert list(EntryLog(tmp_path)) == made == _go_on(tmp_path)
    assert set(EntryLog(tmp_path).strangers()) == set(strangers)


def test_a_failed_write_closes_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed flush it is unknown what the disk has: the next process finds out."""
    made = written(tmp_path, 1)
    with EntryLogWriter(tmp_path) as log:
        blocked = tmp_path / "next.part"
        blocked.mkdir()
        with pytest.raises(StorageError):
            log.append(entry(1))
        blocked.rmdir()
        with pytest.raises(StorageError, match="a write failed") as caught:
            log.append(entry(1))
        assert "Open it again" in caught.value.next_action
    with EntryLogWriter(tmp_path) as log:
        log.append(entry(1))
    assert list(EntryLog(tmp_path)) == [*made, entry(1)]
