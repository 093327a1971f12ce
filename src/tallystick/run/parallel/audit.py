"""An audit whose segments are repeated by several workers, or a sample of them by any number.

The report is that of a serial audit (`run.execute.auditor`), whatever the number of workers, but
for the machine's own figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tallystick import _core
from tallystick.commit.signing import PublicKey
from tallystick.devices.environment import exact_environment
from tallystick.disk.mounts import url_of
from tallystick.disk.regular import lies_in
from tallystick.errors import CannotCheckError, TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.run.execute.auditor import Checked, check_claim, report_of
from tallystick.run.execute.listener import Listener, Silent
from tallystick.run.parallel.driver import AuditDriver, Result, Watcher
from tallystick.run.parallel.processes import Processes, SegmentExecutor
from tallystick.run.parallel.sample import (
    Size,
    confidence,
    count_of,
    draw,
    new_secret,
    same_draw,
    size_of,
)
from tallystick.run.parallel.state import AuditPlan, Kept, kept
from tallystick.run.parallel.task import Segment, Task, binding, foretell, segments_of
from tallystick.run.show.audit_report import AuditReport, Chance, Segments, StretchOutcome

MOST_WORKERS = 1024


@dataclass(frozen=True)
class ParallelOptions:
    """How to audit in parallel; nothing of it changes the verdict, but `sample`.

    `workers`: how many segments at once; None is one in processes, and on a cluster what it has
    room for. `threads` of each worker; None divides this machine's among the workers. `ray` is the
    address of a Ray cluster. `state` is the auditor's own directory to take the audit up again
    from. `sample` draws a share or a number of the segments, by `secret` or by a new one.
    """

    workers: int | None = None
    threads: int | None = None
    device: str = "cpu"
    isa: str | None = None
    ray: str | None = None
    state: Path | None = None
    sample: Size | None = None
    secret: bytes | None = None


def audit_in_parallel(
    directory: Path,
    job: Job | None = None,
    steps: tuple[int, int] | None = None,
    options: ParallelOptions | None = None,
    *,
    trust: Sequence[PublicKey] | None = None,
    listener: Listener | None = None,
) -> AuditReport:
    """Repeat the run in `directory`, or `steps` of it, by segments; arguments as `audit_run`.

    A listener gets notices, and progress by a method `segments(steps, of_steps, segments,
    of_segments)` if it has one. Raises as `audit_run`; also MachineFaultError where workers fail
    again and again or two repetitions differ, UsageError for options that do not fit. Where a new
    draw ends without a verdict, the error (and KeyboardInterrupt) says how to repeat it.
    """
    options = options or ParallelOptions()
    if options.sample is not None:
        options = replace(options, sample=size_of(options.sample))
    _check(options, steps)
    if options.ray is not None:
        _check_place(Path(directory))
    told = listener or Silent()
    began = time.monotonic()
    with exact_environment():
        checked = check_claim(Path(directory), job, trust)
    with kept(options.state, Path(directory)) as state:
        plan = _planned(checked, steps, options, state)
        with _keeping_the_draw(plan, options, told):
            state.begin(plan)
            executor = _executor(checked, job, options, plan)
            driver = AuditDriver(executor, plan.chosen, _Telling(told, state, plan), state.done)
            resumed = len(state.done)
            told.notice(foretell(plan.chosen, executor.workers, step_seconds(checked)))
            if resumed:
                done = f"{resumed} of {len(plan.chosen)} segments are done"
                told.notice(f"{done}, by {options.state}.")
            outcomes = _outcomes(driver.run(), plan)
        state.end()
    for notice in checked.notices:
        told.notice(notice)
    whole = steps is None and options.sample is None
    report = report_of(checked, outcomes, whole, time.monotonic() - began)
    report.segments = Segments(
        total=len(plan.segments),
        repeated=tuple((one.first, one.last) for one in plan.chosen[: len(outcomes)]),
        resumed=resumed,
        workers=executor.workers,
        retries=driver.retries,
        stragglers=driver.stragglers,
        executor=executor.kind,
    )
    if plan.secret is not None:
        report.sampled, report.secret = True, plan.secret.hex()
        report.confidence = tuple(
            Chance(
                None if c.share is None else str(c.share),
                c.false_segments,
                float(c.probability),
                str(c.probability),
            )
            for c in confidence(len(plan.segments), len(plan.chosen))
        )
    return report


def _check(options: ParallelOptions, steps: tuple[int, int] | None) -> None:
    if options.workers is not None and not 1 <= options.workers <= MOST_WORKERS:
        raise UsageError(
            f"--workers {options.workers} is out of range.", f"Choose 1 to {MOST_WORKERS} workers."
        )
    if options.sample is not None and steps is not None:
        raise UsageError(
            "--sample draws from the whole run, so it cannot be combined with --steps.",
            "Leave one of them out.",
        )
    if options.secret is not None and options.sample is None:
        raise UsageError("--secret needs --sample.", "Add --sample, or leave --secret out.")
    if options.ray is not None and options.device != "cpu":
        raise UsageError(
            f"A Ray cluster repeats segments on CPUs, not on {options.device}.",
            "Leave --device out, or use --workers on a machine with a GPU.",
        )


def _check_place(run: Path) -> None:
    """Raise UsageError where Ray would let its workers import what the run's owner wrote."""
    if lies_in(Path.cwd(), run):
        raise UsageError(
            "The current directory is the run's, and Ray would let its workers import files from "
            "there.",
            "Change to another directory, and name the run from there.",
        )


def _planned(
    checked: Checked, steps: tuple[int, int] | None, options: ParallelOptions, state: Kept
) -> AuditPlan:
    """The segments to repeat: all, or the drawn ones."""
    segments = segments_of(checked, steps)
    plan = AuditPlan(binding(checked.claim), segments, segments)
    if options.sample is None:
        return plan
    count = count_of(options.sample, len(segments))
    # A sample that is taken up again has its secret: another draw would be another chance.
    secret = options.secret or state.secret(plan) or new_secret()
    drawn = draw(secret, checked.job.digest, checked.claim.run_root, segments, count)
    return replace(plan, chosen=drawn, secret=secret)


@contextmanager
def _keeping_the_draw(plan: AuditPlan, options: ParallelOptions, told: Listener) -> Iterator[None]:
    """An audit that ends without a verdict must not lose its draw: a new one would be another
    chance for a cheat, and whoever withholds a file can bring about as many as he likes. What the
    person gave, or the state keeps, is there already."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if plan.secret is None or options.secret is not None or options.state is not None:
            raise
        how = same_draw(plan.secret)
        if isinstance(error, TallystickError):
            error.next_action = f"{error.next_action} {how}".strip()
        elif isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(how) from error
        else:
            told.notice(how)
        raise


def _executor(
    checked: Checked, job: Job | None, options: ParallelOptions, plan: AuditPlan
) -> SegmentExecutor:
    workers = options.workers or 1
    threads = options.threads or max(1, _core.threads() // workers)
    run = checked.store.directory.absolute()
    own = None if job is None else job.directory.absolute()
    task = Task(
        run=str(run),
        job=None if own is None else str(own),
        binding=plan.binding.hex(),
        device=options.device,
        threads=threads,
        isa=options.isa,
    )
    if options.ray is None:
        return Processes(task, min(workers, len(plan.chosen)))
    # Imported late: Ray is an extra.
    from tallystick.run.parallel.cluster import cluster

    # A node opens a URL for itself; a process of this machine shares our mirror.
    task = replace(
        task,
        run=url_of(run) or task.run,
        job=task.job if own is None else url_of(own) or task.job,
        isa=None,
    )
    return cluster(options.ray, task, options.workers, options.threads)


def _outcomes(results: Sequence[Result], plan: AuditPlan) -> list[StretchOutcome]:
    """The outcomes that a serial audit would have had up to its verdict. Raises the error that
    decides."""
    last = results[-1]
    if isinstance(last, TallystickError):
        raise last
    outcomes = [one for one in results if isinstance(one, StretchOutcome)]
    before = plan.chosen[len(outcomes) - 2] if len(outcomes) > 1 else None
    if last.at_start and before is not None and before.last == plan.chosen[len(outcomes) - 1].first:
        # The segment before it ends with this very file, and found it to be right.
        raise CannotCheckError(
            f"The stored state of step {before.last} was read twice, and the bytes differed. "
            "Either the run changed during the audit, or a disk fails.",
            "Let no process write the run. Then audit it again, with a new --state or none.",
        )
    return outcomes


def step_seconds(checked: Checked) -> float | None:
    """The time of a step by the trainer's word (its sessions in the journal); None without one."""
    steps = milliseconds = 0
    for session in checked.claim.journal.sessions:
        done = session.get("end_step", 0) - session.get("start_step", 0)
        if "end_step" in session and "milliseconds" in session and done > 0:
            steps, milliseconds = steps + done, milliseconds + session["milliseconds"]
    return milliseconds / steps / 1000 if steps else None


class _Telling(Watcher):
    def __init__(self, listener: Listener, state: Kept, plan: AuditPlan) -> None:
        self._listener, self._state, self._plan = listener, state, plan
        self._segments = getattr(listener, "segments", None)
        self._total = sum(s.steps for s in plan.chosen)

    def notice(self, text: str) -> None:
        self._listener.notice(text)

    def progress(self, steps: int, segments: int) -> None:
        if self._segments is not None:
            self._segments(steps, self._total, segments, len(self._plan.chosen))

    def agreed(self, segment: Segment, outcome: StretchOutcome) -> None:
        self._state.keep(self._plan, segment, outcome)
