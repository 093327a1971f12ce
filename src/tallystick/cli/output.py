"""Shared by every command: printing, JSON, and the exit codes of errors (DESIGN 9)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from tallystick.commit.signing import PublicKey
from tallystick.disk.keys import load_public_key
from tallystick.disk.mounts import named
from tallystick.errors import UsageError
from tallystick.visible import visible

ACCEPTED, MISMATCH, CANNOT_CHECK, WRONG_USAGE = 0, 1, 2, 3


class ExitError(Exception):
    """End the command with this exit code; everything has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def finish(code: int) -> NoReturn:
    """End the command with an exit code of DESIGN 9."""
    raise ExitError(code)


def json_float(value: float) -> float | str:
    """A loss for JSON: non-finite ones are the strings "nan", "inf", "-inf"."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def plain(value: Any) -> Any:
    """Bytes as hexadecimal, paths as strings, non-finite floats as strings, deeply."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (str, Path)):
        return named(str(value))
    if isinstance(value, float):
        return json_float(value)
    return value


def print_json(value: Any) -> None:
    """One JSON object on standard output, in ASCII without control characters."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def shown(text: str, keep: str = "") -> str:
    """`text` for a terminal, with URLs in the place of mounts; characters of `keep` stay.

    Every text that a command prints goes through here, because other parties choose names, notes in
    a journal and settings of a job.
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


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """`A:B` as (A, B). Raises UsageError."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise UsageError(f"{text!r} is not a range of steps.", "Write A:B with A < B, as 40:80.")
    return int(first), int(last)


def load_trust(paths: Sequence[str]) -> list[PublicKey] | None:
    """Public keys of `--trust`; None when none is given."""
    return load_keys(paths) or None


def load_keys(paths: Sequence[str]) -> list[PublicKey]:
    """Public keys in these files, for `--trust-referee` for instance."""
    return [load_public_key(Path(path)) for path in paths]


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace what such a command has made there before."
)
trust_option = click.option(
    "--trust", multiple=True, metavar="KEY", help="Accept only signers with this key (repeatable)."
)
trust_referee_option = click.option(
    "--trust-referee",
    "believed",
    multiple=True,
    metavar="KEY",
    help="Take the word of the referee with this key that a party was silent (repeatable).",
)
device_option = click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="DEVICE",
    help="cpu, cuda or cuda:N; never changes a bit.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=None,
    help="Threads to use; never changes a bit.",
)
