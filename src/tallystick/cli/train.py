"""`tallystick train`."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.api.training import Training, train_as
from tallystick.cli.audit import say_findings
from tallystick.cli.output import (
    CANNOT_CHECK,
    MISMATCH,
    device_option,
    finish,
    json_option,
    note,
    overwrite_option,
    parse_steps,
    print_json,
    say,
    threads_option,
)
from tallystick.cli.places import PLACE, TARGET
from tallystick.disk.objects.address import is_url
from tallystick.disk.objects.opening import cache_directory
from tallystick.disk.objects.store import Counts
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job
from tallystick.run.distributed.going_on import CONTINUE, MOST_RETRIES, STOP, said
from tallystick.run.distributed.launch import DEFAULT_TIMEOUT, workers_of
from tallystick.run.execute.listener import Listener, Several
from tallystick.run.logs.report import FollowReport
from tallystick.run.show.estimate import human_bytes, human_seconds
from tallystick.run.show.preview import estimate_run
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.stored_states import DEFAULT_KEEP
from tallystick.terminal.progress import Reporter


def summary_json(result: RunSummary) -> dict[str, object]:
    """The final object of `train --json`; documented keys."""
    return {
        "run": result.directory,
        "job_digest": result.job_digest,
        "contract": result.contract,
        "steps": result.steps,
        "finished": result.finished,
        "reason": result.reason,
        "checkpoints": [{"step": s, "state_root": r} for s, r in result.checkpoints],
        "run_root": result.run_root,
        "final_state_root": result.final_state_root,
        "final_loss": result.losses[-1] if result.losses else None,
        "validation": [{"step": s, "loss": v} for s, v in result.validation],
        "log_bytes": result.log_bytes,
        "followed": None if result.followed is None else result.followed.as_dict(),
        "signer": result.signer,
        "isa": result.isa,
        "threads": result.threads,
        "workers": result.workers,
        "convicted": [
            {"worker": c.worker, "workers": c.workers, "key_id": c.key, "step": c.step}
            | {"phase": c.phase, "case": c.case, "evidence": c.evidence, "job": c.job}
            for c in result.convicted
        ],
        "convicted_before": [{"worker": w, "workers": n} for w, n in result.convicted_before],
        "seconds": result.seconds,
    }


@click.command()
@click.argument("job", type=PLACE)
@click.option("--out", required=True, type=TARGET, help="The run's directory, or its URL.")
@click.option("--work", type=click.Path(), help="Local directory to work in, if --out is a URL.")
@threads_option
@device_option
@click.option(
    "--workers",
    type=click.IntRange(1, 65536),
    help="Number of processes that share the micro-batches. The result is bit-identical "
    "for any number. [default: 1, or torchrun's]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    help=f"Seconds after which a silent worker counts as dead. [default: {DEFAULT_TIMEOUT:g}]",
)
@click.option(
    "--check-workers",
    type=float,
    metavar="Q",
    help="Share of each worker's results that another worker computes again, from 0 to 1. "
    "A worker that lies is convicted (docs/adr/0024).",
)
@click.option(
    "--on-conviction",
    type=click.Choice([STOP, CONTINUE]),
    default=STOP,
    show_default=True,
    help="What to do when a worker is convicted: stop, or continue without it from the last"
    " stored checkpoint. Either way the exit code is 1.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, MOST_RETRIES),
    default=0,
    show_default=True,
    help="With --workers: how many times training may restart with new processes after a "
    "worker has died or failed.",
)
@click.option("--key", type=click.Path(), help="Private key that signs (see `keys new`).")
@click.option(
    "--keep-checkpoints",
    type=click.IntRange(1, 1_000_000),
    help=f"Number of states to keep on the disk, spread evenly over the run [default: up to "
    f"{DEFAULT_KEEP}, fewer if writing them takes long].",
)
@click.option(
    "--replay",
    metavar="RUN",
    type=PLACE,
    help="Audit RUN by following its rounding logs (contract replay/1).",
)
@click.option("--zstd", is_flag=True, help="Compress the rounding logs (contract replay/1).")
@click.option(
    "--trace", metavar="A:B", help="Also keep the digest of every node for steps A to B - 1."
)
@overwrite_option
@click.option(
    "--estimate", is_flag=True, help="Print an estimate of time, disk and memory, and do not train."
)
@click.option(
    "--track",
    multiple=True,
    metavar="TOOL[=WHERE]",
    help="Also log the curves and the run root to tensorboard=DIR, mlflow[=EXPERIMENT] or "
    "wandb[=PROJECT]. wandb stays offline (repeatable).",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
def train(
    job: str,
    out: str,
    work: str | None,
    threads: int | None,
    device: str,
    workers: int | None,
    timeout: float | None,
    check_workers: float | None,
    on_conviction: str,
    retries: int,
    key: str | None,
    keep_checkpoints: int | None,
    replay: str | None,
    zstd: bool,
    trace: str | None,
    overwrite: bool,
    estimate: bool,
    track: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Train JOB into a run directory. The same command resumes an interrupted run.

    With --overwrite an existing run is removed and training starts from the beginning.

    A job with micro-batches can be trained by several --workers, or under torchrun:

    torchrun --nproc-per-node 4 -m tallystick train JOB --out RUN
    """
    asked = Training(
        out,
        threads=threads,
        device=device,
        keep_checkpoints=keep_checkpoints,
        key=Path(key) if key else None,
        trace=parse_steps(trace),
        replay=Path(replay) if replay else None,
        compress_logs=zstd,
        overwrite=overwrite,
        workers=workers_of(workers),
        timeout=timeout,
        check_workers=check_workers,
        on_conviction=on_conviction,
        retries=retries,
        work=Path(work) if work else None,
    )
    follower = asked.follower(Path(job))
    if follower is not None:
        finish(0 if estimate else follower())
    loaded = load_job(Path(job))
    if estimate:
        where = cache_directory() if is_url(out) else Path(out)
        options = asked.options(loaded)
        found = estimate_run(loaded, where, options.context, options.kept)
        if as_json:
            print_json(found.as_dict())
        else:
            say(found.sentence())
        if asked.workers > 1:
            count = asked.workers
            note(f"The estimate is for one worker. {count} workers were not estimated.")
        return
    at_store = list[Counts]()

    def working(directory: Path, counts: Counts) -> None:
        note(f"working in {directory}")
        at_store.append(counts)

    trackers = [tracker_of(one) for one in track]
    with Reporter("train", quiet) as reporter:
        told = Several(reporter, *trackers)
        result = train_as(asked, loaded, told, reporter.say, working)
        for counts in at_store:
            requests = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.requests.items()))
            note(f"published {human_bytes(counts.bytes_written)} at {out} ({requests})")
    if as_json:
        print_json(summary_json(result))
    if not result.finished:
        note(
            f"Stopped after step {result.steps} of {loaded.steps}. Nothing is lost. "
            f"The same command continues from here.{said(result.convicted)}"
        )
        finish(CANNOT_CHECK)
    if not as_json:
        _say_finished(result, key is None)
    if result.convicted or result.convicted_before:
        note(_after_convictions(result, check_workers, out))
    if result.convicted:
        finish(MISMATCH)
    if result.followed is not None and not result.followed.accepted:
        finish(MISMATCH)


def _say_finished(result: RunSummary, one_off_key: bool) -> None:
    loss = f"{result.losses[-1]:.4f}" if result.losses else "none"
    say(f"run         {result.directory}")
    say(f"steps       {len(result.losses)} ({result.reason}), last loss {loss}")
    if result.validation:
        say(f"validation  {result.validation[-1][1]:.4f} at step {result.validation[-1][0]}")
    say(f"job digest  {result.job_digest.hex()}")
    say(f"run root    {result.run_root.hex()}")
    if result.log_bytes:
        say(f"logs        {human_bytes(result.log_bytes)}")
    if result.followed is not None:
        _say_followed(result.followed)
    kind = " (a key made for this run, kept in it; --key FILE signs as you)" if one_off_key else ""
    say(f"signed by   {result.signer}{kind}")
    several = f"{result.workers} workers with " if result.workers > 1 else ""
    say(
        f"computed    {result.isa}, {several}{result.threads} threads, "
        f"{human_seconds(result.seconds)}"
    )


def _after_convictions(result: RunSummary, fraction: float | None, out: str) -> str:
    """What the user has to know of a run that is complete, and had workers that lied."""
    count, before = len(result.convicted), len(result.convicted_before)
    found = f"The run is complete; {count} worker{' was' if count == 1 else 's were'} convicted"
    found += f", and {before} in earlier commands. " if before else ". "
    if fraction == 1 and not result.convicted_before:
        return found + (
            "Every share of the steps of this command was computed again by another worker. For "
            f"steps of earlier commands, folds and updates see `tallystick audit {out}`."
        )
    return found + (
        "Shares of theirs that were not drawn may be false, and stand in the run: "
        f"`tallystick audit {out}` finds whether there are any."
    )


def _say_followed(report: FollowReport) -> None:
    """Print the findings against the run whose logs this run has followed."""
    say(f"followed    run {report.run_root[:16]}…: {'MATCH' if report.accepted else 'MISMATCH'}")
    if report.left:
        taken = f"{report.taken} are not the nearest value"
        say(f"choices     its logs leave {report.left}, of which {taken}")
    if report.difference is not None:
        low, high = report.difference["interval"]
        slot = report.difference["slot"]
        where = f", first in slot {slot}" if slot else ""
        say(f"MISMATCH    the states differ in the checkpoint interval ({low}, {high}]{where}")
    say_findings(report.findings, report.unnamed)
    if not report.accepted:
        say("`tallystick dispute` decides between this run and the one that it followed.")


def tracker_of(text: str) -> Listener:
    """The tracker that `text` names. Raises UsageError, CannotCheckError for a missing package."""
    from tallystick.trackers import MLflow, TensorBoard, WandB

    tool, _, where = text.partition("=")
    if tool == "tensorboard" and where:
        return TensorBoard(where)
    if tool == "mlflow":
        return MLflow(where) if where else MLflow()
    if tool == "wandb":
        return WandB(where) if where else WandB()
    raise UsageError(
        f"{text[:80]!r} names no known tracker.",
        "Write tensorboard=DIR, mlflow, mlflow=EXPERIMENT, wandb or wandb=PROJECT.",
    )
