"""The journal of a run: an append-only file of losses and checkpoint roots.

Layout: MAGIC, the job digest, then records `u8 kind, u32 length, payload, 16-byte check`. The
check is the beginning of a hash chain over all bytes before it. So no record can be altered,
dropped, repeated or moved without breaking the check of every later record. A process that is
killed while it appends leaves a torn last record. The reader takes the intact prefix and says how
many bytes it left out. A `JournalTail` follows one that is being written.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO

import numpy as np

from tallystick.commit.checkpoint import Checkpoint
from tallystick.commit.encoding import (
    Writer,
    canonical_json,
    parse_canonical_json,
    sha256,
    tag,
)
from tallystick.commit.state import is_finite
from tallystick.disk.files import OS, write_all, write_file
from tallystick.disk.regular import open_file, open_regular, os_errors, present
from tallystick.errors import CorruptFileError, TallystickError, storage_error
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import parse_contract
from tallystick.run.logs.report import Found, found_problem

MAGIC = b"tallystick journal 1\n"
_CHAIN_TAG = tag("journal/1")
RECORD_HEAD = struct.Struct("<BI")
CHECK_BYTES = 16
_MAX_PAYLOAD = 1 << 16
_LARGEST_RECORD = RECORD_HEAD.size + _MAX_PAYLOAD + CHECK_BYTES

SESSION, LOSS, CHECKPOINT, EVALUATION, PAUSE, END, LOGGED, FOLLOWED = range(1, 9)
_STEP_BITS = struct.Struct("<QI")
_STEP_BITS_LOG = struct.Struct("<QI32s")
_STEP_ROOT = struct.Struct("<Q32s")
_END = struct.Struct("<QB32s")
REASONS = ("complete", "non-finite loss", "early stop")


def loss_value(bits: int) -> float:
    """The binary32 loss with these bits, as a Python float."""
    return float(np.array(bits, dtype="<u4").view("<f4"))


def end_reason(job: Job, steps: int, bits: int) -> str:
    """The reason why a run of `job` ended after `steps` steps, the last loss having these bits."""
    c = job.commitment
    if c.stop_on_non_finite and not is_finite(bits):
        return REASONS[1]
    return REASONS[2] if c.stop_on_slot and steps < job.steps else REASONS[0]


@dataclass
class JournalContent:
    """The content of a journal.

    `losses[t]` are the bits of step t's loss. `logs[t]` is the digest of its rounding log (none
    under a contract that keeps no log). `followed` holds the findings about a run whose logs this
    run follows: `followed[t, "log"]` in the log of step t, `followed[t, "state"]` at its
    checkpoint of step t."""

    job_digest: bytes
    losses: list[int] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    evaluations: list[tuple[int, int]] = field(default_factory=list)
    logs: list[bytes] = field(default_factory=list)
    followed: dict[tuple[int, str], Found] = field(default_factory=dict)
    pauses: dict[int, bytes] = field(default_factory=dict)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    last_step: int | None = None
    reason: str = ""
    run_root: bytes | None = None
    torn_bytes: int = 0
    torn_why: str = ""

    @property
    def finished(self) -> bool:
        return self.last_step is not None

    @property
    def roots(self) -> dict[int, bytes]:
        """Root by step, of committed checkpoints and of pauses (a committed root wins)."""
        return {**self.pauses, **dict(self.checkpoints)}

    def apply(self, kind: int, payload: bytes) -> str:
        """Take one record; return the reason why it does not fit here, or an empty string."""
        if self.finished and kind != SESSION:
            return "a record follows the end"
        try:
            if kind == SESSION:
                value: Any = parse_canonical_json(payload, "session record", _MAX_PAYLOAD)
                if not is_session(value):
                    return "a session record is malformed"
                if "end_step" in value and self.sessions:  # the end of the session before it
                    self.sessions[-1] = {**self.sessions[-1], **value}
                else:
                    self.sessions.append(value)
            elif kind == FOLLOWED:
                found: Any = parse_canonical_json(payload, "record of a find", _MAX_PAYLOAD)
                if why := found_problem(found):
                    return why
                if found["step"] != len(self.losses):
                    return "what was found in a followed run is out of place"
                # A restart may find the same again, and never anything else.
                self.followed[found["step"], found["what"]] = found
            elif kind == LOGGED:
                step, bits, log = _STEP_BITS_LOG.unpack(payload)
                if step != len(self.losses) or step != len(self.logs):
                    return f"the log of step {step} is out of place"
                self.losses.append(bits)
                self.logs.append(log)
            elif kind in (LOSS, EVALUATION):
                step, bits = _STEP_BITS.unpack(payload)
                if kind == EVALUATION:
                    self.evaluations.append((step, bits))
                elif step != len(self.losses):
                    return f"the loss of step {step} is out of place"
                elif self.logs:
                    return f"step {step} has no log"
                else:
                    self.losses.append(bits)
            elif kind in (CHECKPOINT, PAUSE):
                step, root = _STEP_ROOT.unpack(payload)
                if step != len(self.losses):
                    return f"the checkpoint of step {step} is out of place"
                if kind == PAUSE:
                    self.pauses[step] = root
                elif self.checkpoints and self.checkpoints[-1][0] >= step:
                    return f"the checkpoint of step {step} is repeated"
                else:
                    self.checkpoints.append((step, root))
            elif kind == END:
                step, reason, root = _END.unpack(payload)
                if step != len(self.losses) or reason >= len(REASONS):
                    return "the end does not fit the losses before it"
                self.last_step, self.reason, self.run_root = step, REASONS[reason], root
            else:
                return f"a record has the unknown kind {kind}"
        except (struct.error, TallystickError):
            return "a record is malformed"
        return ""


# What a session's record says of a worker that ended it (run/distributed/others.py).
CONVICTED, CONVICTED_TOO = "convicted_worker", "convicted_too"
ENDED_BY, ENDED_WHEN_DRAWN = "ended_by_worker", "ended_when_drawn"
# The members of a session record that this build reads, and their types.
_SESSION: dict[str, type] = {
    "compiler": str,
    CONVICTED: int,
    "end_step": int,
    ENDED_BY: int,
    ENDED_WHEN_DRAWN: bool,
    "isa": str,
    "keep_checkpoints": int,
    "milliseconds": int,
    "replay": str,
    "start_step": int,
    "tallystick": str,
    "threads": int,
    "workers": int,
}
_SESSION_MEMBERS = 64


def is_session(value: Any) -> bool:
    """True if `value` is a session record: each member that this build knows has its type, and a
    member of another build is a number, a text or a truth value."""
    return (
        isinstance(value, dict)
        and len(value) <= _SESSION_MEMBERS
        and all(
            type(v) is _SESSION[k] if k in _SESSION else type(v) in (str, int, bool, NoneType)
            for k, v in value.items()
        )
    )


class DigestChain:
    def __init__(self, job_digest: bytes) -> None:
        self.value = Writer(_CHAIN_TAG).hash(job_digest, "job digest").digest()

    def frame(self, kind: int, payload: bytes) -> bytes:
        """The record's bytes; advances the chain."""
        record = RECORD_HEAD.pack(kind, len(payload)) + payload
        self.value = sha256(self.value + record)
        return record + self.value[:CHECK_BYTES]


def read_journal(
    path: Path, limit: int = LIMITS.journal_bytes, inside: Path | None = None
) -> JournalContent:
    """Read the intact prefix of the journal; `torn_bytes` counts the bytes after it.

    The reader stops at the first record that does not fit. Raises StorageError where the file
    cannot be read, CorruptFileError when even its beginning is not a journal's, or when it has
    more than `limit` bytes.
    """
    return _read(path, limit, inside)[0]


def _read(path: Path, limit: int, inside: Path | None) -> tuple[JournalContent, DigestChain, int]:
    file, size = open_file(path, "journal", inside, limit)
    with os_errors(path), file:
        return _parse(file, size, path, limit)


def parse_journal(data: bytes, path: Path) -> tuple[JournalContent, DigestChain, int]:
    """Parse a journal's bytes: return its content, the hash chain at its end, and the offset at
    which its intact part ends. Raises CorruptFileError for bytes that do not begin as a
    journal."""
    return _parse(io.BytesIO(data), len(data), path, LIMITS.journal_bytes)


def _parse(
    file: BinaryIO, size: int, path: Path, limit: int
) -> tuple[JournalContent, DigestChain, int]:
    at = len(MAGIC) + 32
    start = file.read(at)
    if start[: len(MAGIC)] != MAGIC or len(start) < at:
        raise CorruptFileError(
            f"{path} does not start like a journal.", "Restore it, or train into another directory."
        )
    if size > limit:
        raise CorruptFileError(
            f"The journal {path} has {size} bytes, but its job needs at most {limit}.",
            "Restore it from an intact copy.",
        )
    content = JournalContent(start[len(MAGIC) :])
    chain = DigestChain(content.job_digest)
    while at < size:
        before = chain.value
        why, record_bytes = _take(file, min(size - at, _LARGEST_RECORD), chain, content)
        if why:
            chain.value = before
            content.torn_bytes, content.torn_why = size - at, why
            break
        at += record_bytes
    return content, chain, at


def _take(
    file: BinaryIO, room: int, chain: DigestChain, content: JournalContent
) -> tuple[str, int]:
    """Read one record of at most `room` bytes into `content`; return the reason why it does not
    fit (or an empty string), and its size."""
    head = file.read(min(room, RECORD_HEAD.size))
    if len(head) < RECORD_HEAD.size:
        return "a record is cut off", 0
    kind, length = RECORD_HEAD.unpack(head)
    rest = length + CHECK_BYTES
    if length > _MAX_PAYLOAD or rest > room - RECORD_HEAD.size:
        return "a record is cut off", 0
    body = file.read(rest)
    if len(body) < rest:
        return "a record is cut off", 0
    payload = body[:length]
    if chain.frame(kind, payload) != head + body:
        return "a record does not match its check", 0
    return content.apply(kind, payload), len(head) + rest


class Journal:
    """A journal open for appending: a new one, or one continued after its intact prefix."""

    def __init__(self, path: Path, content: JournalContent, chain: DigestChain, end: int) -> None:
        self.path = path
        self.content = content
        self._chain = chain
        self._end = end
        try:
            self._descriptor = open_regular(path, "journal", path.parent, os.O_WRONLY)
            os.ftruncate(self._descriptor, end)
            os.lseek(self._descriptor, end, os.SEEK_SET)
        except OSError as error:
            raise storage_error(path, error) from error
        content.torn_bytes, content.torn_why = 0, ""

    @staticmethod
    def open(path: Path, job_digest: bytes, limit: int = LIMITS.journal_bytes) -> Journal:
        """Open or create the journal at `path`, of at most `limit` bytes.

        Raises CorruptFileError for a file that is no journal, or is a journal of another job.
        """
        if not present(path):
            write_file(path, [MAGIC + job_digest])
        content, chain, end = _read(path, limit, path.parent)
        if content.job_digest != job_digest:
            raise CorruptFileError(
                f"The journal {path} belongs to another job.",
                "Choose another directory with --out.",
            )
        return Journal(path, content, chain, end)

    def _append(self, kind: int, payload: bytes) -> None:
        before = self._chain.value
        record = self._chain.frame(kind, payload)
        try:
            write_all(self._descriptor, record)
        except OSError as error:
            # A part of the record may be on the disk: cut the file back to the last whole record.
            self._chain.value = before
            try:
                os.ftruncate(self._descriptor, self._end)
                os.lseek(self._descriptor, self._end, os.SEEK_SET)
            except OSError:
                pass
            raise storage_error(self.path, error) from error
        self._end += len(record)
        why = self.content.apply(kind, payload)
        if why:
            raise CorruptFileError(
                f"The journal {self.path}: {why}.", "This is a bug. Please report it."
            )

    def session(self, info: dict[str, Any]) -> None:
        """Append the facts of the machine that executes from here on: instruction set, threads,
        versions."""
        self._append(SESSION, canonical_json(info))

    def session_end(
        self, step: int, milliseconds: int, facts: Mapping[str, int] | None = None
    ) -> None:
        """Append the step up to which the session has executed, the time from its first step on,
        and `facts` about it. They are for people: a session that is killed has no such record."""
        told: dict[str, Any] = {**(facts or {}), "end_step": step, "milliseconds": milliseconds}
        self._append(SESSION, canonical_json(told))

    def session_broken(self, facts: Mapping[str, int]) -> None:
        """Append how a session ended that ended early, after the last step in the journal. Without
        a session there is nothing to say it of."""
        if self.content.sessions and not self.content.finished:
            told: dict[str, Any] = {**facts, "end_step": len(self.content.losses)}
            self._append(SESSION, canonical_json(told))

    def loss(self, step: int, bits: int, log: bytes | None = None) -> None:
        """Append the loss of step `step`, as binary32 bits, and the digest of its log if it has
        one."""
        if log is None:
            self._append(LOSS, _STEP_BITS.pack(step, bits))
        else:
            self._append(LOGGED, _STEP_BITS_LOG.pack(step, bits, log))

    def followed(self, found: Found) -> None:
        """Append a finding about the run that this run follows (journal.FOLLOWED)."""
        self._append(FOLLOWED, canonical_json(found))

    def evaluation(self, step: int, bits: int) -> None:
        """Append the validation loss of state[step]; it informs only."""
        self._append(EVALUATION, _STEP_BITS.pack(step, bits))

    def checkpoint(self, step: int, root: bytes) -> None:
        """Append the root of state[step], and make it durable with all records before it."""
        self._append(CHECKPOINT, _STEP_ROOT.pack(step, root))
        self.sync()

    def pause(self, step: int, root: bytes) -> None:
        """Append the root of a state that is stored where no checkpoint is due."""
        self._append(PAUSE, _STEP_ROOT.pack(step, root))
        self.sync()

    def end(self, step: int, reason: str, run_root: bytes) -> None:
        """Append the end of the run."""
        self._append(END, _END.pack(step, REASONS.index(reason), run_root))
        self.sync()

    def sync(self) -> None:
        """Make the journal durable. Raises StorageError."""
        try:
            OS.fsync(self._descriptor)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        os.close(self._descriptor)


def journal_bytes(steps: int, checkpoints: int, logs: bool = False) -> int:
    """The bytes of a journal of this many steps and checkpoints, without sessions."""
    frame = RECORD_HEAD.size + CHECK_BYTES
    step = (_STEP_BITS_LOG if logs else _STEP_BITS).size
    return 256 + steps * (frame + step) + checkpoints * (frame + _STEP_ROOT.size)


def journal_limit(job: Job | None) -> int:
    """The bytes that the journal of a run of `job` can have, sessions and findings included;
    without a job, LIMITS.journal_bytes."""
    if job is None:
        return LIMITS.journal_bytes
    logs = parse_contract(job.commitment.contract).keeps_log
    steps = job.steps
    # Each step may have an evaluation and a pause too. A step that follows a log may have two
    # findings.
    finds = 2 * steps * _LARGEST_RECORD if logs else 0
    return journal_bytes(steps, 3 * (steps + 1), logs) + finds + LIMITS.journal_session_bytes


class JournalTail:
    """What a journal holds so far; `advance` reads what was appended since.

    `length` is the bytes up to the last checkpoint, pause or end, whose logs are all written
    before it; `steps` and `logs` are the numbers of losses and of log digests there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._chain: DigestChain | None = None
        self._content = JournalContent(b"")
        self.length = self.steps = self.logs = 0
        self.roots: dict[int, bytes] = {}
        self.finished = False

    def advance(self) -> None:
        """Read the whole records that were appended. Raises StorageError, CorruptFileError."""
        if not present(self._path):
            return
        file, size = open_file(self._path, "journal", self._path.parent)
        with os_errors(self._path), file:
            if self._chain is None:
                start = file.read(len(MAGIC) + 32)
                if len(start) < len(MAGIC) + 32:
                    return
                self._content = JournalContent(start[len(MAGIC) :])
                self._chain, self._at = DigestChain(self._content.job_digest), len(start)
            file.seek(self._at)
            content = self._content
            marks = len(content.checkpoints), len(content.pauses), content.finished
            while self._at < size:
                before = self._chain.value
                room = min(size - self._at, _LARGEST_RECORD)
                why, count = _take(file, room, self._chain, content)
                if why:  # being written: the next call reads it whole
                    self._chain.value = before
                    break
                self._at += count
                now = len(content.checkpoints), len(content.pauses), content.finished
                if now != marks:
                    marks = now
                    self.length, self.steps = self._at, len(content.losses)
                    self.logs, self.finished = len(content.logs), content.finished
        self.roots = {s: r for s, r in content.roots.items() if s <= self.steps}
