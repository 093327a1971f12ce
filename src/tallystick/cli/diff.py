"""`tallystick diff`."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.api.diffs import diff as compare
from tallystick.cli.output import MISMATCH, finish, json_option, print_json, say
from tallystick.cli.places import PLACE
from tallystick.comparing.found import Comparison
from tallystick.job.words.against import Apart

_NAMES = ("A", "B")


@click.command()
@click.argument("first", metavar="A", type=PLACE)
@click.argument("second", metavar="B", type=PLACE)
@json_option
def diff(first: str, second: str, as_json: bool) -> None:
    """Say where A and B first differ, and why.

    A and B are two jobs. The command says in words which fields differ. What no job digest covers
    stands apart and makes no difference.

    Exit codes: 0 equal, 1 different, 2 could not compare, 3 wrong usage.
    """
    found = compare(Path(first), Path(second))
    if as_json:
        print_json(found.facts)
    else:
        say_comparison(found)
    if not found.equal:
        finish(MISMATCH)


def say_comparison(found: Comparison) -> None:
    """Print a comparison for a person."""
    say(f"EQUAL       two {found.kind}" if found.equal else f"DIFFERENT   two {found.kind}")
    for number, cause in enumerate(found.causes):
        say(f"{'also' if number else 'cause':<12}{cause.words}. {cause.sentence}")
    if found.fields:
        say("The job digests cover:")
        _say_apart(found.fields)
    if found.uncommitted:
        say("Not committed (their authors' word, which no digest covers):")
        _say_apart(found.uncommitted)
    for line in found.notices:
        say(f"note        {line}")


def _say_apart(rows: tuple[Apart, ...]) -> None:
    for label, *pair in rows:
        say(f"  {label}")
        for name, sentence in zip(_NAMES, pair, strict=True):
            say(f"    {name}  {sentence or '(nothing)'}")
