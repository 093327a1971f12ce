"""`tallystick audit`, and findings against rounding logs, which `train --replay` prints too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import click

from tallystick.api.runs import Auditing, audit_as
from tallystick.cli.claims import claim_key_option, claim_option, claim_signer
from tallystick.cli.output import (
    MISMATCH,
    device_option,
    finish,
    json_option,
    load_trust,
    note,
    parse_steps,
    print_json,
    say,
    threads_option,
    trust_option,
)
from tallystick.cli.places import PLACE
from tallystick.contracts.replay.findings import UNFIT
from tallystick.disk.files import write_file
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.numerics.contracts import find_contract
from tallystick.run.logs.report import Found, finding_sentence
from tallystick.run.parallel.audit import MOST_WORKERS
from tallystick.run.parallel.sample import digits, parse_size, read_secret
from tallystick.run.show.audit_report import AuditReport, Chance
from tallystick.run.show.estimate import human_seconds
from tallystick.run.store.directory import RunStore
from tallystick.terminal.progress import Reporter

_SAID = 10  # findings that are printed; --json has more


def say_findings(findings: Sequence[Found], unnamed: int) -> None:
    """Print the first findings, and the number of the others, `unnamed` ones among them."""
    for found in findings[:_SAID]:
        say(f"FINDING     {finding_sentence(found)}")
    more = len(findings[_SAID:]) + unnamed
    if more:
        say(f"            and {more} more")
    if any(found["kind"] == UNFIT for found in findings):
        say("note        An unfit entry proves no lie: the published form allows it where a sum's")
        say("            terms cancel. `tallystick dispute` convicts a party, or ends undecided")
        say("            (NUMERICS 14.9.2).")


# Drawn segments that are printed; --json has all.
_NAMED = 20


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
        "sampled": report.sampled,
        "segments": None if report.segments is None else asdict(report.segments),
        "confidence": None
        if report.confidence is None
        else [asdict(chance) for chance in report.confidence],
        "secret": report.secret,
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


@click.command()
@click.argument("run", type=PLACE)
@click.option("--job", "job", type=PLACE, help="Your own copy of the job.")
@click.option(
    "--steps", metavar="A:B", help="Audit only steps A to B - 1, starting from a stored checkpoint."
)
@threads_option
@device_option
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    help="Number of processes. Each repeats one segment between stored states at a time.",
)
@click.option(
    "--ray", metavar="ADDRESS", help="Repeat segments on this Ray cluster (needs the extra [ray])."
)
@click.option(
    "--state",
    type=click.Path(),
    metavar="DIR",
    help="Directory for the audit's own state, so that the same command can resume an "
    "interrupted audit.",
)
@click.option(
    "--sample",
    metavar="P",
    help="Repeat only a random sample of the segments: a share (0.05 or 5%) or a number (12).",
)
@click.option(
    "--secret",
    metavar="HEX|FILE",
    help="Secret of an earlier report, to draw the same sample again.",
)
@trust_option
@claim_option
@claim_key_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
def audit(
    run: str,
    job: str | None,
    steps: str | None,
    threads: int | None,
    device: str,
    workers: int | None,
    ray: str | None,
    state: str | None,
    sample: str | None,
    secret: str | None,
    trust: tuple[str, ...],
    claim: str | None,
    key: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Repeat RUN, or a segment of it, and compare every committed bit.

    With --workers, --ray, --state or --sample, the segments between stored states are repeated
    one at a time by each process or cluster task. The verdict is the same. --threads then counts
    for each worker. With --sample only the drawn segments are checked, and the report says how
    likely the sample was to find a false run.
    """
    signer = claim_signer(claim, key)
    loaded = load_job(Path(job)) if job else None
    asked = Auditing(
        steps=parse_steps(steps),
        threads=threads,
        device=device,
        trust=load_trust(trust),
        workers=workers,
        ray=ray,
        state=None if state is None else Path(state),
        sample=None if sample is None else parse_size(sample),
        secret=None if secret is None else read_secret(secret),
    )
    end = None if asked.by_segments else _end_of(asked.steps, Path(run), loaded)
    with Reporter("audit", quiet, end) as reporter:
        report = audit_as(asked, Path(run), loaded, reporter)
    if as_json:
        print_json(report_json(report))
    else:
        _say(report)
    if signer is not None:
        from tallystick.api.claims import claim_audit  # brings the kinds of claims with it

        target, secret_key = signer
        write_file(target, [claim_audit(report, secret_key)])
        note(f"The claim is in {target}.")
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
        _say_sample(report)
        say("Keep the run directory: a dispute needs it.")
        return
    if report.sampled:
        assert report.segments is not None
        drawn = len(report.segments.repeated)
        verdict = "ACCEPTED AS FAR AS SAMPLED"
        what = f"{drawn} of {report.segments.total} segments, drawn from a secret"
    else:
        verdict = "MATCH      "
        what = "the whole run"
        if not report.whole:
            what = f"steps {report.first_step}:{report.last_step}"
    say(
        f"{verdict} {what}: {_count(report.checkpoints_compared, 'checkpoint')}, "
        f"{_count(report.losses_compared, 'loss')}, "
        f"{_count(report.stored_compared, 'stored state')}, bit for bit"
    )
    _say_log(report)
    _say_sample(report)
    how = f"{report.isa}, {report.threads} threads"
    if report.segments is not None:
        how += f" in each of {_count(report.segments.workers, 'worker')}"
    say(f"computed    {how}, {human_seconds(report.seconds)}")


def _say_sample(report: AuditReport) -> None:
    """Print which segments were repeated, how likely a false run is caught, and the secret."""
    if report.confidence is None or report.segments is None:
        return
    found = report.segments
    drawn = ", ".join(f"{a}:{b}" for a, b in found.repeated[:_NAMED])
    more = len(found.repeated) - _NAMED
    say(f"repeated    steps {drawn}" + (f" and {more} more segments" if more > 0 else ""))
    say("otherwise   nothing was repeated: this is not an audit of the whole run")
    for chance in _different(report.confidence):
        many = f"at least {chance.false_segments} of {found.total} segments false"
        if chance.share is not None:
            many += f" ({float(100 * Fraction(chance.share)):.3g} %, rounded up)"
        say(f"confidence  {many}: caught with probability {digits(Fraction(chance.exact))}")
    say(f"secret      {report.secret}")


def _different(chances: Sequence[Chance]) -> list[Chance]:
    """The first chance of each number of false segments: in a short run several shares are one."""
    return list({chance.false_segments: chance for chance in reversed(chances)}.values())[::-1]


def _say_log(report: AuditReport) -> None:
    """Print the choices that the rounding logs left to the trainer, and the logs' faults."""
    if report.choices is not None and find_contract(report.contract).form != "published":
        left, taken = report.choices
        say(f"choices     the logs leave {left}, of which {taken} are not the nearest value")
    say_findings(report.findings, report.unnamed)
