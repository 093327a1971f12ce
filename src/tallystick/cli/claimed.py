"""The options `--claim FILE --key FILE` of commands that find something out (docs/CLAIMS.md)."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.claims.forms import CLAIM, FileKind, require_replaceable
from tallystick.cli.output import target_file
from tallystick.commit.signing import PrivateKey
from tallystick.disk.keys import load_private_key
from tallystick.errors import UsageError

claim_option = click.option(
    "--claim",
    type=click.Path(),
    help="Write the findings to this file, as a signed claim that other tools can read.",
)
claim_key_option = click.option(
    "--key", type=click.Path(), help="Private key that signs the claim."
)


def stated_file(out: str, kind: FileKind = CLAIM) -> Path:
    """Where a command writes a file of `kind`. Only a file of the same kind may be there already.

    Raises UsageError, StorageError."""
    target = target_file(out, kind.name)
    require_replaceable(target, kind)
    return target


def claim_signer(claim: str | None, key: str | None) -> tuple[Path, PrivateKey] | None:
    """Where a claim goes and who signs it, None where none was asked for.

    It is called before the work: a wrong key must not show at the end of a long audit. Raises
    UsageError where one of the two options is missing, CannotCheckError.
    """
    if (claim is None) != (key is None):
        raise UsageError("--claim and --key are needed together.", "Pass both, or neither.")
    if claim is None or key is None:
        return None
    return stated_file(claim), load_private_key(Path(key))
