"""`tallystick report`: a run as a page."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.output import (
    finish,
    json_option,
    load_trust,
    note,
    print_json,
    say,
    trust_option,
)
from tallystick.errors import CannotCheckError, CounterpartyError, UsageError
from tallystick.report.facts import read_run
from tallystick.report.page import refusal_page
from tallystick.report.run_page import run_page
from tallystick.run.files import write_file
from tallystick.run.job_file import load_job
from tallystick.run.store import RunStore


@click.command(short_help="A run as one HTML page.")
@click.argument("path", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="The page to write.")
@click.option("--job", type=click.Path(), help="Your own copy of the job.")
@trust_option
@json_option
def report(path: str, out: str, job: str | None, trust: tuple[str, ...], as_json: bool) -> None:
    """Write PATH, a run, as one HTML page that needs nothing else to be read."""
    source, target = Path(path), Path(out)
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"{out} is not a file in an existing directory.", "Name a file.")
    if not RunStore(source).exists:
        raise UsageError(f"{path} is not a run.", "Name its directory.")
    keys = load_trust(trust)
    own = load_job(Path(job)) if job else None
    code = 0
    try:
        html = run_page(read_run(source, own, keys))
    except (CounterpartyError, CannotCheckError) as error:
        note(f"tallystick: {error.message}")
        html, code = refusal_page(source.name, "run", error), error.exit_code
    data = html.encode("utf-8")
    write_file(target, [data])
    if as_json:
        print_json({"report": out, "kind": "run", "checked": code == 0, "bytes": len(data)})
    else:
        say(f"{out}: {len(data):,} bytes" + ("" if code == 0 else "; it says why nothing is shown"))
    if code:
        finish(code)
