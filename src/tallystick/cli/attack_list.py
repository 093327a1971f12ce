"""`tallystick attack --list`: the cheats by kind, one of them in full, those that a job allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.cli.output import print_json, say
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
