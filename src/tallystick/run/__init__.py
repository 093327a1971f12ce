"""Run a job and repeat it: trainer, auditor, the files on disk.

`train` and `audit` are the Python interface of DESIGN 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.disk.keys import load_private_key, load_public_key
from tallystick.run.auditor import AuditReport as AuditReport
from tallystick.run.auditor import audit_run
from tallystick.run.job import Job as Job
from tallystick.run.job_file import load_job as load_job
from tallystick.run.save import save_job as save_job
from tallystick.run.trainer import Listener, Options, RunSummary, train_job

PathLike = str | Path


def _job(job: Job | PathLike) -> Job:
    return job if isinstance(job, Job) else load_job(Path(job))


def train(
    job: Job | PathLike,
    out: PathLike,
    *,
    threads: int | None = None,
    keep_checkpoints: int | None = None,
    key: PrivateKey | PathLike | None = None,
    trace: tuple[int, int] | None = None,
    replay: PathLike | None = None,
    compress_logs: bool = False,
    listener: Listener | None = None,
) -> RunSummary:
    """Train `job` into the run directory `out`; taking up a run there that was interrupted.

    `key` signs the result (a key or its file); without one a key made for this run does, and stays
    in its directory. `keep_checkpoints` states are stored evenly over the run.
    `trace` = (A, B) also writes the node digests of steps A to B - 1. Under a contract that keeps
    rounding logs `replay` is a finished run whose logs are followed: the result's `followed` says
    what was found in it. Errors: see `train_job`.
    """
    signer = key if key is None or isinstance(key, PrivateKey) else load_private_key(Path(key))
    options = Options(
        threads=threads,
        keep=keep_checkpoints,
        key=signer,
        trace=trace,
        replay=None if replay is None else Path(replay),
        compress=compress_logs,
    )
    return train_job(_job(job), Path(out), options, listener)


def audit(
    run: PathLike,
    job: Job | PathLike | None = None,
    steps: tuple[int, int] | None = None,
    *,
    threads: int | None = None,
    trust: Sequence[PublicKey | PathLike] | None = None,
    listener: Listener | None = None,
) -> AuditReport:
    """Repeat the run at `run`, whole or steps A to B - 1, and compare. See `audit_run`."""
    keys = None
    if trust is not None:
        keys = [k if isinstance(k, PublicKey) else load_public_key(Path(k)) for k in trust]
    return audit_run(
        Path(run),
        None if job is None else _job(job),
        steps,
        threads=threads,
        trust=keys,
        listener=listener,
    )
