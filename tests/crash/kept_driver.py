"""Faults of the disk under kept answers, run by test_crash_kept_answers.py.

    LD_PRELOAD=disk_shim.so SHIM_PATH=/room python tests/crash/kept_driver.py ROOM k 1

goes through one scenario once for each call that it makes to the disk, each time in a new process
with the fault `k`, `f` or `s` at that call (disk_shim.c). After each one, everything whose `keep`
had returned must be found again, whole, and nothing that is half may be there. Kind `p` plays a
loss of power at every call: of what was written and not flushed, any part may be lost.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from unit.serving_kept.samples import BUDGET, DAY, NOW, given, toy

from tallystick.errors import StorageError
from tallystick.serving.kept import commits
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.reader import KeptReader
from tallystick.serving.kept.tables import DATABASE

SHIM = ctypes.CDLL(None)
SHIM.disk_shim_arm.argtypes = [ctypes.c_long, ctypes.c_char, ctypes.c_int]
SHIM.disk_shim_disarm.restype = ctypes.c_long
COUNT, ACKS = 8, "acks"
commits.WAL_BYTES = 150 << 10  # so that the log is taken over in the middle
# Every fourth one ends early, and some are longer than a page.
ANSWERS = [
    given(n, until=NOW + (1 if n % 4 == 0 else 30) * DAY, text="x" * (300 + 2500 * (n % 3)))
    for n in range(COUNT + 1)
]
LASTING = [n for n in range(COUNT) if n % 4]


def scenario(room: Path) -> bool:
    """Keep the answers, and delete in the middle what has passed its date. The number of an answer
    is noted once `keep` has returned. True if nothing has failed."""
    whole = True
    notes = os.open(room / ACKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        kept = KeptAnswers(room / "kept", BUDGET)
    except StorageError:
        return False
    model = room / "model"
    model.mkdir(exist_ok=True)
    with suppress(StorageError):
        kept.uses(toy().statement, model)
    for number in range(COUNT):
        try:
            kept.keep(ANSWERS[number], "anna")
        except Exception:
            whole = False
            continue
        with suppress(OSError):  # a full disk takes no note
            os.write(notes, bytes([number]))
        if number == COUNT // 2:
            with suppress(StorageError):
                kept.expire(NOW + 2 * DAY)
    return whole


def promised(room: Path) -> list[int]:
    """The answers that were handed out, and have not passed their date."""
    path = room / ACKS
    return [n for n in path.read_bytes() if n in LASTING] if path.exists() else []


def check(place: Path, handed_out: list[int]) -> None:
    """All that was handed out is found, whole; all that is found is whole."""
    if not (place / DATABASE).exists():
        assert not handed_out, handed_out
        return
    try:
        reader = KeptReader(place)
    except Exception:
        # Killed before its tables were there.
        assert not handed_out, handed_out
        return
    with reader:
        assert reader.damaged() == []
        found = {row.receipt for row in reader.rows()}
    missing = [n for n in handed_out if ANSWERS[n].receipt not in found]
    assert not missing, missing
    assert found <= {one.receipt for one in ANSWERS}


def goes_on(place: Path) -> None:
    """The server that starts after the fault keeps one more."""
    with KeptAnswers(place, BUDGET) as kept:
        kept.uses(toy().statement, place.parent)
        id_ = kept.keep(ANSWERS[COUNT], "anna")
        assert kept.find(id_, "anna") is not None and kept.damaged() == []


def child(room: Path, at: int, kind: str, trace: int = -1) -> int:
    """The scenario in a process of its own; its exit code, or minus its signal."""
    pid = os.fork()
    if not pid:
        code = 3
        try:
            SHIM.disk_shim_arm(at, kind.encode(), trace)
            whole = scenario(room)
            code = 0 if SHIM.disk_shim_disarm() < at else 1 if not whole else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def faults(root: Path, kind: str, stride: int) -> dict[str, int]:
    at, ends = 1, dict[str, int]()
    while True:
        room = root / str(at)
        room.mkdir()
        code = child(room, at, kind)
        assert code in ((-9, 0) if kind == "k" else (0, 1, 2)), (at, code)
        check(room / "kept", promised(room))
        goes_on(room / "kept")
        check(room / "kept", [*promised(room), COUNT])
        if code == 0:
            assert promised(room) == LASTING
            return {**ends, "points": at}
        ends[str(code)] = ends.get(str(code), 0) + 1
        shutil.rmtree(room)
        at += stride


# -- a loss of power -------------------------------------------------------------------------------
@dataclass
class Disk:
    """A file, as far as it was flushed, and what was written since."""

    flushed: bytearray | None = None
    since: list[tuple[str, int, bytes]] = field(default_factory=list)

    def with_first(self, count: int) -> bytearray | None:
        """Its bytes with so many of the writes since."""
        if self.flushed is None and not count:
            return None
        data = bytearray(self.flushed or b"")
        for what, offset, written in self.since[:count]:
            if what == "t":
                data = data[:offset].ljust(offset, b"\0")
            else:
                data = data.ljust(offset, b"\0")
                data[offset : offset + len(written)] = written
        return data

    def flush(self) -> None:
        self.flushed, self.since = self.with_first(len(self.since)), []


def records(data: bytes) -> Iterator[tuple[str, str, int, bytes]]:
    """The calls of a trace: kind, name, offset, bytes."""
    at = 0
    while at < len(data):
        kind, (length, offset, count) = chr(data[at]), struct.unpack_from("<IQQ", data, at + 1)
        at += 21
        name = data[at : at + length].decode()
        at += length
        yield kind, Path(name).name, offset, data[at : at + count]
        at += count


def power(root: Path, stride: int) -> dict[str, int]:
    room = root / "traced"
    room.mkdir()
    trace = os.open(root / "trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    assert child(room, 1 << 40, "p", trace) == 0
    disks = {DATABASE: Disk(bytearray()), f"{DATABASE}-wal": Disk()}
    handed_out, worlds, calls = list[int](), 0, 0
    for kind, name, offset, data in records((root / "trace").read_bytes()):
        if name == ACKS:
            handed_out += [n for n in data if n in LASTING]
            continue
        if name not in disks:
            continue
        if kind == "s":
            disks[name].flush()
        else:
            disks[name].since.append((kind, offset, data))
        calls += 1
        if calls % stride:
            continue
        for shares in ((0, 0), (2, 2), (1, 1), (2, 0), (0, 2), (2, 1), (1, 2)):
            place = root / "world"
            place.mkdir()
            for (file, disk), share in zip(disks.items(), shares, strict=True):
                content = disk.with_first(len(disk.since) * share // 2)
                if content is not None:
                    (place / file).write_bytes(content)
            check(place, handed_out)
            shutil.rmtree(place)
            worlds += 1
    assert handed_out == LASTING
    return {"points": calls, "worlds": worlds}


if __name__ == "__main__":
    where, what, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    print(json.dumps(power(where, step) if what == "p" else faults(where, what, step)))
