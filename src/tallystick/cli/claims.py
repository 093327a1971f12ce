"""`tallystick claim`: what a run or an answer says in the forms that other tools read.

Commands that find something out have the options `--claim FILE --key FILE` (docs/CLAIMS.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tallystick.api import claims
from tallystick.claims.models import BILL, CLAIM, SIGNATURE, FileKind, require_replaceable
from tallystick.cli.output import (
    json_option,
    load_keys,
    load_trust,
    print_json,
    say,
    target_file,
    trust_option,
)
from tallystick.cli.places import PLACE
from tallystick.commit.signing import PrivateKey
from tallystick.disk.files import write_file
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


_Command = TypeVar("_Command", bound=Callable[..., Any])

_key_option = click.option(
    "--key", required=True, type=click.Path(), help="Private key that signs the claim."
)
_output_option = click.option(
    "-o", "--output", required=True, type=click.Path(), help="File to write."
)


def _of_run(command: _Command) -> _Command:
    """The parameters that a claim about a run has, by the names that `api.claims` gives them."""
    for option in reversed(
        (
            click.argument("run", type=PLACE),
            click.option(
                "--model",
                "models",
                multiple=True,
                type=click.Path(),
                help="File written by `tallystick export`. It is compared with RUN and named in "
                "the claim (repeatable).",
            ),
            click.option(
                "--ema", "average", is_flag=True, help="The files hold the averaged parameters."
            ),
            click.option(
                "--best", is_flag=True, help="The files hold the weights with the best validation."
            ),
            _output_option,
            trust_option,
            json_option,
        )
    ):
        command = option(command)
    return command


@click.group()
def claim() -> None:
    """Write claims about a run or an answer in formats that other tools read."""


@claim.command("run")
@_of_run
@_key_option
def run_command(output: str, trust: tuple[str, ...], as_json: bool, **about: Any) -> None:
    """Write an in-toto Statement about RUN, a finished run, signed with your key.

    The run is not repeated. `tallystick audit --claim` states what an audit found.
    """
    target = stated_file(output)
    _wrote(target, claims.claim_run(trust=load_trust(trust), **about), as_json)


@claim.command()
@_of_run
@_key_option
@click.option("--builder", metavar="URI", help="Who ran the training. Default: the key's id.")
def provenance(output: str, trust: tuple[str, ...], as_json: bool, **about: Any) -> None:
    """Write SLSA provenance for RUN, a finished run: every file of its job, and its results."""
    target = stated_file(output)
    _wrote(target, claims.claim_provenance(trust=load_trust(trust), **about), as_json)


@claim.command()
@_of_run
@click.option("--name", help="The model's name. Default: that of the run's directory.")
def bom(output: str, trust: tuple[str, ...], as_json: bool, **about: Any) -> None:
    """Write a CycloneDX bill of materials for the model that RUN trained."""
    target = stated_file(output, BILL)
    _wrote(target, claims.bill_of_materials(trust=load_trust(trust), **about), as_json)


@claim.command()
@click.argument("receipt", type=click.Path())
@_output_option
@_key_option
@json_option
def answer(receipt: str, output: str, key: str, as_json: bool) -> None:
    """Write an in-toto Statement about the answer of RECEIPT, a receipt or an answer's directory.

    Only the signatures are verified. `tallystick check --claim` states what a check found. The
    claim contains no text of the answer.
    """
    target = stated_file(output)
    _wrote(target, claims.claim_answer(receipt, key), as_json)


@claim.command("sign-model")
@click.argument("directory", type=click.Path())
@_output_option
@click.option(
    "--p256", required=True, type=click.Path(), help="P-256 private key (`tallystick keys p256`)."
)
@json_option
def sign_model(directory: str, output: str, p256: str, as_json: bool) -> None:
    """Sign the files of a model in DIRECTORY for `model_signing verify` (OpenSSF, version 1.0)."""
    target = stated_file(output, SIGNATURE)
    _wrote(target, claims.sign_model(directory, p256, target), as_json)


def _wrote(target: Path, data: bytes, as_json: bool) -> None:
    write_file(target, [data])
    if as_json:
        print_json({"file": target, "bytes": len(data)})
    else:
        say(f"{target}: {len(data)} bytes")


@claim.command()
@click.argument("file", type=click.Path())
@click.option(
    "--trust", required=True, multiple=True, metavar="KEY", help="Key you trust (repeatable)."
)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(),
    help="File that the claim must be about (repeatable).",
)
@json_option
def check(file: str, trust: tuple[str, ...], files: tuple[str, ...], as_json: bool) -> None:
    """Check the signature of the claim in FILE, and that it is about your files.

    The command prints what the claim says. That is only its signer's word, and it may say that
    something was not accepted. The exit code is 1 if no trusted key signed the claim, or if it is
    about other files.
    """
    found = claims.check_claim(file, load_keys(trust), files=files)
    statement = found.statement
    if as_json:
        print_json(
            {
                "signed": True,
                "signer": statement.signer.key_id,
                "type": statement.predicate_type,
                "subjects": [{"name": n, "digest": d} for n, d in statement.subjects],
                "predicate": statement.predicate,
                "files": [{"file": path, "subject": name} for path, name in found.files],
            }
        )
        return
    say(f"type        {statement.predicate_type}")
    say(f"signer      {statement.signer.key_id} (trusted)")
    for name, digests in statement.subjects:
        say(f"about       {name}  {', '.join(f'{n} {d}' for n, d in digests.items())}")
    for name, value in statement.predicate.items():
        # JSON shows where a text ends, and that `false` is no text.
        say(f"says        {name} {json.dumps(value, ensure_ascii=False)}")
    for path, name in found.files:
        say(f"MATCH       {path} is {name}")
