"""Reads a step's rounding log, and checks every field before it allocates from it.

A reader knows the log's properties beforehand: the step, the job, the program's sections, and,
where the caller has it from a chain, the digest. It holds the index and one section at a time.
Every log of a run has one shape: its job's sections, and the job's digest.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from tallystick.closing import Closing
from tallystick.commit.log import BOUNDED, Section, log_digest, packed_root
from tallystick.contracts.replay.entries import Blocks, from_payload, largest_payload
from tallystick.contracts.replay.findings import Fault, LogCorruptError
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.disk.regular import open_file, present
from tallystick.errors import CorruptFileError, storage_error
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.run.logs import writer
from tallystick.run.logs.writer import (
    END,
    ENTRY,
    HEADER,
    MAGIC,
    TRAILER,
    Stored,
    log_path,
    trailer_checksum,
)
from tallystick.run.store.directory import RunStore


@dataclass(frozen=True)
class Expected:
    """The expected properties of a run's logs: job digest, the program's sections, operators."""

    job_digest: bytes
    sections: Sequence[Section]
    operators: Sequence[str]
    form: int = BOUNDED


def expected_of(logged: LoggedProgram, job_digest: bytes) -> Expected:
    """What logs of a program and of the job `job_digest` must be."""
    return Expected(job_digest, logged.sections, logged.operators, logged.form)


class LogReader(Closing):
    """The log of `step` in the file `path`, checked against `expected` and, if given, `digest`.

    `inside` is the run's directory; the reader follows no link in it.
    Raises LogCorruptError, here for a fault of the whole log and later for one of a section;
    StorageError where the file cannot be read, CorruptFileError where it is no plain file.
    """

    def __init__(
        self,
        path: Path,
        step: int,
        expected: Expected,
        digest: bytes | None = None,
        inside: Path | None = None,
    ) -> None:
        self.path = path
        self.step = step
        self.expected = expected
        if not present(path):
            raise LogCorruptError("missing", f"there is no {path.name}", step)
        self._file, self._size = open_file(path, "rounding log", inside)
        try:
            self.digest = self._open(digest)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    # -- the whole log ---------------------------------------------------------------------------

    def _fail(self, fault: Fault, why: str, number: int | None = None) -> NoReturn:
        if number is None:
            raise LogCorruptError(fault, why, self.step)
        section = self.expected.sections[number]
        operator = self.expected.operators[number]
        raise LogCorruptError(fault, why, self.step, section.node, section.output, operator)

    def _read(self, offset: int, size: int) -> bytes:
        try:
            self._file.seek(offset)
            data = self._file.read(size)
        except OSError as error:
            raise storage_error(self.path, error) from error
        if len(data) != size:
            self._fail("truncated", "it ends too early")
        return data

    def _open(self, digest: bytes | None) -> bytes:
        want = self.expected
        size = self._size
        if size < HEADER.size + TRAILER.size:
            self._fail("truncated", f"its file has {size} bytes")
        header = self._read(0, HEADER.size)
        magic, step, job, form, compression, count = HEADER.unpack(header)
        if magic != MAGIC:
            self._fail("altered", "its file does not begin as one")
        trailer = self._read(size - TRAILER.size, TRAILER.size)
        stated, at, checksum, end = TRAILER.unpack(trailer)
        if end != END:
            self._fail("truncated", "its file does not end as one")
        if step != self.step:
            self._fail("swapped", f"its file says that it is of step {step}")
        if job != want.job_digest:
            self._fail("swapped", "its file belongs to another job")
        if form != want.form or compression not in writer.CODECS.values():
            self._fail("altered", "its header names a form or codec that it cannot have")
        if count != len(want.sections):
            self._fail("altered", f"it has {count} sections and not {len(want.sections)}")
        if at != size - TRAILER.size - count * ENTRY.size or at < HEADER.size:
            self._fail("truncated", "its index is not where its end says")
        writer.check_available(compression)
        self.codec: int = compression
        index = self._read(at, count * ENTRY.size)
        if trailer_checksum(header, index, stated, at) != checksum:
            self._fail("altered", "the checksum of its index is wrong")
        self.index = self._entries(index, at)
        found = log_digest(self.step, [entry.digest for entry in self.index])
        if found != stated:
            self._fail("altered", "its sections do not give the digest it states")
        if digest is not None and found != digest:
            self._fail("altered", "it is not the log that the run committed to")
        return found

    def _entries(self, index: bytes, end: int) -> list[Stored]:
        """The index, each line checked against the program; payloads fill the file exactly."""
        out: list[Stored] = []
        for number, fields in enumerate(ENTRY.iter_unpack(index)):
            node, output, elements, offset, stored, payload, checksum, digest = fields
            section = self.expected.sections[number]
            if (node, output) != (section.node, section.output):
                self._fail("reordered", f"output {output} of node {node} is in its place", number)
            if elements != section.elements:
                self._fail("altered", f"it is of {elements} elements", number)
            if payload > _largest(section) or not HEADER.size <= offset <= end - stored:
                self._fail("altered", "its size or place is impossible", number)
            if self.codec == writer.RAW and payload != stored:
                self._fail("altered", "its two sizes differ", number)
            if stored > writer.largest_stored(self.codec, payload):
                self._fail("altered", "more is stored of it than its size can need", number)
            out.append(Stored(offset, stored, payload, checksum, digest))
        # Payloads may lie in any order, but leave no gap and do not overlap.
        place = HEADER.size
        for entry in sorted(out, key=lambda e: (e.offset, e.stored)):
            if entry.offset != place:
                self._fail("altered", "its payloads do not follow each other")
            place += entry.stored
        if place != end:
            self._fail("altered", "bytes follow its last payload")
        return out

    # -- sections --------------------------------------------------------------------------------

    def payload(self, number: int) -> bytes:
        """The payload of section `number`, its checksum and size right; its digest not checked."""
        entry = self.index[number]
        stored = self._read(entry.offset, entry.stored)
        if zlib.crc32(stored) != entry.checksum:
            self._fail("altered", "its checksum is wrong", number)
        try:
            return writer.decompress(self.codec, stored, entry.payload)
        except CorruptFileError as error:
            self._fail("altered", error.message, number)

    def bounded(self, number: int) -> Blocks:
        """The blocks of section `number` of a bounded log; their digest is the index's."""
        section = self.expected.sections[number]
        try:
            found = from_payload(section, self.payload(number))
        except LogCorruptError:
            raise
        except CorruptFileError as error:
            self._fail("altered", error.message, number)
        self._check(number, found.root())
        return found

    def published(self, number: int) -> bytes:
        """The packed entries of section `number` of a published log, five to a byte."""
        section = self.expected.sections[number]
        data = self.payload(number)
        if len(data) != section.packed_bytes:
            self._fail("altered", f"it has {len(data)} bytes", number)
        self._check(number, packed_root(data))
        return data

    def _check(self, number: int, root: bytes) -> None:
        if self.expected.sections[number].digest(root) != self.index[number].digest:
            self._fail("altered", "its blocks do not give its digest", number)

    def verify(self) -> None:
        """Check every section's digest, one at a time. Raises LogCorruptError."""
        for number in range(len(self.index)):
            if self.expected.form == BOUNDED:
                self.bounded(number)
            else:
                self.published(number)


def _largest(section: Section) -> int:
    if section.form == BOUNDED:
        return largest_payload(section)
    return section.packed_bytes


def open_log(
    directory: Path,
    step: int,
    expected: Expected,
    digest: bytes | None = None,
    inside: Path | None = None,
) -> LogReader:
    """The log of `step` in a run's directory of logs. Raises as LogReader does."""
    return LogReader(log_path(directory, step), step, expected, digest, inside)


@dataclass(frozen=True)
class LogShape:
    """The shape of every log of a run of `job`, whose contract keeps logs."""

    job: Job

    @cached_property
    def logged(self) -> LoggedProgram:
        return LoggedProgram(self.job.program)

    @property
    def sections(self) -> tuple[Section, ...]:
        return self.logged.sections

    @cached_property
    def expected(self) -> Expected:
        return expected_of(self.logged, self.job.digest)

    def open(
        self, store: RunStore, step: int, digest: bytes | None, verify: bool = True
    ) -> LogReader:
        """The log of `step` in the run at `store`, which must have this digest if one is given;
        every section read and hashed once if `verify`.

        Raises LogCorruptError where it is missing or another, StorageError.
        """
        reader = open_log(store.logs_path, step, self.expected, digest, store.directory)
        if verify:
            try:
                reader.verify()
            except BaseException:
                reader.close()
                raise
        return reader

    def check(self, store: RunStore, step: int, digest: bytes) -> None:
        """Check every byte of a step's log. Raises LogCorruptError, StorageError."""
        self.open(store, step, digest).close()


def keeps_log(job: Job) -> bool:
    """Whether a run of `job` has rounding logs."""
    return parse_contract(job.commitment.contract).keeps_log
