"""A crash at every call and every byte of a referee's log: nothing that counted is lost (P9).

PROTOCOL 12.3: an entry counts when `append` has returned. PROTOCOL 12.6.1: it has its public name
only when no crash takes it away any more.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from faults import Faults, KilledError
from power import Disk, World, build, on_disk

from tallystick.disk import entry_log, files
from tallystick.disk.entry_log import EntryLog, EntryLogWriter
from tallystick.errors import StorageError

COUNT = 5


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entries in a directory: the fifth has the third directory."""
    monkeypatch.setattr(entry_log, "PER_DIRECTORY", 2)


def entry(number: int) -> bytes:
    data = bytes([number]) * (3 + number)
    return len(data).to_bytes(8, "little") + data + bytes([255 - number]) * 64


class FaultsAtAByte(Faults):
    """As Faults; a write that fails has written `part` of its `bytes` before."""

    part = bytes = 0

    def write(self, descriptor: int, data: memoryview) -> int:  # type: ignore[override]
        if self._fault():
            self.bytes = self.bytes or len(data)
            if self.part:
                os.write(descriptor, data[: self.part])
            self._raise()
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:  # type: ignore[override]
        if self._fault():
            self._raise()


def _append(directory: Path, installed: files.OsCalls, done: list[bytes]) -> None:
    """Append the entries that are not there yet, as a referee that starts again does."""
    before = files.OS
    files.OS = installed  # type: ignore[misc]
    try:
        with EntryLogWriter(directory) as log:
            assert list(log)[: len(done)] == done  # what counted is there
            done[:] = list(log)
            for number in range(len(log), COUNT):
                log.append(entry(number))
                done.append(entry(number))
    finally:
        files.OS = before  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["kill", "full"])
def test_every_call_and_every_byte(kind: str, tmp_path: Path) -> None:
    counted = FaultsAtAByte(0, kind)
    _append(tmp_path / "counted", counted, [])
    assert counted.calls > 5 * COUNT
    expected = [entry(number) for number in range(COUNT)]
    for at in range(1, counted.calls + 1):
        out, part, size = tmp_path / "session", 0, 0
        while part <= size:  # one time where the call writes nothing
            installed, done = FaultsAtAByte(at, kind), []
            installed.part = part
            with suppress(KilledError, StorageError):
                _append(out, installed, done)
            assert installed.tripped
            with suppress(Exception):  # anyone who looks at what is public now
                assert list(EntryLog(out)) == expected[: len(EntryLog(out))]
            _append(out, FaultsAtAByte(0, kind), done)
            assert done == expected == list(EntryLog(out))
            assert list(EntryLog(out).strangers()) == [], (at, part)
            assert sorted(os.listdir(out)) == ["lock", "log"]
            shutil.rmtree(out)
            part, size = part + 1, installed.bytes


def _after(world: World, directory: Path) -> list[bytes]:
    """The entries that a referee finds in a world; it can go on from there."""
    build(world, directory)
    files.OS, installed = FaultsAtAByte(0, "kill"), files.OS  # type: ignore[misc]
    with EntryLogWriter(directory / "session") as log:
        found = list(log)
        log.append(entry(len(found)))
    files.OS = installed  # type: ignore[misc]
    shutil.rmtree(directory)
    assert found == [entry(number) for number in range(len(found))]
    return found


def test_a_loss_of_power_at_every_call(tmp_path: Path) -> None:
    """What `append` has returned, and what has ever been public, is there afterwards."""
    root = tmp_path / "disk"
    root.mkdir()
    done: list[bytes] = []
    public: set[bytes] = set()
    worlds = 0

    def crash(disk: Disk) -> None:
        nonlocal worlds
        public.update(path.read_bytes() for path in root.glob("session/log/*/*.bin"))
        for world in disk.worlds():
            worlds += 1
            found = _after(world, tmp_path / "after")
            assert found[: len(done)] == done and public <= set(found)

    with on_disk(root, crash), EntryLogWriter(root / "session") as log:
        for number in range(COUNT):
            log.append(entry(number))
            done.append(entry(number))
    assert worlds > 100


def test_a_loss_of_power_after_a_restart(tmp_path: Path) -> None:
    """A referee that was killed acts upon the entries that it finds, so these are durable."""
    worlds = calls = at = 0
    while at <= calls:
        at += 1
        root = tmp_path / f"disk-{at}"
        root.mkdir()

        def kill(disk: Disk, at: int = at) -> None:
            if disk.calls == at:
                raise KilledError

        with on_disk(root, kill) as disk:
            with suppress(KilledError), EntryLogWriter(root / "session") as log:
                for number in range(3):
                    log.append(entry(number))
            calls, disk.crash = max(calls, disk.calls), lambda _: None
            with EntryLogWriter(root / "session") as log:
                found = list(log)
                for world in disk.worlds():
                    worlds += 1
                    assert _after(world, tmp_path / "after") == found, at
        shutil.rmtree(root)
    assert at > 20 and worlds > at
