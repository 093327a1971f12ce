"""`audit`, put together once for every face: what it is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.signing import PublicKey
from tallystick.devices.context import context_on
from tallystick.job.job import Job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Listener
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.store.directory import RunStore


@dataclass(frozen=True)
class Auditing(ParallelOptions):
    """What `audit` is asked for, beside the run and the job, by the names of its keywords."""

    steps: tuple[int, int] | None = None
    trust: Sequence[PublicKey] | None = None

    @property
    def by_segments(self) -> bool:
        """Whether the segments between stored states are repeated one by one (ADR 0021): where one
        of these options is given, which a whole audit has not."""
        asked = (self.workers, self.ray, self.state, self.sample, self.secret, self.isa)
        return any(value is not None for value in asked)


def audit_as(
    asked: Auditing, run: Path, job: Job | None, listener: Listener | None = None
) -> AuditReport:
    """Repeat the run at `run` as `asked`. Errors: see `tallystick.audit`."""
    if asked.by_segments:
        return audit_in_parallel(run, job, asked.steps, asked, trust=asked.trust, listener=listener)

    def contract() -> str:
        return (job or RunStore(run).job()).commitment.contract

    context = context_on(asked.device, contract, asked.threads)
    return audit_run(run, job, asked.steps, context=context, trust=asked.trust, listener=listener)
