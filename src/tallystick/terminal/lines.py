"""Lines for a person on a terminal. All that the package prints goes
through here, but for JSON and live bars."""

from __future__ import annotations

import sys

import click

from tallystick.disk.mounts import named
from tallystick.visible import visible


def shown(text: str, keep: str = "") -> str:
    """`text` for a terminal, with URLs in the place of mounts; characters of `keep` stay.

    Every text that is printed goes through here, because other parties choose names, notes in a
    journal and settings of a job.
    """
    return visible(named(text), keep)


def _echo(text: str, err: bool = False, end: str = "\n") -> None:
    try:
        click.echo(text + end, err=err, nl=False)
    except UnicodeEncodeError:  # a terminal of another alphabet
        click.echo(text.encode("ascii", "backslashreplace").decode() + end, err=err, nl=False)


def say(text: str = "") -> None:
    """One line for a person on standard output."""
    _echo(shown(text))


def say_text(text: str) -> None:
    """Part of a text of several lines on standard output, such as a model's; adds no line end."""
    _echo(shown(text, "\n\t"), end="")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line for a person on standard error."""
    _echo(shown(text), err=True)
