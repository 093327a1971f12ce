"""`tallystick audit`."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.findings import say_findings
from tallystick.cli.output import (
    MISMATCH,
    device_option,
    finish,
    json_option,
    load_trust,
    parse_steps,
    print_json,
    say,
    threads_option,
    trust_option,
)
from tallystick.cli.places import PLACE
from tallystick.cli.progress import Reporter
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.kernels.devices import context_on
from tallystick.run.execute.auditor import audit_run
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.show.estimate import human_seconds
from tallystick.run.store.directory import RunStore


def report_json(report: AuditReport) -> dict[str, object]:
    """The object of `audit --json`; documented keys."""
    d = report.difference
    return {
        "accepted": report.accepted,
        "run": report.run,
        "job_digest": report.job_digest,
        "contract": report.contract,
        "run_root": report.run_root,
        "signer": report.signer,
        "trusted": report.trusted,
        "whole": report.whole,
        "steps": [report.first_step, report.last_step],
        "checkpoints_compared": report.checkpoints_compared,
        "losses_compared": report.losses_compared,
        "stored_compared": report.stored_compared,
        "isa": report.isa,
        "threads": report.threads,
        "seconds": report.seconds,
        "notices": report.notices,
        "choices": None
        if report.choices is None
        else {"left": report.choices[0], "taken": report.choices[1]},
        "findings": report.findings,
        "findings_not_listed": report.unnamed,
        "difference": None
        if d is None
        else {
            "kind": d.kind,
            "interval": list(d.interval),
            "step": d.step,
            "node": d.node,
            "operator": d.operator,
            "slot": d.slot,
            "committed": d.committed,
            "computed": d.computed,
            "sentence": d.sentence,
        },
    }


@click.command(short_help="Repeat RUN, or a segment of it; compare all bits.")
@click.argument("run", type=PLACE)
@click.option("--job", "job", type=PLACE, help="Your own copy of the job.")
@click.option("--steps", metavar="A:B", help="Only steps A to B - 1, from a stored checkpoint.")
@threads_option
@device_option
@trust_option
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
def audit(
    run: str,
    job: str | None,
    steps: str | None,
    threads: int | None,
    device: str,
    trust: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Repeat RUN, or a segment of it, and compare every committed bit."""
    loaded = load_job(Path(job)) if job else None
    segment = parse_steps(steps)

    def contract() -> str:
        return (loaded or RunStore(Path(run)).job()).commitment.contract

    reporter = Reporter("audit", quiet, _end_of(segment, Path(run), loaded))
    try:
        report = audit_run(
            Path(run),
            loaded,
            segment,
            context=context_on(device, contract, threads),
            trust=load_trust(trust),
            listener=reporter,
        )
    finally:
        reporter.close()
    if as_json:
        print_json(report_json(report))
    else:
        _say(report)
    if not report.accepted:
        finish(MISMATCH)


def _end_of(segment: tuple[int, int] | None, run: Path, job: Job | None) -> int | None:
    """The last step of a segment's audit: the first checkpoint at or after the segment's end."""
    if segment is None:
        return None
    interval = (job or RunStore(run).job()).interval
    return -(-segment[1] // interval) * interval


def _count(n: int, what: str) -> str:
    plural = what if n == 1 else f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{n} {plural}"


def _say(report: AuditReport) -> None:
    if report.trusted:
        signer = "trusted"
    else:
        signer = "unknown to you; --trust KEY names the keys you accept"
    say(f"run root    {report.run_root.hex()}")
    say(f"signer      {report.signer} ({signer})")
    if report.difference is not None:
        say(f"MISMATCH    {report.difference.sentence}")
        if report.difference.committed:
            say(f"committed   {report.difference.committed}")
            say(f"computed    {report.difference.computed}")
        _say_log(report)
        say("Keep the run directory: it is the evidence.")
        return
    what = "the whole run" if report.whole else f"steps {report.first_step}:{report.last_step}"
    say(
        f"MATCH       {what}: {_count(report.checkpoints_compared, 'checkpoint')}, "
        f"{_count(report.losses_compared, 'loss')}, "
        f"{_count(report.stored_compared, 'stored state')}, bit for bit"
    )
    _say_log(report)
    say(f"computed    {report.isa}, {report.threads} threads, {human_seconds(report.seconds)}")


def _say_log(report: AuditReport) -> None:
    """Print the choices that the rounding logs left to the trainer, and the logs' faults."""
    if report.choices is not None and "form=published" not in report.contract:
        left, taken = report.choices
        say(f"choices     the logs leave {left}, of which {taken} are not the nearest value")
    say_findings(report.findings, report.unnamed)
