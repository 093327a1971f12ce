"""The rounding logs of a trainer: recorded, taken from another run, or its own once more.

Theory of operation. A step's log has its name in `logs/` before the step's record is in the
journal, and the record holds its digest: so every step that counts has its log, and a log that no
record names does not count. Before a checkpoint is journaled, the logs before it are made
durable. Steps repeated after a restart follow the run's own logs, so that they get the same
bits even where another kernel would choose otherwise now. A step that follows another run's
log has that log too, but for what nobody's kernel can have led to; where the other's is missing or
damaged, the step is recorded like a trainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallystick.commit.log import FORMS
from tallystick.disk.files import remove, scratch_directory
from tallystick.disk.regular import size_of
from tallystick.errors import CounterpartyError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.kernels.table import Run
from tallystick.numerics.registry import OpSpec
from tallystick.program.ir import Node
from tallystick.rounding import codec
from tallystick.rounding.log_file import LogDirectory, LogWriter, log_path
from tallystick.rounding.log_reader import LogReader
from tallystick.rounding.session import DigestOnly, Sink
from tallystick.run.logs.estimate import run_log_bytes
from tallystick.run.logs.findings_record import Found, damaged_log, log_record
from tallystick.run.logs.other_run import FollowedRun
from tallystick.run.logs.rerun import LogShape, StepFindings, follower, keeps_log, recorder
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal


class TrainerLogs:
    """The logs of one call of `train` (engine.StepLog)."""

    def __init__(
        self,
        job: Job,
        store: RunStore,
        journal: Journal,
        followed: FollowedRun | None,
        compression: int,
    ) -> None:
        self._store, self._journal, self._followed = store, journal, followed
        self._shape = shape = LogShape(job)
        form = FORMS[shape.contract.form]
        self._directory = LogDirectory(
            store.logs_path, job.digest, shape.sections, form, compression
        )
        self._writer: LogWriter | None = None
        self._recorder = recorder(shape, self._sink)
        self._follower = follower(shape, lambda _: self._taken(), self._sink, count=True)
        self._findings = StepFindings(self._follower)
        self._following = self._repeating = False
        self._reader: LogReader | None = None
        self._found: Found | None = None
        self.differs = any(what == "state" for _, what in journal.content.followed)
        self._drop_unjournaled()

    def _drop_unjournaled(self) -> None:
        """A log whose step the journal does not have: its process ended between the two."""
        for step in self._store.logged_steps():
            if step >= len(self._journal.content.losses):
                remove(self._store.log_path(step))

    def session(self) -> dict[str, Any]:
        """What the journal's session record says about logs."""
        if self._followed is None:
            return {}
        return {"replay": self._followed.claim.run_root.hex()}

    def estimate(self) -> int:
        """Bytes that all logs of the run will have, about."""
        return run_log_bytes(self._shape.job, self._store, self._shape.sections)

    # -- engine.StepLog ----------------------------------------------------------------------------

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The kernel of a node, which records or follows as the step at hand does."""
        record = self._recorder.kernels(index, node, spec)
        follow = self._follower.kernels(index, node, spec)
        if record is None or follow is None:
            return None

        def run(*operands: Any) -> None:
            (follow if self._following else record)(*operands)

        return run

    def begin(self, step: int) -> None:
        """Choose what the step does, and open its files. Raises StorageError."""
        self._found = None
        self._repeating = False
        self._reader = self._own(step) or self._others(step)
        self._following = self._reader is not None
        self._findings.begin()
        (self._follower if self._following else self._recorder).begin(step)

    def _sink(self, step: int) -> Sink:
        """Where the step's log goes: nowhere if it is there already."""
        if self._repeating:
            return DigestOnly(step, self._shape.sections)
        self._writer = self._directory.writer(step)
        return self._into(self._writer)

    def _into(self, writer: LogWriter) -> Sink:
        """What takes the sections that `writer` writes; a declared cheat's changes them."""
        return writer

    def _taken(self) -> LogReader:
        assert self._reader is not None
        return self._reader

    def _own(self, step: int) -> LogReader | None:
        """This run's own log of a step that the journal has already."""
        logs = self._journal.content.logs
        if step >= len(logs):
            return None
        try:
            reader = self._shape.open(self._store, step, logs[step])
        except (CounterpartyError, StorageError):
            return None  # recorded once more, and then compared with the journal's digest
        self._repeating = True
        return reader

    def _others(self, step: int) -> LogReader | None:
        """The log of the run that is followed, as long as its states are those of this run."""
        other = self._followed
        digest = other.log_digest(step) if other is not None and not self.differs else None
        if other is None or digest is None:
            return None
        try:
            return self._shape.open(other.store, step, digest)
        except (CounterpartyError, StorageError) as error:
            self._found = log_record(step, [damaged_log(step, error)])
            return None

    def finish(self) -> bytes:
        """End the step's log: its digest (COMMITMENTS 10.5)."""
        session = self._follower if self._following else self._recorder
        step = session.step
        digest = session.finish()
        if self._writer is not None:
            self._directory.finished(self._writer)
            self._writer = None
        if self._following and not self._repeating:
            self._found = self._findings.finish(step)
        return self._repeated(step, digest) if self._repeating else digest

    def _repeated(self, step: int, digest: bytes) -> bytes:
        """The digest of a log that was followed once more and gave `digest`."""
        return digest

    def abort(self) -> None:
        """Drop what the step has left behind."""
        self._follower.discard()
        self._recorder.discard()
        self._writer = None

    # -- the journal ------------------------------------------------------------------------------

    def found(self) -> Found | None:
        """What was found in the followed run's log of the last step; None if none was followed."""
        return self._found

    def flush(self) -> None:
        """Make all logs durable. Raises StorageError."""
        self._directory.flush()

    def compare(self, step: int, digests: Mapping[str, bytes]) -> Found | None:
        """The first checkpoint at which the followed run's state is another one. From then on
        its logs say nothing here, and steps are recorded."""
        if self._followed is None or self.differs:
            return None
        found = self._followed.compare(step, digests)
        self.differs = found is not None
        return found


MakeLogs = Callable[[Job, RunStore, Journal, FollowedRun | None, int], TrainerLogs]


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
    job keeps no logs or the run was begun following another run (or none), and as
    FollowedRun.open.
    """
    if not keeps_log(job):
        if replay is not None or compress:
            raise UsageError(
                f"A run under {job.commitment.contract} has no rounding logs.",
                f"Leave out {'--replay' if replay is not None else '--zstd'}, or make the job "
                "with --contract replay/1.",
            )
        return None
    followed = FollowedRun.open(replay, job) if replay is not None else None
    now = followed.claim.run_root.hex() if followed is not None else None
    before = [session.get("replay") for session in journal.content.sessions]
    if before and before[-1] != now:
        begun = f"following the run {before[-1][:16]}…" if before[-1] else "without --replay"
        raise UsageError(
            f"{store.directory} holds a run that was begun {begun}.",
            "Go on with the same command, or choose another --out directory.",
        )
    compression = codec.ZSTD if compress else codec.RAW
    return make(job, store, journal, followed, compression)


class ScratchLogs:
    """Records logs for nobody: what an estimate or a benchmark executes steps with."""

    def __init__(self, job: Job, path: Path, compression: int = codec.RAW) -> None:
        shape = LogShape(job)
        form = FORMS[shape.contract.form]
        self._directory = LogDirectory(path, job.digest, shape.sections, form, compression)
        self._recorder = recorder(shape, self._directory.writer)
        self._step = 0
        self.bytes = 0  # of the last step's log

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The kernel of a node (program.executor.KernelHook)."""
        return self._recorder.kernels(index, node, spec)

    def begin(self, step: int) -> None:
        """Record step `step`. Raises StorageError."""
        self._step = step
        self._recorder.begin(step)

    def finish(self) -> bytes:
        """The digest of the step's log, which is then removed."""
        digest = self._recorder.finish()
        path = log_path(self._directory.path, self._step)
        self.bytes = size_of(path, "log")
        remove(path)
        return digest

    def abort(self) -> None:
        """Drop the step."""
        self._recorder.discard()


@contextmanager
def scratch_logs(job: Job) -> Iterator[ScratchLogs | None]:
    """Logs for steps that do not count; None where the job's contract keeps none."""
    if not keeps_log(job):
        yield None
        return
    with scratch_directory() as directory:
        yield ScratchLogs(job, directory)
