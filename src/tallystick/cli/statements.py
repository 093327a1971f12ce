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
    """Name a model by the digests of its weights, programs and tokenizer."""


@model.command()
@click.argument("directory", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Directory for the statement. Default: DIRECTORY.statement.",
)
@click.option(
    "--bucket",
    "--buckets",
    "buckets",
    multiple=True,
    metavar="L:A",
    help="Make a program for texts of up to L tokens, of which at most A are the answer "
    "(repeatable). For an encoder: L alone.",
)
@click.option(
    "--adapter",
    type=click.Path(),
    help="Directory of an adapter for the model: a LoRA saved by peft.",
)
@click.option("--merge", is_flag=True, help="Merge the adapter into the weights.")
@click.option(
    "--contract",
    default="ordered/1",
    show_default=True,
    help="Contract that defines the arithmetic.",
)
@click.option(
    "--run", type=click.Path(), help="Tallystick run that the weights were exported from."
)
@overwrite_option
@json_option
def statement(
    directory: str,
    output: str | None,
    buckets: tuple[str, ...],
    adapter: str | None,
    merge: bool,
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
        None if adapter is None else Path(adapter),
        merge,
    )
    facts: dict[str, Any] = {
        "model_digest": made.digest,
        "statement": place,
        "contract": made.contract,
        "weights": len(made.weights),
        "programs": len(made.programs),
        "vocabulary": made.vocabulary,
        "adapter": None
        if made.adapter is None
        else {"digest": made.adapter.digest, "merged": made.adapter.merged},
        "run_root": made.run,
    }
    if as_json:
        print_json(facts)
        return
    say(f"{place}: {len(made.weights)} weights, {len(made.programs)} programs")
    say(f"model digest  {made.digest.hex()}")
    verb = {"embedding": "embed", "classes": "classify"}.get(made.encodes or "")
    ask = f"{verb} {directory} TEXT" if verb else f"generate {directory} --prompt TEXT"
    with_ = "" if adapter is None else f" --adapter {adapter}"
    say(f"next          tallystick {ask}{with_} --key KEY -o ANSWER")


@model.command()
@click.argument("statement", type=click.Path())
@click.option(
    "--model", "directory", required=True, type=click.Path(), help="Directory of the model."
)
@click.option(
    "--adapter", type=click.Path(), help="Directory of the adapter that the statement names."
)
@json_option
def verify(statement: str, directory: str, adapter: str | None, as_json: bool) -> None:
    """Derive STATEMENT again from the model's directory, and compare.

    The exit code is 1 if anything differs. Descriptions that are meant for people do not count.
    """
    made, differing = verify_statement(
        Path(statement),
        Path(directory),
        None if as_json else note,
        None if adapter is None else Path(adapter),
    )
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
            f"{text[:40]!r} is not a bucket.",
            "Write L:A, such as 256:64. For an encoder, write L alone, such as 128.",
        )
    return Bucket(int(length), int(answer))
