"""Shared by every command: lines (`terminal.lines`), JSON, the exit codes of errors (DESIGN 9)."""

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
from tallystick.disk.regular import is_directory
from tallystick.errors import UsageError
from tallystick.terminal.lines import note as note
from tallystick.terminal.lines import say as say
from tallystick.terminal.lines import say_text as say_text
from tallystick.terminal.lines import shown as shown

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


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """`A:B` as (A, B). Raises UsageError."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise UsageError(
            f"{text!r} is not a range of steps.", "Write A:B with A < B, such as 40:80."
        )
    return int(first), int(last)


def signer_words(trusted: bool | None) -> str:
    """What is said beside a signer of an answer."""
    return "trusted" if trusted else "unknown to you; --trust KEY names those you accept"


def load_trust(paths: Sequence[str]) -> list[PublicKey] | None:
    """Public keys of `--trust`; None when none is given."""
    return load_keys(paths) or None


def load_keys(paths: Sequence[str]) -> list[PublicKey]:
    """Public keys in these files, for `--trust-referee` for instance."""
    return [load_public_key(Path(path)) for path in paths]


def target_file(out: str, what: str) -> Path:
    """Where a command writes the file `what`, in the place of one that is there already. Raises
    UsageError where it cannot, StorageError."""
    target = Path(out)
    if is_directory(target) or not is_directory(target.parent):
        raise UsageError(
            f"{out} cannot be written. It is a directory, or its parent directory does not exist.",
            f"Choose another file for the {what}.",
        )
    return target


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object to standard output."
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the output of an earlier run of this command."
)
trust_option = click.option(
    "--trust", multiple=True, metavar="KEY", help="Accept only signers with this key (repeatable)."
)
trust_referee_option = click.option(
    "--trust-referee",
    "believed",
    multiple=True,
    metavar="KEY",
    help="Trust the referee with this key when it says that a party was silent (repeatable).",
)
device_option = click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="DEVICE",
    help="cpu, cuda or cuda:N. The result is bit-identical on each.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=None,
    help="Number of threads. The result is bit-identical for any number.",
)
