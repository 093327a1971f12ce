"""`tallystick attack`: train a job dishonestly, on purpose, to see it convicted; with `--list` the
cheats by kind, one of them in full, those that a job allows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import json_option, overwrite_option, print_json, say, threads_option
from tallystick.cli.places import PLACE
from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import ExecutionContext
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import is_directory
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.run.cheats.attacks import (
    KINDS,
    Attack,
    answer_attack_names,
    attack_names,
    attack_text,
    load_attack,
)
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Listener, Options, RunSummary, train_job
from tallystick.run.store.unsigned import Declaration, TraceRange
from tallystick.terminal.progress import Reporter

_OWN_CHOICE = {"step": "the middle", "checkpoint": "the middle"}


def list_attacks(wanted: str | None, as_json: bool) -> None:
    """Print all attacks, or with the name of one its description, or with a job's directory those
    that have something to do there. Raises UsageError for another `wanted`."""
    names = [*attack_names(), *answer_attack_names()]
    if wanted in names:
        names = [wanted]
    job = None if wanted is None or wanted in names else _job(wanted)
    found = [_facts(load_attack(name), job) for name in names]
    if as_json:
        print_json({"attacks": found})
    elif wanted is not None and job is None:
        _describe(load_attack(wanted))
    else:
        _table(found)
        say("about one   tallystick attack --list NAME")
        say("play one    tallystick attack NAME JOB --out RUN [--set KEY=VALUE]")


def _job(wanted: str) -> Job:
    if not is_directory(Path(wanted)):
        raise UsageError(
            f"{wanted[:80]!r} is neither an attack nor a job.",
            "Choose a name that `tallystick attack --list` prints, or pass a job's directory.",
        )
    return load_job(Path(wanted))


def _facts(attack: Attack, job: Job | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": attack.name,
        "kind": attack.kind,
        "summary": attack.summary,
        "parameters": dict(attack.defaults),
    }
    if job is not None:
        try:
            attack.make(job, {})
            facts["obstacle"] = None
        except UsageError as error:
            why = error.message.removeprefix("This cheat has nothing to do here: ")
            facts["obstacle"] = why.rstrip(".")
    return facts


def _table(found: list[dict[str, Any]]) -> None:
    width = max(len(one["name"]) for one in found) + 2
    fitting = [one for one in found if not one.get("obstacle")]
    for kind, words in KINDS.items():
        of_kind = [one for one in fitting if one["kind"] == kind]
        if of_kind:
            say(f"{kind}: {words}")
        for one in of_kind:
            say(f"  {one['name']:{width}}{one['summary']}")
    if len(fitting) < len(found):
        say("nothing to do in this job")
    for one in found:
        if one.get("obstacle"):
            say(f"  {one['name']:{width}}{one['obstacle']}")


def _describe(attack: Attack) -> None:
    """Print the attack file's own text, and the parameters with their defaults."""
    say(f"{attack.name} ({attack.kind})")
    for line in attack_text(attack.name).splitlines():
        say(line)
    for number, (key, value) in enumerate(attack.defaults.items()):
        own = f" ({_OWN_CHOICE.get(key, 'chosen by the attack')})" if value == -1 else ""
        say(f"{'' if number else '--set':8}{key}={value}{own}")


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
