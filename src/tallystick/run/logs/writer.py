"""Writes one step's rounding log to a file, section by section, while the step runs.

Layout, integers little-endian (no digest covers it: COMMITMENTS 10.6):

    header   TAG(`log-file/1`), u64 step, hash job digest, u8 form, u8 codec, u64 sections
    payloads of the sections, in any order, end to end
    index    per section, in the log's order: u64 node, u64 output, u64 elements, u64 offset,
             u64 stored bytes, u64 payload bytes, u32 CRC-32 of what is stored, hash section digest
    trailer  hash log digest, u64 offset of the index, u32 CRC-32 of header, index and trailer so
             far, TAG(`log-file-end/1`)

A payload is a bounded section's u16 counts per block and then its blocks (`entries.py`), or a
published section's packed bytes. Each payload is compressed on its own if the codec says so. The
checksums find accidents early. Proof comes from the digests, which are checked against the chain.
The reader is `reader.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tallystick.commit.encoding import check_hash, tag
from tallystick.commit.log import BOUNDED, Section, log_digest, packed_root
from tallystick.contracts.replay.entries import Blocks
from tallystick.disk.files import Replacement, make_directory, sync_path
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError

RAW = 0
ZSTD = 1
CODECS = {"raw": RAW, "zstd": ZSTD}

_WINDOW = 1 << 27  # the most memory that a frame may demand of the decompressor


def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise CannotCheckError(
            "Compressed rounding logs need the package zstandard, which is not installed.",
            "Run pip install 'tallystick[zstd]'.",
        ) from None


def check_available(codec: int) -> None:
    """Raise CannotCheckError if this installation cannot write or read `codec`."""
    if codec == ZSTD:
        _zstandard()


def compress(codec: int, data: bytes) -> bytes:
    """`data` as `codec` stores it: one frame that declares its size."""
    if codec == RAW or not data:
        return data
    packed: bytes = _zstandard().ZstdCompressor(level=3).compress(data)
    return packed


def largest_stored(codec: int, size: int) -> int:
    """The most bytes of `compress` for `size` bytes."""
    # zstd's own bound is size/256 more, and 64 for small ones.
    return size if codec == RAW or not size else size + (size >> 8) + 1024


def decompress(codec: int, stored: bytes, size: int) -> bytes:
    """The `size` bytes that `stored` holds; never allocates more than that.

    Raises CorruptFileError for another number of bytes, or where `stored` is no frame.
    """
    if codec == RAW or not size:
        if len(stored) != size:
            raise CorruptFileError("its size is not the declared one", "Refuse it.")
        return stored
    zstd = _zstandard()
    try:
        # The frame's own claim is checked before the library allocates by it.
        if zstd.get_frame_parameters(stored).content_size != size:
            raise CorruptFileError("its size is not the declared one", "Refuse it.")
        data: bytes = zstd.ZstdDecompressor(max_window_size=_WINDOW).decompress(
            stored, max_output_size=size, allow_extra_data=False
        )
    except zstd.ZstdError as error:
        raise CorruptFileError(f"it cannot be decompressed ({error})", "Refuse it.") from None
    if len(data) != size:
        raise CorruptFileError("its size is not the declared one", "Refuse it.")
    return data


MAGIC = tag("log-file/1")
END = tag("log-file-end/1")
HEADER = struct.Struct(f"<{len(MAGIC)}sQ32sBBQ")
ENTRY = struct.Struct("<QQQQQQI32s")
TRAILER = struct.Struct(f"<32sQI{len(END)}s")


def log_path(directory: Path, step: int) -> Path:
    """The path of the log of `step` in a run's directory of logs."""
    return directory / f"{step:010d}.log"


@dataclass(frozen=True)
class Stored:
    """One line of the index."""

    offset: int
    stored: int
    payload: int
    checksum: int
    digest: bytes


class LogWriter:
    """The writer of one step's log. Sections may come in any order; memory holds one at a time.

    The file has a temporary name until `finish`. Every method that writes raises StorageError.
    """

    def __init__(
        self,
        path: Path,
        step: int,
        job_digest: bytes,
        sections: Sequence[Section],
        form: int,
        compression: int = RAW,
    ) -> None:
        check_available(compression)
        self.path = path
        self.step = step
        self.sections = sections
        self._form = form
        self._codec = compression
        self._stored: list[Stored | None] = [None] * len(sections)
        self._header = HEADER.pack(
            MAGIC, step, check_hash(job_digest, "job digest"), form, compression, len(sections)
        )
        self._file = Replacement(path)
        self._offset = 0
        self._write(self._header)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._offset += len(data)

    def _add(self, number: int, root: bytes, payload: bytes) -> None:
        section = self.sections[number]
        if self._stored[number] is not None:
            raise UsageError(f"Section {number} was already written.", "Write each section once.")
        stored = compress(self._codec, payload)
        checksum = zlib.crc32(stored)
        made = Stored(self._offset, len(stored), len(payload), checksum, section.digest(root))
        self._stored[number] = made
        self._write(stored)

    def bounded(self, number: int, section_blocks: Blocks) -> None:
        """Write section `number` of a bounded log."""
        self._add(number, section_blocks.root(), section_blocks.payload())

    def published(self, number: int, packed: bytes) -> None:
        """Write section `number` of a published log, its entries five to a byte."""
        if len(packed) != self.sections[number].packed_bytes:
            raise UsageError(
                f"Section {number} has the wrong number of entries.", "Pack one entry per element."
            )
        self._add(number, packed_root(packed), packed)

    def missing(self) -> list[int]:
        """The numbers of the sections that are not written yet."""
        return [number for number, stored in enumerate(self._stored) if stored is None]

    def digest(self) -> bytes:
        """The log digest of the written sections (COMMITMENTS 10.5).

        Raises UsageError where a section is missing.
        """
        return log_digest(self.step, [s.digest for s in self._whole()])

    def _whole(self) -> list[Stored]:
        stored = [s for s in self._stored if s is not None]
        if len(stored) != len(self.sections):
            raise UsageError(
                f"The log of step {self.step} lacks section {self.missing()[0]}.",
                "Execute the whole step before you finish its log.",
            )
        return stored

    def finish(self) -> bytes:
        """End the file, give it its name, and return the log digest.

        Not durable until `LogDirectory.flush`. Raises as `digest`.
        """
        stored, digest = self._whole(), self.digest()
        index = b"".join(
            ENTRY.pack(
                section.node,
                section.output,
                section.elements,
                s.offset,
                s.stored,
                s.payload,
                s.checksum,
                s.digest,
            )
            for section, s in zip(self.sections, stored, strict=True)
        )
        at = self._offset
        checksum = trailer_checksum(self._header, index, digest, at)
        self._write(index + TRAILER.pack(digest, at, checksum, END))
        self._file.finish(durable=False)
        return digest

    def discard(self) -> None:
        """Drop the unfinished file; after `finish` this has no effect."""
        self._file.discard()


def trailer_checksum(header: bytes, index: bytes, digest: bytes, at: int) -> int:
    """CRC-32 over the bytes that describe the payloads."""
    return zlib.crc32(digest + struct.pack("<Q", at), zlib.crc32(index, zlib.crc32(header)))


class LogDirectory:
    """The logs of a run that is being written: a writer per step, and durability on demand."""

    def __init__(
        self,
        path: Path,
        job_digest: bytes,
        sections: Sequence[Section],
        form: int = BOUNDED,
        compression: int = RAW,
    ) -> None:
        check_available(compression)
        self.path = path
        self.sections = sections
        self.form = form
        self._job_digest = job_digest
        self._codec = compression
        self._unsynced: list[Path] = []

    def writer(self, step: int) -> LogWriter:
        """A writer of the log of `step`, which replaces one that is there. Raises StorageError."""
        make_directory(self.path)
        path = log_path(self.path, step)
        return LogWriter(path, step, self._job_digest, self.sections, self.form, self._codec)

    def finished(self, writer: LogWriter) -> None:
        """Note a finished file, so that the next flush makes it durable."""
        self._unsynced.append(writer.path)

    def flush(self) -> None:
        """Make every finished log durable. Raises StorageError.

        Call it before the journal gets a checkpoint that covers the logs.
        """
        for path in [*self._unsynced, self.path] if self._unsynced else []:
            sync_path(path)
        self._unsynced.clear()
