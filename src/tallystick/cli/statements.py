"""`tallystick model statement` and `model verify`: a model named by digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.answers.layout import Bucket
from tallystick.api.statements import make_statement, unproved, verify_statement
from tallystick.cli.output import MISMATCH, finish, json_option, overwrite_option, print_json, say
from tallystick.errors import UsageError
from tallystick.terminal.lines import note


@click.group()
def model() -> None:
    """Statements that name a model: its weights, programs and tokenizer by digests."""


@model.command()
@click.argument("directory", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="By default DIRECTORY.statement.")
@click.option(
    "--bucket",
    "--buckets",
    "buckets",
    multiple=True,
    metavar="L:A",
    help="Room for a text of L tokens, at most A of them an answer; of an encoder L alone "
    "(repeatable).",
)
@click.option("--contract", default="ordered/1", show_default=True)
@click.option("--run", type=click.Path(), help="The run of ours that the weights come from.")
@overwrite_option
@json_option
def statement(
    directory: str,
    output: str | None,
    buckets: tuple[str, ...],
    contract: str,
    run: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the statement of the model in DIRECTORY, and the programs that it names."""
    made, place = make_statement(
        Path(directory),
        None if output is None else Path(output),
        [_bucket(part) for text in buckets for part in text.split(",")],
        contract,
        None if run is None else Path(run),
        overwrite,
        None if as_json else note,
    )
    facts: dict[str, Any] = {
        "model_digest": made.digest,
        "statement": place,
        "contract": made.contract,
        "weights": len(made.weights),
        "programs": len(made.programs),
        "vocabulary": made.vocabulary,
        "run_root": made.run,
    }
    if as_json:
        print_json(facts)
        return
    say(f"{place}: {len(made.weights)} weights, {len(made.programs)} programs")
    say(f"model digest  {made.digest.hex()}")
    verb = {"embedding": "embed", "classes": "classify"}.get(made.encodes or "")
    ask = f"{verb} {directory} TEXT" if verb else f"generate {directory} --prompt TEXT"
    say(f"next          tallystick {ask} --key KEY -o ANSWER")


@model.command()
@click.argument("statement", type=click.Path())
@click.option("--model", "directory", required=True, type=click.Path(), help="The model.")
@json_option
def verify(statement: str, directory: str, as_json: bool) -> None:
    """Derive STATEMENT again from the model's directory, and compare.

    Exit code 1 where anything but its words for people differs.
    """
    made, differing = verify_statement(Path(statement), Path(directory), None if as_json else note)
    if as_json:
        print_json(
            {
                "accepted": not differing,
                "model_digest": made.digest,
                "differing": differing,
                "unproved": unproved(made),
            }
        )
    elif differing:
        say(f"MISMATCH      {', '.join(differing)}")
    else:
        say(f"MATCH         {directory} gives the weights, programs and files of the statement")
        for name in unproved(made):
            say(f"note          its {name} is not compared: no model directory proves it")
        say(f"model digest  {made.digest.hex()}")
    if differing:
        finish(MISMATCH)


def _bucket(text: str) -> Bucket | int:
    """A bucket as a person writes it, L:A, or L for an encoder. Raises UsageError."""
    length, colon, answer = text.partition(":")
    if not colon and length.isdecimal() and len(text) <= 20:
        return int(length)
    if not colon or not (length.isdecimal() and answer.isdecimal()) or len(text) > 20:
        raise UsageError(
            f"{text[:40]!r} is not a bucket.", "Write L:A, as 256:64; of an encoder L, as 128."
        )
    return Bucket(int(length), int(answer))
