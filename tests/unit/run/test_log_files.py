"""The files that carry rounding logs: what is wrong with one is found and named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tallystick.commit.encoding import sha256
from tallystick.commit.log import BOUNDED, PUBLISHED, Section
from tallystick.contracts.replay import entries as blocks
from tallystick.contracts.replay.entries import Entries, pack, unpack
from tallystick.contracts.replay.findings import LogCorruptError
from tallystick.disk import files
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.run.logs import writer as log_writer
from tallystick.run.logs.reader import Expected, LogReader, open_log
from tallystick.run.logs.writer import ENTRY, HEADER, LogDirectory, LogWriter, log_path

JOB = sha256(b"job")
SIZES = ((1, 0, 0), (2, 0, 5), (4, 1, 4200), (7, 0, 300), (9, 0, 1))
OPERATORS = ("aten.sum", "aten.mm", "aten.convolution_backward", "aten.mm", "aten.mean")
CODECS = [log_writer.RAW, log_writer.ZSTD]


@pytest.fixture(params=CODECS, ids=["raw", "zstd"])
def compression(request: pytest.FixtureRequest) -> int:
    if request.param == log_writer.ZSTD:
        pytest.importorskip("zstandard", reason="zstandard is not installed")
    return int(request.param)


def sections(form: int) -> tuple[Section, ...]:
    return tuple(Section(node, out, n, form) for node, out, n in SIZES)


def expected(form: int = BOUNDED) -> Expected:
    return Expected(JOB, sections(form), OPERATORS, form)


def entries(section: Section, seed: int) -> Entries:
    rng = np.random.default_rng((seed, section.node))
    some = np.flatnonzero(rng.random(section.elements) < 0.02)
    return Entries(some, rng.integers(0, 2, len(some), dtype=np.uint8))


def codes(section: Section, seed: int) -> np.ndarray:
    rng = np.random.default_rng((seed, section.node))
    return rng.choice(3, section.elements, p=(0.05, 0.9, 0.05)).astype(np.uint8)


def write(
    path: Path, form: int, compression: int, step: int = 3, order: tuple[int, ...] = (2, 0, 1, 4, 3)
) -> bytes:
    writer = LogWriter(log_path(path, step), step, JOB, sections(form), form, compression)
    for number in order:
        section = sections(form)[number]
        if form == BOUNDED:
            writer.bounded(number, blocks.encode(section, entries(section, step)))
        else:
            writer.published(number, pack(codes(section, step)))
    return writer.finish()


@pytest.mark.parametrize("form", [BOUNDED, PUBLISHED])
def test_what_was_written_is_read(tmp_path: Path, form: int, compression: int) -> None:
    digest = write(tmp_path, form, compression)
    with open_log(tmp_path, 3, expected(form), digest) as log:
        log.verify()
        for number, section in enumerate(sections(form)):
            if form == BOUNDED:
                found, bad = blocks.decode(section, log.bounded(number))
                want = entries(section, 3)
                assert not len(bad)
                assert (found.positions == want.positions).all()
                assert (found.directions == want.directions).all()
                one = [
                    blocks.decode_block(b, log.bounded(number).block(b))
                    for b in range(section.blocks)
                ]
                assert sum(len(e) for e in one) == len(want)
            else:
                data = log.published(number)
                assert (unpack(data, section.elements) == codes(section, 3)).all()
    # The digest is the log's, not the file's: neither codec nor order of arrival matters.
    other = tmp_path / "other"
    other.mkdir()
    assert write(other, form, log_writer.RAW, order=(0, 1, 2, 3, 4)) == digest


def damaged(path: Path, form: int, digest: bytes) -> LogCorruptError | None:
    try:
        with LogReader(path, 3, expected(form), digest) as log:
            log.verify()
    except LogCorruptError as error:
        assert error.step == 3
        assert "step 3" in error.message and error.next_action
        return error
    return None


@pytest.mark.parametrize("form", [BOUNDED, PUBLISHED])
def test_every_byte_changed_is_found(tmp_path: Path, form: int, compression: int) -> None:
    digest = write(tmp_path, form, compression)
    path = log_path(tmp_path, 3)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert damaged(path, form, digest) is not None, at


def test_every_truncation_is_found(tmp_path: Path, compression: int) -> None:
    digest = write(tmp_path, BOUNDED, compression)
    path = log_path(tmp_path, 3)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        error = damaged(path, BOUNDED, digest)
        assert error is not None and error.fault == "truncated", size
    path.write_bytes(whole + b"\0")
    assert damaged(path, BOUNDED, digest) is not None


def test_damage_names_the_operator(tmp_path: Path, compression: int) -> None:
    digest = write(tmp_path, BOUNDED, compression, order=(0, 1, 2, 3, 4))
    path = log_path(tmp_path, 3)
    whole = bytearray(path.read_bytes())
    with LogReader(path, 3, expected()) as log:
        at = log.index[2].offset + log.index[2].stored - 1
    whole[at] ^= 4
    path.write_bytes(whole)
    error = damaged(path, BOUNDED, digest)
    assert error is not None and error.fault == "altered"
    assert (error.node, error.output, error.operator) == (4, 1, "aten.convolution_backward")
    assert "node 4 (aten.convolution_backward)" in error.message


def test_a_log_in_anothers_place(tmp_path: Path) -> None:
    digest = write(tmp_path, BOUNDED, log_writer.RAW, step=3)
    write(tmp_path, BOUNDED, log_writer.RAW, step=4)
    os.replace(log_path(tmp_path, 4), log_path(tmp_path, 3))
    error = damaged(log_path(tmp_path, 3), BOUNDED, digest)
    assert error is not None and error.fault == "swapped" and "step 4" in error.message
    with pytest.raises(LogCorruptError, match="missing") as missing:
        open_log(tmp_path, 4, expected())
    assert missing.value.fault == "missing"
    elsewhere = Expected(sha256(b"other"), sections(BOUNDED), OPERATORS)
    with pytest.raises(LogCorruptError, match="another job"):
        LogReader(log_path(tmp_path, 3), 4, elsewhere)


def test_sections_of_another_program_or_order(tmp_path: Path) -> None:
    write(tmp_path, BOUNDED, log_writer.RAW)
    swapped = (sections(BOUNDED)[0], *sections(BOUNDED)[2:0:-1], *sections(BOUNDED)[3:])
    with pytest.raises(LogCorruptError) as found:
        open_log(tmp_path, 3, Expected(JOB, swapped, OPERATORS))
    assert found.value.fault == "reordered" and found.value.node == 4
    with pytest.raises(LogCorruptError, match="5 sections and not 4"):
        open_log(tmp_path, 3, Expected(JOB, sections(BOUNDED)[:4], OPERATORS[:4]))


def test_an_honest_file_of_another_log_is_not_the_committed_one(tmp_path: Path) -> None:
    digest = write(tmp_path, BOUNDED, log_writer.RAW)
    writer = LogWriter(log_path(tmp_path, 3), 3, JOB, sections(BOUNDED), BOUNDED)
    for number, section in enumerate(sections(BOUNDED)):
        writer.bounded(number, blocks.encode(section, Entries.none()))
    assert writer.finish() != digest
    error = damaged(log_path(tmp_path, 3), BOUNDED, digest)
    assert error is not None and "not the log that the run committed to" in error.message


def resealed(path: Path, change: Callable[[bytearray, int], None]) -> None:
    """Change a file's index or payloads and make its checksum right again."""
    from tallystick.run.logs import writer

    whole = bytearray(path.read_bytes())
    end = len(whole) - writer.TRAILER.size
    at = end - len(SIZES) * ENTRY.size
    change(whole, at)
    digest = bytes(whole[end : end + 32])
    checksum = writer.trailer_checksum(
        bytes(whole[: HEADER.size]), bytes(whole[at:end]), digest, at
    )
    whole[end:] = writer.TRAILER.pack(digest, at, checksum, writer.END)
    path.write_bytes(whole)


@pytest.mark.parametrize("field", ["elements", "offset", "stored", "payload"])
@pytest.mark.parametrize("value", [1 << 63, 1 << 40, 77])
def test_hostile_sizes_allocate_nothing(
    tmp_path: Path, field: str, value: int, compression: int
) -> None:
    write(tmp_path, BOUNDED, compression)
    place = ("node", "output", "elements", "offset", "stored", "payload").index(field) * 8

    def change(whole: bytearray, at: int) -> None:
        start = at + 2 * ENTRY.size + place
        whole[start : start + 8] = value.to_bytes(8, "little")

    resealed(log_path(tmp_path, 3), change)
    tracemalloc.start()
    try:
        with pytest.raises(LogCorruptError), open_log(tmp_path, 3, expected()) as log:
            log.bounded(2)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_stored_is_bounded_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A section of few bytes in a file of many: nothing but its frame says how many it needs."""
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    honest = log_writer.compress
    monkeypatch.setattr(log_writer, "compress", lambda c, data: honest(c, data) + bytes(4 << 20))
    write(tmp_path, BOUNDED, log_writer.ZSTD)
    tracemalloc.start()
    try:
        with pytest.raises(LogCorruptError, match="more is stored"):
            open_log(tmp_path, 3, expected())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 100, 2048, 1 << 20])
def test_what_cannot_be_compressed_is_within_that_bound(size: int) -> None:
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    data = np.random.default_rng(size).bytes(size)
    assert len(log_writer.compress(log_writer.ZSTD, data)) <= log_writer.largest_stored(
        log_writer.ZSTD, size
    )


def test_a_frame_that_declares_too_much_is_refused() -> None:
    zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed")
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        for size in (1, 100, (64 << 20) - 1):
            with pytest.raises(CorruptFileError, match="size"):
                log_writer.decompress(log_writer.ZSTD, bomb, size)
        # Frames that declare no size, or have others behind them, are not what we write.
        unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 99)
        with pytest.raises(CorruptFileError):
            log_writer.decompress(log_writer.ZSTD, unsized, 297)
        two = zstandard.ZstdCompressor().compress(b"abc")
        with pytest.raises(CorruptFileError):
            log_writer.decompress(log_writer.ZSTD, two + two, 3)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_packing() -> None:  # COMMITMENTS 10.3
    rng = np.random.default_rng(1)
    for n in (0, 1, 4, 5, 6, 2047 * 5, 2048 * 5 + 3):
        given = rng.integers(0, 3, n, dtype=np.uint8)
        packed = pack(given)
        padded = [*given.tolist(), *[1] * (-n % 5)]
        want = [
            sum(e * 3**k for k, e in enumerate(padded[i : i + 5])) for i in range(0, len(padded), 5)
        ]
        assert list(packed) == want
        assert (unpack(packed, n) == given).all()
    for data, count in ((b"\xf3", 5), (b"\x00", 4), (b"", 1), (b"\x79\x79", 5)):
        with pytest.raises(CorruptFileError):
            unpack(data, count)


def test_malformed_blocks_are_named_and_left_out() -> None:  # COMMITMENTS 10.2
    section = Section(0, 0, 3 * 4096, BOUNDED)
    for words in ([4, 4], [5, 4], [6, 2], [8192], [65535]):
        middle = np.array(words, blocks.WORD)
        given = blocks.Blocks(
            np.array([1, len(words), 1], blocks.WORD),
            np.concatenate([np.array([3], blocks.WORD), middle, np.array([0], blocks.WORD)]),
        )
        found, bad = blocks.decode(section, given)
        assert bad.tolist() == [1] and found.positions.tolist() == [1, 8192]
        with pytest.raises(CorruptFileError):
            blocks.decode_block(1, middle.tobytes())
    for data in (b"\0", bytes(8194)):
        with pytest.raises(CorruptFileError):
            blocks.decode_block(0, data)
    for positions in ([1, 1], [2, 1], [-1], [12288]):
        with pytest.raises(UsageError):
            blocks.encode(section, Entries(np.array(positions), np.zeros(len(positions), np.uint8)))


class FullDisk(type(files.OS)):
    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.room <= 0:
            raise OSError(28, os.strerror(28))
        written = os.write(descriptor, data[: self.room])
        self.room -= written
        return written


def test_a_full_disk_leaves_no_half_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, BOUNDED, log_writer.RAW)
    size = log_path(tmp_path, 3).stat().st_size
    whole = log_path(tmp_path, 3).read_bytes()
    for room in (0, 10, HEADER.size, HEADER.size + 9, size - 1):
        monkeypatch.setattr(files, "OS", FullDisk(room))
        with pytest.raises(StorageError, match="disk is full"):
            writer = LogWriter(log_path(tmp_path, 3), 3, JOB, sections(BOUNDED), BOUNDED)
            for number, section in enumerate(sections(BOUNDED)):
                writer.bounded(number, blocks.encode(section, entries(section, 3)))
            writer.finish()
        assert [p.name for p in tmp_path.iterdir()] == ["0000000003.log"]
        assert log_path(tmp_path, 3).read_bytes() == whole


def test_a_log_without_all_sections_is_not_finished(tmp_path: Path) -> None:
    writer = LogWriter(log_path(tmp_path, 0), 0, JOB, sections(BOUNDED), BOUNDED)
    writer.bounded(1, blocks.encode(sections(BOUNDED)[1], Entries.none()))
    with pytest.raises(UsageError, match="lacks section 0"):
        writer.finish()
    with pytest.raises(UsageError, match="already written"):
        writer.bounded(1, blocks.encode(sections(BOUNDED)[1], Entries.none()))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


class Counting(type(files.OS)):
    def __init__(self) -> None:
        self.syncs = 0

    def fsync(self, descriptor: int) -> None:
        self.syncs += 1
        os.fsync(descriptor)


def test_flush_makes_every_new_log_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = Counting()
    monkeypatch.setattr(files, "OS", door)
    logs = LogDirectory(tmp_path / "logs", JOB, sections(BOUNDED))
    for step in range(3):
        writer = logs.writer(step)
        for number, section in enumerate(sections(BOUNDED)):
            writer.bounded(number, blocks.encode(section, entries(section, step)))
        writer.finish()
        logs.finished(writer)
    assert door.syncs == 0
    logs.flush()
    assert door.syncs == 4  # three files and their directory
    logs.flush()
    assert door.syncs == 4


_ENDLESS = """
import sys, pathlib
sys.path.insert(0, sys.argv[2])
import test_log_files as t
step = 0
while True:
    t.write(pathlib.Path(sys.argv[1]), t.BOUNDED, 0, step)
    print(step, flush=True)
    step += 1
"""


def test_a_killed_writer_leaves_whole_logs_only(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | _import_path()
    ) as child:
        assert child.stdout is not None
        for _ in range(5):
            done = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) > done >= 4
    for step, path in enumerate(logs):
        with LogReader(path, step, expected()) as log:
            log.verify()
    assert len(list(tmp_path.glob("*.log.part"))) <= 1


def _import_path() -> dict[str, str]:
    import tallystick

    return {"PYTHONPATH": str(Path(tallystick.__file__).parents[1])}


def test_memory_while_reading_and_writing_is_one_sections(tmp_path: Path) -> None:
    many = tuple(Section(node, 0, 1_000_000, PUBLISHED) for node in range(30))
    want = Expected(JOB, many, ["aten.mm"] * 30, PUBLISHED)
    packed = pack(np.ones(1_000_000, np.uint8))
    tracemalloc.start()
    try:
        writer = LogWriter(log_path(tmp_path, 0), 0, JOB, many, PUBLISHED)
        for number in range(30):
            writer.published(number, packed)
        digest = writer.finish()
        with LogReader(log_path(tmp_path, 0), 0, want, digest) as log:
            log.verify()
        assert tracemalloc.get_traced_memory()[1] < 2 << 20  # the file has 6 MB
    finally:
        tracemalloc.stop()
