"""`tallystick inspect` and `tallystick fsck`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import (
    CANNOT_CHECK,
    MISMATCH,
    finish,
    json_option,
    load_trust,
    note,
    print_json,
    say,
    trust_option,
)
from tallystick.disk.regular import present
from tallystick.errors import UsageError
from tallystick.job.job import MANIFEST
from tallystick.run.show.inspect import inspect_job, inspect_run
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck as check


@click.command()
@click.argument("path", type=click.Path())
@json_option
def inspect(path: str, as_json: bool) -> None:
    """Describe the run or job at PATH. Executes no step."""
    directory = Path(path)
    if RunStore(directory).exists:
        found = inspect_run(directory)
    elif present(directory / MANIFEST):
        found = inspect_job(directory)
    else:
        raise UsageError(f"{path} is neither a run nor a job.", "Name its directory.")
    if as_json:
        print_json(found)
    else:
        _say_all(found)
    if found.get("damage"):
        note(f"The journal of this signed run is damaged: {found['damage']}. See `fsck`.")
        finish(CANNOT_CHECK)


def _say_all(found: dict[str, Any]) -> None:
    for key, value in found.items():
        if key == "declared_override":
            if value:
                say(f"declared override: {value}")
        elif key == "loss":
            _say_losses(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            say(f"{key:21}" + "  ".join(value[0]))
            for item in value:
                cells = (v.hex() if isinstance(v, bytes) else str(v) for v in item.values())
                say("  " + "  ".join(cells))
        elif isinstance(value, dict):
            say(f"{key:21}" + ", ".join(f"{k}={v}" for k, v in value.items()))
        else:
            say(f"{key:21}{value.hex() if isinstance(value, bytes) else value}")


def _say_losses(losses: list[float]) -> None:
    if losses:
        say(f"{'loss':21}{len(losses)} steps, first {losses[0]:.6g}, last {losses[-1]:.6g}")


@click.command(short_help="Check every byte of RUN against its digests.")
@click.argument("run", type=click.Path())
@trust_option
@json_option
def fsck(run: str, trust: tuple[str, ...], as_json: bool) -> None:
    """Check every byte of RUN (or of a job) against its digests. Executes no step."""
    report = check(Path(run), load_trust(trust))
    if as_json:
        print_json(
            {
                "clean": report.clean,
                "finished": report.finished,
                "checked": list(report.checked),
                "problems": [
                    {"path": p.path, "message": p.message, "next_action": p.next_action}
                    for p in report.problems
                ],
            }
        )
    else:
        for p in report.problems:
            say(f"{p.path}: {p.message} {p.next_action}")
        if report.clean:
            state = "finished" if report.finished else "not finished"
            say(f"clean: {len(report.checked)} files of a run or job ({state})")
    if not report.clean:
        finish(MISMATCH)
