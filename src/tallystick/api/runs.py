"""Running a job, and repeating it (DESIGN 9): `train`, `continue_run`, `audit`."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.api.training import Training, train_as
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.context import context_on
from tallystick.disk.objects.address import is_url
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.run.distributed.going_on import STOP, said
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Listener, Several, Silent
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.sample import check_secret, read_secret, size_of
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.continuing import continue_run as continue_finished
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


def train(
    job: Job | PathLike,
    out: PathLike,
    *,
    threads: int | None = None,
    device: str = "cpu",
    keep_checkpoints: int | None = None,
    key: PrivateKey | PathLike | None = None,
    trace: tuple[int, int] | None = None,
    replay: PathLike | None = None,
    compress_logs: bool = False,
    overwrite: bool = False,
    workers: int = 1,
    check_workers: float | None = None,
    on_conviction: str = STOP,
    retries: int = 0,
    work: PathLike | None = None,
    listener: Listener | None = None,
    track: Sequence[Listener] = (),
    progress: bool = True,
) -> RunSummary:
    """Train `job` into the run directory `out`, or take up an interrupted run there. With
    `overwrite` a run that is there is removed, and training begins anew.

    Progress is drawn on standard error, unless `progress` is false or a `listener` gets it. Those
    of `track` hear of it too, such as `tallystick.trackers.TensorBoard(DIRECTORY)`. Ctrl-C
    ends the run after the step, stores the state, and raises KeyboardInterrupt: the same call goes
    on from there.

    `out` may be the URL of a prefix on an object store (`s3://`, `gs://`, `az://`, `file:///`). The
    run is then made in `work`, or in a directory of the cache, and published as it is made.

    `key` signs the result (a key or its file). Without one, a new key signs it and stays in the
    run's directory. `keep_checkpoints` states are stored evenly over the run.
    `trace` = (A, B) also writes the node digests of steps A to B - 1. Under a contract that keeps
    rounding logs, `replay` is a finished run. The new run follows its logs, and the result's
    `followed` holds the findings about it. `device` is "cpu", "cuda" or "cuda:N"; it changes no
    bit. Nor does the number of `workers`: processes of this machine that share the micro-batches of
    a job, each with its share of the slots; `threads` are then those of each. With `check_workers`
    this share of what each of them computes is computed again by another one (docs/adr/0024). Where
    a worker is convicted, WorkerConvictedError is raised; with `on_conviction="continue"` the run
    goes on without it, and the result's `convicted` names it. `retries` is how many times training
    may restart with new processes after a worker has died or failed.
    Errors: see `run.execute.trainer.train_job` and `run.distributed.launch.train_with`.
    """
    if work is not None and not is_url(str(out)):
        raise UsageError("work= can only be used with a run at a URL.", "Leave work= out.")
    asked = Training(
        str(out) if is_url(str(out)) else given.path(out),
        threads=threads,
        device=device,
        keep_checkpoints=keep_checkpoints,
        key=given.private(key),
        trace=trace,
        replay=None if replay is None else given.path(replay),
        compress_logs=compress_logs,
        overwrite=overwrite,
        workers=workers,
        check_workers=check_workers,
        on_conviction=on_conviction,
        retries=retries,
        work=None if work is None else given.path(work),
    )
    made = given.job(job)
    with _drawing("train", progress, listener) as told:
        result = train_as(asked, made, Several(told or Silent(), *track))
    if not result.finished:
        raise KeyboardInterrupt(
            f"Stopped after step {result.steps} of {made.steps}; nothing is lost. The same call "
            f"goes on from here.{said(result.convicted)}"
        )
    return result


def continue_run(
    run: PathLike,
    directory: PathLike,
    steps: int,
    *,
    schedules: Mapping[str, float | Sequence[float]] | None = None,
    overwrite: bool = False,
) -> Job:
    """Write the job of `steps` more steps from the end of the finished run at `run`.

    Data order, random numbers and the optimizer's moments go on, and the job proves which run it
    continues. `schedules` gives new values for a learning rate that was a table: a number, or one
    for each step; another table keeps its last value. Errors: see
    `run.store.continuing.continue_run`.
    """
    places = given.path(run), given.path(directory)
    return continue_finished(*places, steps, schedules, overwrite=overwrite)


def _drawing(
    verb: str, progress: bool, listener: Listener | None
) -> AbstractContextManager[Listener | None]:
    """Who hears of the work: the caller's listener, one that draws on the terminal or in the
    notebook, or nobody."""
    if listener is not None or not progress:
        return nullcontext(listener)
    from tallystick.terminal.notebook_bar import NotebookBar, notebook_display
    from tallystick.terminal.progress import Reporter  # rich takes its time

    display = notebook_display()
    return Reporter(verb) if display is None else NotebookBar(verb, display)


def audit(
    run: PathLike,
    job: Job | PathLike | None = None,
    steps: tuple[int, int] | None = None,
    *,
    threads: int | None = None,
    device: str = "cpu",
    trust: Sequence[PublicKey | PathLike] | None = None,
    listener: Listener | None = None,
    progress: bool = True,
    workers: int | None = None,
    ray: str | None = None,
    sample: float | str | Fraction | numbers.Real | None = None,
    secret: str | bytes | None = None,
    state: PathLike | None = None,
) -> AuditReport:
    """Repeat the run at `run`, whole or steps A to B - 1, and compare every committed bit.

    Progress is drawn as by `train`.

    The report's `accepted` is true if all are equal; its `difference` says where they are not.
    `job` is your own copy of the job; without it the auditor takes the run's own copy. `trust` are
    the signers that you know. `device` is as in `train`. Errors: see
    `run.execute.auditor.audit_run`.

    With `workers`, that many segments between stored states are repeated at once, each in a process
    of `threads` threads (without it they divide this machine's); with `ray`, the address of a Ray
    cluster, on its nodes. The verdict is the same. `state`, a directory of yours, keeps what an
    interrupted audit has done. `sample`, a share (0.05, "5%") or a number of segments (12), repeats
    only segments drawn from a secret: the report's `sampled` is then true, `accepted` speaks about
    `segments` alone, and `confidence` says how likely a false run is caught; `secret` repeats a
    draw. Errors: see also `run.parallel.audit.audit_in_parallel`.
    """
    own = None if job is None else given.job(job)
    asked = Auditing(
        steps=steps,
        threads=threads,
        device=device,
        trust=given.publics(trust),
        workers=workers,
        ray=ray,
        state=None if state is None else given.path(state),
        sample=None if sample is None else size_of(sample),
        secret=read_secret(secret) if isinstance(secret, str) else check_secret(secret),
    )
    with _drawing("audit", progress, listener) as told:
        return audit_as(asked, given.path(run), own, told)
