"""`tallystick embed` and `classify`: encodings of texts that anyone can check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from tallystick.api.answering import DAYS
from tallystick.api.encoding import GivenEncoding
from tallystick.api.encoding import classify as classify_of
from tallystick.api.encoding import embed as embed_of
from tallystick.cli.answers import statement_option
from tallystick.cli.output import json_option, print_json, say, threads_option
from tallystick.disk.keys import load_private_key
from tallystick.terminal.lines import note

Command = Callable[..., None]
_SHOWN = 4  # values of an embedding


def _options(command: Command) -> Command:
    """What both commands take."""
    for option in reversed((
        click.argument("model", type=click.Path()),
        click.argument("texts", metavar="TEXT…", nargs=-1, required=True),
        click.option(
            "--key", type=click.Path(), help="Private key that signs. Default: a new one."
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(),
            help="Directory for the encoding. Several texts go to OUTPUT/0, OUTPUT/1 and so on.",
        ),
        statement_option,
        click.option("--days", type=click.IntRange(0, 36500), default=DAYS, show_default=True,
                     help="Days for which the signer promises to answer disputes."),
        threads_option,
        json_option,
    )):  # fmt: skip
        command = option(command)
    return command


@click.command()
@_options
def embed(model: str, output: str | None, as_json: bool, **asked: Any) -> None:
    """Embed each TEXT with the encoder in the directory MODEL, and sign a receipt.

    MODEL is a directory of sentence-transformers. Use - for a text from standard input. A text
    that is too long for the model is refused and never shortened.
    """
    _tell(_given(embed_of, model, output, **asked), _embedding, model, output, as_json)


@click.command()
@_options
def classify(model: str, output: str | None, as_json: bool, **asked: Any) -> None:
    """Classify each TEXT with the classifier in the directory MODEL, and sign a receipt.

    Prints the model's logit for each class. The class with the largest one is its choice. Use -
    for a text from standard input.
    """
    _tell(_given(classify_of, model, output, **asked), _classes, model, output, as_json)


def _given(
    verb: Callable[..., list[GivenEncoding]],
    model: str,
    output: str | None,
    texts: tuple[str, ...],
    key: str | None,
    statement: str | None,
    days: int,
    threads: int | None,
) -> list[GivenEncoding]:
    return verb(
        Path(model),
        [sys.stdin.read().removesuffix("\n") if text == "-" else text for text in texts],
        key=None if key is None else load_private_key(Path(key)),
        out=None if output is None else Path(output),
        statement=None if statement is None else Path(statement),
        days=days,
        threads=threads,
    )


def _embedding(one: GivenEncoding) -> str:
    first = ", ".join(f"{x:.6f}" for x in one.values[:_SHOWN])
    more = ", …" if len(one.values) > _SHOWN else ""
    length = float(np.sqrt(np.sum(one.values.astype(np.float64) ** 2)))
    return f"{len(one.values)} numbers of length {length:.6f}: {first}{more}"


def _classes(one: GivenEncoding) -> str:
    return ", ".join(f"{label} {logit:.6f}" for label, logit in one.scores.items())


def _tell(
    encodings: list[GivenEncoding],
    sentence: Callable[[GivenEncoding], str],
    model: str,
    output: str | None,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            {
                "output": output,
                "encodings": [
                    {
                        "values": [float(x) for x in one.values],
                        "labels": list(one.labels),
                        "tokens": list(one.job.encoded.prompt),
                        "receipt": one.receipt,
                    }
                    for one in encodings
                ],
            }
        )
        return
    for one in encodings:
        say(sentence(one))
    if output is not None:
        first = output if len(encodings) == 1 else f"{output}/0"
        note(f"receipt  {output}; check it with `tallystick check {first} --model {model}`")
