"""Running a job, and repeating it (DESIGN 9): `train`, `continue_run`, `audit`."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.find import context_on
from tallystick.disk.objects.address import is_url
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.prover.shares import checking_of
from tallystick.run.distributed.going_on import STOP, going_on, said
from tallystick.run.distributed.launch import threads_each, train_by
from tallystick.run.distributed.transport import launched
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Listener, Silent
from tallystick.run.execute.published import published
from tallystick.run.execute.trainer import Options
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.sample import check_secret, read_secret, size_of
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.continuing import continue_run as continue_finished
from tallystick.run.store.directory import RunStore

if TYPE_CHECKING:
    from tallystick.terminal.progress import Reporter


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
    progress: bool = True,
) -> RunSummary:
    """Train `job` into the run directory `out`, or take up an interrupted run there. With
    `overwrite` a run that is there is removed, and training begins anew.

    Progress is drawn on standard error, unless `progress` is false or a `listener` gets it. Ctrl-C
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
    goes on without it, and the result's `convicted` names it. So many times as `retries` says new
    processes go on where a worker died or failed.
    Errors: see `run.execute.trainer.train_job` and `run.distributed.launch.train_with`.
    """
    made = given.job(job)
    checked, by_torchrun = check_workers is not None, launched() is not None
    how = going_on(on_conviction, retries, workers, checked, by_torchrun)
    if threads is None and workers > 1:
        threads = threads_each(workers)
    options = Options(
        context_on(device, lambda: made.commitment.contract, threads),
        keep=keep_checkpoints,
        key=given.private(key),
        trace=trace,
        replay=None if replay is None else given.path(replay),
        compress=compress_logs,
        overwrite=overwrite,
    )
    reporter = _reporter("train", progress and listener is None)
    try:
        told = listener or reporter or Silent()
        with ExitStack() as stack:
            if is_url(str(out)):
                there = published(str(out), made, told, _work(work), overwrite)
                directory, told, _ = stack.enter_context(there)
            elif work is None:
                directory = given.path(out)
            else:
                raise UsageError("work= is for a run at a URL.", "Leave it out.")
            checking = None
            if check_workers is not None:
                where = made.directory, Path(directory)
                checking = checking_of(check_workers, *where, called=str(out))
            how = replace(how, tell=told.notice)
            result = train_by(
                workers, made, directory, options, told, device, checking=checking, how=how
            )
    finally:
        if reporter is not None:
            reporter.close()
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


def _work(work: PathLike | None) -> Path | None:
    return None if work is None else given.path(work)


def _reporter(verb: str, wanted: bool) -> Reporter | None:
    from tallystick.terminal.progress import Reporter

    return Reporter(verb) if wanted else None


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

    With `workers` so many segments between stored states are repeated at once, each in a process of
    `threads` threads (without it they divide this machine's); with `ray`, the address of a Ray
    cluster, on its nodes. The verdict is the same. `state`, a directory of yours, keeps what an
    interrupted audit has done. `sample`, a share (0.05, "5%") or a number of segments (12), repeats
    only segments drawn from a secret: the report's `sampled` is then true, `accepted` speaks about
    `segments` alone, and `confidence` says how likely a false run is caught; `secret` repeats a
    draw. Errors: see also `run.parallel.audit.audit_in_parallel`.
    """
    own = None if job is None else given.job(job)

    def contract() -> str:
        return (own or RunStore(given.path(run)).job()).commitment.contract

    reporter = _reporter("audit", progress and listener is None)
    try:
        if any(value is not None for value in (workers, ray, sample, secret, state)):
            options = ParallelOptions(
                workers=workers,
                threads=threads,
                device=device,
                ray=ray,
                state=None if state is None else given.path(state),
                sample=None if sample is None else size_of(sample),
                secret=read_secret(secret) if isinstance(secret, str) else check_secret(secret),
            )
            return audit_in_parallel(
                given.path(run),
                own,
                steps,
                options,
                trust=given.publics(trust),
                listener=listener or reporter,
            )
        return audit_run(
            given.path(run),
            own,
            steps,
            context=context_on(device, contract, threads),
            trust=given.publics(trust),
            listener=listener or reporter,
        )
    finally:
        if reporter is not None:
            reporter.close()
