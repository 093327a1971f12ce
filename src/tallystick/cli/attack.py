"""`tallystick attack`: train a job dishonestly, on purpose, to see it convicted."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.attack_list import list_attacks
from tallystick.cli.output import json_option, overwrite_option, print_json, say, threads_option
from tallystick.cli.places import PLACE
from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import ExecutionContext
from tallystick.disk.keys import load_private_key
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Listener, Options, RunSummary, train_job
from tallystick.run.store.declaration import Declaration
from tallystick.run.store.trace import TraceRange
from tallystick.terminal.progress import Reporter


def train_cheat(
    job: Job,
    out: Path,
    declared: Declaration,
    listener: Listener,
    threads: int | None = None,
    trace: TraceRange | None = None,
    overwrite: bool = False,
    key: PrivateKey | None = None,
) -> RunSummary:
    """Train `job` into `out` with the cheat that is declared. Raises UsageError for unknown names
    and parameters before anything is written, and as train_job."""
    maker = declared_cheat(job, declared)
    options = Options(
        ExecutionContext(threads), trace=trace, maker=maker, overwrite=overwrite, key=key
    )
    return train_job(job, out, options, listener)


@click.command()
@click.argument("name", required=False)
@click.argument("job", required=False, type=PLACE)
@click.option("--out", type=click.Path(), help="Directory for the run.")
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a parameter of the attack (repeatable).",
)
@click.option(
    "--list",
    "listed",
    is_flag=True,
    help="List the attacks. With NAME: describe that attack. With a job's directory: list "
    "the attacks that fit the job.",
)
@click.option("--key", type=click.Path(), help="Private key that signs. Default: a new one.")
@overwrite_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
@threads_option
@json_option
def attack(
    name: str | None,
    job: str | None,
    out: str | None,
    pairs: tuple[str, ...],
    listed: bool,
    key: str | None,
    overwrite: bool,
    quiet: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Train JOB with the cheat NAME, and write a signed run that declares its cheat.

    `dispute --as-attack` then plays the cheat, with the same code that answers for honest runs.
    """
    if listed:
        if job is not None or out is not None or pairs:
            raise UsageError(
                "--list trains nothing.",
                "Pass only a NAME or a job's directory with it, or leave --list out.",
            )
        list_attacks(name, as_json)
        return
    if name is None or job is None or out is None:
        raise UsageError(
            "An attack, a job and --out are needed.",
            "Write `tallystick attack NAME JOB --out RUN`. `tallystick attack --list` lists the "
            "names.",
        )
    params = {}
    for pair in pairs:
        parameter, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(
                f"{pair!r} is not KEY=VALUE.",
                "Write a setting as KEY=VALUE, such as --set step=30.",
            )
        params[parameter] = value
    declared = Declaration(name, params)
    loaded = load_job(Path(job))
    with Reporter("train", quiet or as_json) as reporter:
        result = train_cheat(
            loaded,
            Path(out),
            declared,
            reporter,
            threads,
            overwrite=overwrite,
            key=None if key is None else load_private_key(Path(key)),
        )
    if as_json:
        print_json(
            {
                "attack": name,
                "parameters": params,
                "run": out,
                "run_root": result.run_root,
                "steps": result.steps,
            }
        )
        return
    say(f"CHEAT       {out} is not an honest run: it was made by the attack {name}")
    say(f"run root    {result.run_root.hex()} (signed)")
    say(f"next        tallystick dispute HONEST {out} --as-attack B --job {job} --out EVIDENCE")
