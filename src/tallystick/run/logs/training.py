"""The rounding logs of a trainer: recorded, taken from another run, or its own once more; and how
large they will be, before any is written, or by logs of steps that do not count.

Theory of operation. A step's log has its name in `logs/` before the step's record is in the
journal, and the record holds its digest: so every step that counts has its log, and a log that no
record names does not count. Before a checkpoint is journaled, the logs before it are made
durable. Steps repeated after a restart follow the run's own logs, so that they get the same
bits even where another kernel would choose otherwise now. A step that follows another run's
log has that log too, but for what nobody's kernel can have led to; where the other's is missing or
damaged, the step is recorded like a trainer's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallystick.commit.log import BOUNDED, Section
from tallystick.contracts.replay.step import LoggedStep, Sink
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.rounded.opening import count_of
from tallystick.disk.files import remove, scratch_directory
from tallystick.disk.regular import size_of
from tallystick.errors import CounterpartyError, StorageError, StoreError, UsageError
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.opening.parts import summed
from tallystick.opening.quantity import Site
from tallystick.program.ir import Program
from tallystick.run.logs.followed import FollowedRun
from tallystick.run.logs.reader import LogReader, LogShape, keeps_log
from tallystick.run.logs.report import Found, damaged_log, log_record, step_record
from tallystick.run.logs.writer import (
    ENTRY,
    HEADER,
    RAW,
    TRAILER,
    ZSTD,
    LogDirectory,
    LogWriter,
    log_path,
)
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal

# Of elements with K terms of like size about 4·K^1.5·2⁻³⁰ lie within 2E of a boundary (NUMERICS
# 14.4, 14.6, B = 32); cancellation makes it several times as many.
_RATE = 16 * 2.0**-30
_WORD = 2  # bytes of an entry, and of a block's count


def _terms(program: Program, section: Section) -> int:
    """How many terms an element of this output is the sum of (NUMERICS 13.3)."""
    node = program.nodes[section.node]
    types = tuple(None if v is None else program.type_of(v) for v in node.inputs)
    site = Site(node.op, node.attrs, types, node.out_types, section.output, 0, program.contract)
    return count_of(summed(site))


def step_log_bytes(program: Program, sections: Sequence[Section]) -> int:
    """Bytes that one step's log will have, about; uncompressed."""
    total: float = HEADER.size + TRAILER.size + len(sections) * ENTRY.size
    spare = parse_contract(program.contract).bits - 32  # a coarser grid has fewer boundaries
    for section in sections:
        if section.form != BOUNDED:
            total += section.packed_bytes
            continue
        if section.elements == 0:
            continue
        terms = _terms(program, section)
        share = min(1.0, _RATE * 2.0**spare * terms**1.5)
        total += _WORD * (section.blocks + math.ceil(share * section.elements))
    return int(total)


def run_log_bytes(job: Job, store: RunStore | None, sections: Sequence[Section]) -> int:
    """Bytes of all logs of a run of `job`; what there already is of it is the better guess."""
    steps = store.logged_steps() if store is not None else []
    if store is not None and steps:
        return store.log_bytes() * job.steps // len(steps)
    return step_log_bytes(job.program, sections) * job.steps


class ScratchLogs(LoggedSteps):
    """Records logs in the directory `path` and removes them, for an estimate or a benchmark.

    `bytes` are those of the last step's log.
    """

    def __init__(self, job: Job, path: Path) -> None:
        super().__init__(job.program)
        self._path = path
        self._files = LogDirectory(path, job.digest, self.logged.sections, self.logged.form)
        self.bytes = 0

    def _open(self, step: int) -> LoggedStep:
        return self._recorded(step, self._files.writer(step))

    def _ended(self, step: LoggedStep, digest: bytes) -> bytes:
        """The digest of the step's log, which is then removed."""
        path = log_path(self._path, step.number)
        self.bytes = size_of(path, "log")
        remove(path)
        return digest


@contextmanager
def scratch_logs(job: Job) -> Iterator[ScratchLogs | None]:
    """Logs for steps that do not count; None where the job's contract keeps none."""
    if not keeps_log(job):
        yield None
        return
    with scratch_directory() as directory:
        yield ScratchLogs(job, directory)


class TrainerLogs(LoggedSteps):
    """The logs of one call of `train`."""

    def __init__(
        self,
        job: Job,
        store: RunStore,
        journal: Journal,
        followed: FollowedRun | None,
        compression: int,
    ) -> None:
        super().__init__(job.program, count_taken=True)
        self._store, self._journal, self._other = store, journal, followed
        self._shape = LogShape(job)
        self._files = LogDirectory(
            store.logs_path, job.digest, self.logged.sections, self.logged.form, compression
        )
        self._writer: LogWriter | None = None
        self._repeating = False  # the step at hand follows this run's own log
        self._found: Found | None = None
        self.differs = any(what == "state" for _, what in journal.content.followed)
        self._drop_unjournaled()

    def _drop_unjournaled(self) -> None:
        """A log whose step the journal does not have: its process ended between the two."""
        for step in self._store.logged_steps():
            if step >= len(self._journal.content.losses):
                remove(self._store.log_path(step))

    @property
    def follows(self) -> bool:
        """True while another run's logs are followed: the next step then needs to know whether this
        run's states are that run's (`compare`)."""
        return self._other is not None and not self.differs

    def session(self) -> dict[str, Any]:
        """What the journal's session record says about logs."""
        if self._other is None:
            return {}
        return {"replay": self._other.claim.run_root.hex()}

    def estimate(self) -> int:
        """Bytes that all logs of the run will have, about."""
        return run_log_bytes(self._shape.job, self._store, self.logged.sections)

    # -- a step ------------------------------------------------------------------------------------

    def _open(self, step: int) -> LoggedStep:
        """Choose between recording and following, and open the files. Raises StorageError."""
        self._found = None
        own = self._own(step)
        self._repeating = own is not None
        if own is not None:
            return self._followed(step, own, self.digest_only)
        other = self._others(step)
        if other is not None:
            return self._followed(step, other, self._written)
        return self._recorded(step, self._written(step))

    def _written(self, step: int) -> Sink:
        """A file of the run that takes the step's log."""
        self._writer = self._files.writer(step)
        return self._into(self._writer)

    def _into(self, writer: LogWriter) -> Sink:
        """The sink over `writer`; a declared cheat's sink changes sections on the way."""
        return writer

    def _own(self, step: int) -> LogReader | None:
        """This run's own log of a step that the journal has already."""
        logs = self._journal.content.logs
        if step >= len(logs):
            return None
        try:
            return self._shape.open(self._store, step, logs[step])
        except (CounterpartyError, StorageError):
            return None  # recorded once more, and then compared with the journal's digest

    def _others(self, step: int) -> LogReader | None:
        """The log of the run that is followed, as long as its states are those of this run."""
        other = self._other
        digest = other.log_digest(step) if other is not None and not self.differs else None
        if other is None or digest is None:
            return None
        try:
            return self._shape.open(other.store, step, digest)
        except StoreError:
            raise  # a store that is away is no finding: the same command goes on later
        except (CounterpartyError, StorageError) as error:
            self._found = log_record(step, [damaged_log(step, error)])
            return None

    def _ended(self, step: LoggedStep, digest: bytes) -> bytes:
        """The digest of the step's log (COMMITMENTS 10.5)."""
        if self._writer is not None:
            self._files.finished(self._writer)
            self._writer = None
        if self._repeating:
            return self._repeated(step.number, digest)
        if step.follows:
            self._found = step_record(step)
        return digest

    def _repeated(self, step: int, digest: bytes) -> bytes:
        """The digest of a log that was followed once more and gave `digest`."""
        return digest

    def abort(self) -> None:
        """Drop the files of the step."""
        super().abort()
        self._writer = None

    # -- the journal ------------------------------------------------------------------------------

    def found(self) -> Found | None:
        """What was found in the followed run's log of the last step; None if none was followed."""
        return self._found

    def flush(self) -> None:
        """Make all logs durable. Raises StorageError."""
        self._files.flush()

    def compare(self, step: int, digests: Mapping[str, bytes]) -> Found | None:
        """The first checkpoint at which the followed run's state is another one. From then on
        its logs say nothing here, and steps are recorded."""
        if self._other is None or self.differs:
            return None
        found = self._other.compare(step, digests)
        self.differs = found is not None
        return found


MakeLogs = Callable[[Job, RunStore, Journal, FollowedRun | None, int], TrainerLogs]


def followed_run(job: Job, replay: Path | None, compress: bool) -> FollowedRun | None:
    """The run whose logs are followed, if one is. It writes nothing. Raises UsageError where the
    job keeps no logs, and as FollowedRun.open."""
    check_logs_kept(job, replay, compress)
    return FollowedRun.open(replay, job) if replay is not None else None


def check_logs_kept(job: Job, replay: Path | None, compress: bool) -> None:
    """Raise UsageError for what is asked of logs, where the job keeps none."""
    if not keeps_log(job) and (replay is not None or compress):
        raise UsageError(
            f"A run under {job.commitment.contract} has no rounding logs.",
            f"Leave out {'--replay' if replay is not None else '--zstd'}, or make the job with "
            "--contract replay/1.",
        )


def trainer_logs(
    job: Job,
    store: RunStore,
    journal: Journal,
    replay: Path | None,
    compress: bool,
    make: MakeLogs = TrainerLogs,
) -> TrainerLogs | None:
    """The logs of a run of `job`, None where its contract keeps none.

    `replay` is the run whose logs are followed; `make` makes the logs. Raises UsageError where the
    run was begun following another run (or none), and as `followed_run`.
    """
    followed = followed_run(job, replay, compress)
    if not keeps_log(job):
        return None
    now = followed.claim.run_root.hex() if followed is not None else None
    before = [session.get("replay") for session in journal.content.sessions]
    if before and before[-1] != now:
        begun = f"following the run {before[-1][:16]}…" if before[-1] else "without --replay"
        raise UsageError(
            f"{store.directory} contains a run that was begun {begun}.",
            "Continue it with the command that began it, or choose another directory with --out.",
        )
    compression = ZSTD if compress else RAW
    return make(job, store, journal, followed, compression)
