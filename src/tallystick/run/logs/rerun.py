"""Executing a run's steps again by following its own rounding logs: auditors, provers, resume.

Under `replay/1` a step is a function of the job and of its log (NUMERICS 14.1), so whoever
repeats a step of a run, on whatever hardware, needs the run's log of it. A log counts only if it
hashes to what the journal says, and the journal's digests only as far as the log chain of a
committed state covers them; the roots compared at checkpoints show that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tallystick.commit.log import FORMS, Section
from tallystick.job.job import Job
from tallystick.kernels.table import Run
from tallystick.numerics.contracts import Contract, parse_contract
from tallystick.numerics.registry import OpSpec
from tallystick.program.ir import Node, Program
from tallystick.rounding.bounded import BoundedFollower, BoundedRecorder
from tallystick.rounding.findings import KEPT, Choices, Finding, Findings
from tallystick.rounding.log_reader import Expected, LogReader, open_log
from tallystick.rounding.published import PublishedFollower, PublishedRecorder
from tallystick.rounding.sections import operators_of, sections_of
from tallystick.rounding.session import LogSource, MakeSink, Session
from tallystick.run.logs.findings_record import Found, log_record
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent


@dataclass(frozen=True)
class LogShape:
    """What every log of a run of `job` must be; the job's contract keeps logs."""

    job: Job

    @cached_property
    def contract(self) -> Contract:
        return parse_contract(self.job.commitment.contract)

    @property
    def program(self) -> Program:
        return self.job.program

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        return sections_of(self.program, self.contract)

    @cached_property
    def expected(self) -> Expected:
        operators = operators_of(self.program, self.sections)
        return Expected(self.job.digest, self.sections, operators, FORMS[self.contract.form])

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


def recorder(shape: LogShape, sink: MakeSink) -> Session:
    """What records the logs of a run in the contract's form."""
    if shape.contract.form == "published":
        return PublishedRecorder(shape.program, sink)
    return BoundedRecorder(shape.program, sink)


def follower(
    shape: LogShape, source: LogSource, sink: MakeSink | None, count: bool = False
) -> Session:
    """What follows logs in the contract's form; `count` asks for an exact number of choices."""
    if shape.contract.form == "published":
        return PublishedFollower(shape.program, source, sink)
    return BoundedFollower(shape.program, source, sink, count)


def keeps_log(job: Job) -> bool:
    """Whether a run of `job` has rounding logs."""
    return parse_contract(job.commitment.contract).keeps_log


class StepFindings:
    """What a follower has found in the step at hand; `begin` forgets the step before."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self) -> None:
        self._session.findings, self._session.choices = Findings(), Choices()

    def finish(self, step: int) -> Found:
        """The record of the step that has just ended."""
        found, choices = self._session.findings, self._session.choices
        record = log_record(
            step, [finding_dict(f) for f in found.kept], choices.left, choices.taken
        )
        record["unnamed"] += found.count - len(found.kept)
        return record


def finding_dict(finding: Finding) -> Found:
    """A finding of a follower as it is journaled and printed."""
    return {
        "kind": finding.kind,
        "step": finding.step,
        "node": finding.node,
        "operator": finding.operator,
        "output": finding.output,
        "element": finding.element,
        "direction": finding.direction,
        "detail": finding.detail,
    }


class OwnLogs:
    """What follows the logs of the run at `store` step by step (engine.StepLog).

    The digest that enters the chain is the one the run has committed to, whatever was found in
    the log: whether the run's values are right is one question, whether its log is another.
    With `count` every choice that the log has left is looked at, and `taken` is exact.
    """

    def __init__(
        self, store: RunStore, job: Job, journal: JournalContent, count: bool = False
    ) -> None:
        self._store, self._journal = store, journal
        self._shape = LogShape(job)
        self._session = follower(self._shape, lambda _: self._taken(), None, count)
        self._findings = StepFindings(self._session)
        self._reader: LogReader | None = None
        self._digest = b""
        self.left = self.taken = self.unnamed = 0
        self.findings: list[Found] = []

    def _taken(self) -> LogReader:
        assert self._reader is not None
        return self._reader

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The kernel of a node (program.executor.KernelHook)."""
        return self._session.kernels(index, node, spec)

    def begin(self, step: int) -> None:
        """Check and open the log of `step`. Raises LogCorruptError where it is missing or not
        the one in the journal, StorageError."""
        logs = self._journal.logs
        digest = logs[step] if step < len(logs) else bytes(32)
        self._reader, self._digest = self._shape.open(self._store, step, digest), digest
        self._findings.begin()
        self._session.begin(step)

    def finish(self) -> bytes:
        """The digest of the log that was followed."""
        step = self._session.step
        self._session.finish()
        record = self._findings.finish(step)
        self.left += record["left"]
        self.taken += record["taken"]
        room = max(0, KEPT - len(self.findings))
        self.findings += record["findings"][:room]
        self.unnamed += record["unnamed"] + len(record["findings"][room:])
        return self._digest

    def abort(self) -> None:
        """Forget the step."""
        self._session.discard()


def own_logs(
    store: RunStore, job: Job, journal: JournalContent, count: bool = False
) -> OwnLogs | None:
    """What an engine needs to repeat steps of the run at `store`: an auditor's, a prover's. None
    where the job's contract keeps no log."""
    return OwnLogs(store, job, journal, count) if keeps_log(job) else None
