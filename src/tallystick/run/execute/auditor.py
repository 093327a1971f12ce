"""Repeat a run, or a segment of it, and compare (DESIGN 9, `audit`).

The auditor's own execution decides. It begins at genesis, or at a stored checkpoint whose bytes
hash to the committed root. The auditor compares roots at every checkpoint and losses at every
step. Where the run has node digests of a step, the auditor compares them while it executes that
step, so that it can name the operator of a difference. Under a contract that keeps logs, every
step follows the run's own log. An entry to which no kernel can have led is a finding
(NUMERICS 14.7).

`check_claim` checks what can be checked without executing, `repeat` executes, and `report_of` makes
the report. One call of `repeat` goes through the whole run, or several go through segments between
stored states (`run/parallel`, docs/adr/0021-parallel-audit.md), with the same report.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.commit.signing import PublicKey
from tallystick.commit.state import is_finite
from tallystick.contracts.replay.findings import KEPT, UNFIT, LogCorruptError
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import (
    CounterpartyError,
    StoreError,
    TallystickError,
    UsageError,
)
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine, check_environment
from tallystick.run.execute.listener import Listener, Silent, Steady
from tallystick.run.logs.followed import OwnLogs, own_logs
from tallystick.run.logs.report import Found, finding_sentence
from tallystick.run.show.audit_report import AuditReport, Difference, StretchOutcome
from tallystick.run.store.claim import Claim, read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import strangers
from tallystick.run.store.journal import loss_value
from tallystick.run.store.unsigned import NodeTrace


@dataclass
class _Audit:
    """One execution under way: the whole run, or a segment of it."""

    store: RunStore
    job: Job
    claim: Claim
    listener: Listener
    context: ExecutionContext
    genesis: State | None
    began_at: int = 0
    checkpoints: int = 0
    losses: int = 0
    stored: int = 0
    difference: Difference | None = None
    at_start: bool = False
    _loss_step: int | None = None
    _node: tuple[int, int, NodeTrace] | None = None
    _bad_trace: tuple[int, str] | None = None
    _loss_pair: tuple[int, int] = (0, 0)
    traces: set[int] = field(default_factory=set)
    logs: OwnLogs | None = None

    def start(self, first: int) -> tuple[State, int]:
        """The newest state at or before `first` that the commitment covers."""
        step = self.began_at = start_step(self.store, self.claim, first)
        if not step:
            return self.genesis or self.job.genesis(), 0
        try:
            return self.store.load_state(self.job, step, self.claim.roots[step]), step
        except CounterpartyError as error:
            self.at_start = True
            self.difference = self._stored_difference(step, error)
            raise _FoundError from error

    def run(self, first: int, last: int) -> int:
        """Repeat from before `first` to the checkpoint at or after `last`; the step reached."""
        state, step = self.start(first)
        self.logs = own_logs(self.store, self.job, self.claim.journal, count=True)
        engine = Engine(self.job, state, step, self.context, log=self.logs)
        self.traces = set(self.store.traced_steps())
        agreed = step
        self.listener.begin(self.job, step)
        while engine.step < self.claim.last_step and (engine.step < last or agreed < last):
            began = time.monotonic()
            try:
                bits = self._step(engine)
            except LogCorruptError as error:
                self._unreadable(error, agreed)
                raise
            end = engine.step == self.claim.last_step
            if engine.step in self.claim.roots:
                self._compare(engine, agreed)
                agreed = engine.step
            if not end and engine.stops(bits):
                why = "by its slot" if is_finite(bits) else "on a non-finite loss"
                self._ended(engine, agreed, f"stops {why} earlier")
            self.listener.step(engine.step - 1, loss_value(bits), time.monotonic() - began)
        if engine.step == self.claim.last_step:
            self._check_end(engine, agreed)
        return engine.step

    def _unreadable(self, error: LogCorruptError, agreed: int) -> None:
        """Report a step that cannot be repeated: its log is missing, or is not the journal's."""
        interval = (agreed, error.step + 1)
        self.difference = Difference(
            "log", interval, error.message, error.step, error.node, error.operator
        )
        raise _FoundError from error

    def _step(self, engine: Engine) -> int:
        step = engine.step
        theirs: NodeTrace | None = None
        if step in self.traces:
            try:
                theirs = self.store.load_trace(self.job, step)
            except CounterpartyError as error:  # a disk or a store that fails is no difference
                self._bad_trace = self._bad_trace or (step, str(error))
        bits, _, mine = engine.run(trace=theirs is not None)
        if theirs is not None and mine is not None and self._node is None:
            node = mine.first_difference(theirs)
            if node is not None:
                self._node = (step, node, theirs)
        self.losses += 1
        if bits != self.claim.journal.losses[step] and self._loss_step is None:
            self._loss_step = step
            self._loss_pair = (self.claim.journal.losses[step], bits)
        return bits

    def _compare(self, engine: Engine, agreed: int) -> None:
        """Compare the state after the last step with the committed root."""
        step = engine.step
        digests = engine.state.digests()
        root, committed = engine.state.root_of(digests), self.claim.roots[step]
        self.checkpoints += 1
        if root != committed:
            self._differs("state", (agreed, step), committed.hex(), root.hex())
        if self._loss_step is not None:
            self._differs("loss", (agreed, step), *map(str, map(loss_value, self._loss_pair)))
        if self._bad_trace is not None or self._node is not None:
            self._differs("trace", (agreed, step), "", "")
        if step in self.store.stored_steps():
            self._compare_stored(step, committed, digests)

    def _compare_stored(self, step: int, root: bytes, mine: dict[str, bytes]) -> None:
        """Compare the stored file of a step whose state was just found equal to the commitment."""
        self.stored += 1
        try:
            state = self.store.read_state(self.job, step)
            theirs = state.digests()
        except CounterpartyError as error:
            self.difference = self._stored_difference(step, error)
            raise _FoundError from error
        slot = next((name for name in sorted(mine) if mine[name] != theirs[name]), None)
        if slot is not None:
            self.difference = Difference(
                "checkpoint",
                (step, step),
                f"The stored checkpoint of step {step} does not have the committed state: slot "
                f"{slot} differs. The commitment itself was repeated to the same bits.",
                step=step,
                slot=slot,
                committed=mine[slot].hex(),
                computed=theirs[slot].hex(),
            )
            raise _FoundError

    def _stored_difference(self, step: int, error: TallystickError) -> Difference:
        return Difference("checkpoint", (step, step), error.message, step=step)

    def _differs(self, kind: str, interval: tuple[int, int], committed: str, computed: str) -> None:
        """Build the report of a difference and stop."""
        low, high = interval
        step = node = operator = None
        extra = ""
        if self._node is not None:
            step, node, _ = self._node
            operator = self.job.loose_terms.program_at(step).nodes[node].op
            extra = f" It begins in step {step} at node {node} ({operator})."
        elif self._loss_step is not None and kind == "state":
            extra = f" The loss first differs in step {self._loss_step}."
        if kind == "state":
            sentence = f"The states differ in the checkpoint interval ({low}, {high}].{extra}"
        elif kind == "loss":
            step = self._loss_step
            sentence = (
                f"The journal's loss of step {step} is not the committed one, though the states "
                f"agree: the journal was altered."
            )
        elif self._bad_trace is not None:
            step = self._bad_trace[0]
            sentence = self._bad_trace[1]
        else:
            sentence = (
                f"The node digests of step {step} are not those of the committed run, though the "
                f"states agree: node {node} ({operator}) differs."
            )
        self.difference = Difference(
            kind, interval, sentence, step, node, operator, None, committed, computed
        )
        raise _FoundError

    def _ended(self, engine: Engine, agreed: int, why: str) -> None:
        self.difference = Difference(
            "end",
            (agreed, engine.step),
            f"The job {why}: after step {engine.step - 1}, the run goes on to "
            f"{self.claim.last_step}.",
            step=engine.step - 1,
        )
        raise _FoundError

    def _check_end(self, engine: Engine, agreed: int) -> None:
        """The run may end before the job's last step only where the job stops it (6.2, 7.6.7)."""
        losses = self.claim.journal.losses
        stopped = bool(losses) and engine.stops(losses[-1])
        if engine.step < self.job.steps and not stopped:
            self._ended(engine, agreed, "has more steps")


class _FoundError(Exception):
    """The audit found a difference and has put it into its `difference`."""


@dataclass(frozen=True)
class Checked:
    """A run whose claim stands: what is left is to execute it. `genesis` is state[0]."""

    store: RunStore
    job: Job
    claim: Claim
    notices: tuple[str, ...]
    genesis: State | None = None


def audit_run(
    directory: Path,
    job: Job | None = None,
    steps: tuple[int, int] | None = None,
    *,
    context: ExecutionContext = DEFAULT,
    trust: Sequence[PublicKey] | None = None,
    listener: Listener | None = None,
) -> AuditReport:
    """Repeat the run in `directory`, whole or for `steps` = (A, B): steps A to B - 1.

    `job` is the client's own copy. Without it the audit uses the run's copy. A segment begins at
    the run's newest stored checkpoint at or before A and ends at the first checkpoint at or
    after B. Raises CannotCheckError for an unfinished run or missing files, CounterpartyError
    for files that do not match their digests, UsageError for steps outside the run.
    """
    told = Steady(listener or Silent())
    with context.entered():
        began = time.monotonic()
        checked = check_claim(Path(directory), job, trust, keep_genesis=steps is None)
        first, last = part_of(steps, checked.claim.last_step)
        outcome = repeat(checked, first, last, context, told)
        for notice in checked.notices:
            told.notice(notice)
        return report_of(checked, [outcome], steps is None, time.monotonic() - began)


def check_claim(
    directory: Path,
    job: Job | None = None,
    trust: Sequence[PublicKey] | None = None,
    keep_genesis: bool = False,
) -> Checked:
    """Check everything about a finished run that needs no execution. Raises as `audit_run`.

    Without `keep_genesis` there need be memory for one state only: a stored one may be loaded.
    """
    check_environment()
    store = RunStore(directory)
    store.require()
    notices = []
    own = job
    if own is None:
        own = store.job()
    else:
        difference = _own_copy_problem(store, own)
        if difference:
            notices.append(difference)
    genesis: State | None = own.verify()
    if not keep_genesis:
        genesis = None
    claim = read_claim(store, own, trust)
    notices += [f"{p.path}: {p.message} {p.next_action}" for p in strangers(store, claim.journal)]
    return Checked(store, own, claim, tuple(notices), genesis)


def repeat(
    checked: Checked, first: int, last: int, context: ExecutionContext, listener: Listener
) -> StretchOutcome:
    """Execute from the newest stored state at or before `first` to the checkpoint at or after
    `last`, or to the first difference. The caller is in `context`. Raises as `audit_run`."""
    began = time.monotonic()
    store, job, claim = checked.store, checked.job, checked.claim
    audit = _Audit(store, job, claim, listener, context, checked.genesis)
    try:
        reached = audit.run(first, last)
    except _FoundError:
        assert audit.difference is not None
        reached = audit.difference.interval[1]
    logs = audit.logs
    return StretchOutcome(
        first=audit.began_at,
        last=reached,
        checkpoints=audit.checkpoints,
        losses=audit.losses,
        stored=audit.stored,
        isa=context.isa,
        threads=context.threads,
        seconds=time.monotonic() - began,
        difference=audit.difference,
        at_start=audit.at_start,
        choices=(logs.choices.left, logs.choices.taken) if logs else None,
        findings=logs.reported if logs else [],
        unnamed=logs.unnamed if logs else 0,
    )


def report_of(
    checked: Checked, outcomes: Sequence[StretchOutcome], whole: bool, seconds: float
) -> AuditReport:
    """The report of executions, in the order of their steps, of which the last one alone may have
    found a difference."""
    claim, end = checked.claim, outcomes[-1]
    findings: list[Found] = []
    unnamed = 0
    for one in outcomes:
        room = max(0, KEPT - len(findings))
        findings += one.findings[:room]
        unnamed += one.unnamed + len(one.findings[room:])
    choices = [one.choices for one in outcomes if one.choices is not None]
    difference = end.difference
    if difference is None and findings:
        difference = _forged(claim, findings[0], outcomes[0].first)
    return AuditReport(
        accepted=difference is None,
        run=checked.store.directory,
        job_digest=checked.job.digest,
        contract=checked.job.commitment.contract,
        run_root=claim.run_root,
        signer=claim.commitment.signer.key_id,
        trusted=claim.trusted,
        first_step=outcomes[0].first,
        last_step=end.last,
        whole=whole,
        checkpoints_compared=sum(one.checkpoints for one in outcomes),
        losses_compared=sum(one.losses for one in outcomes),
        stored_compared=sum(one.stored for one in outcomes),
        isa=", ".join(sorted({one.isa for one in outcomes})),
        threads=max(one.threads for one in outcomes),
        seconds=seconds,
        difference=difference,
        notices=list(checked.notices),
        choices=(sum(c[0] for c in choices), sum(c[1] for c in choices)) if choices else None,
        findings=findings,
        unnamed=unnamed,
    )


def _forged(claim: Claim, found: Found, began: int) -> Difference:
    """The report of a log with an entry to which no kernel can have led, although the states
    agree."""
    step = found["step"]
    if found["kind"] == UNFIT:
        said = (
            f"The states agree, but the log does not fit the auditor's values: "
            f"{finding_sentence(found)}. An honest log can have such an entry after a sum whose "
            "terms cancel (NUMERICS 14.9.2)."
        )
    else:
        said = f"The states agree, but the log is not an honest one: {finding_sentence(found)}."
    before = max((s for s in claim.roots if s <= step), default=began)
    return Difference(
        "log",
        (max(before, began), step + 1),
        said,
        step,
        found["node"],
        found["operator"],
    )


def start_step(store: RunStore, claim: Claim, first: int) -> int:
    """The newest step at or before `first` with a stored state that the commitment covers; 0 is
    the job's own initial state."""
    stored = (s for s in reversed(store.stored_steps()) if 0 < s <= first and s in claim.roots)
    return next(stored, 0)


def part_of(steps: tuple[int, int] | None, last: int) -> tuple[int, int]:
    """The steps to audit of a run of `last` steps. Raises UsageError for others than it has."""
    if steps is None:
        return 0, last
    first, end = steps
    if not 0 <= first < end <= last:
        raise UsageError(
            f"The run has {last} steps, so it has no range {first}:{end}.",
            f"Choose A and B with 0 <= A < B <= {last}.",
        )
    return first, end


def _own_copy_problem(store: RunStore, job: Job) -> str:
    """Say how the run's own copy of the job differs from the client's; empty if it does not."""
    try:
        copy = store.job()
        copy.verify()
    except StoreError:
        raise  # out of reach is not altered
    except TallystickError as error:
        return f"The run's own copy of the job is not intact: {error.message}"
    if copy.digest != job.digest:
        return "The run's own copy is of another job than the one given."
    return ""
