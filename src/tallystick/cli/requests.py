"""`tallystick request`: a client's own requests; parts of one against a receipt, for `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.api.requests import cancel as cancel_of
from tallystick.api.requests import check_shown, show_request
from tallystick.api.requests import request as request_of
from tallystick.cli.asked import asked_for, asked_options
from tallystick.cli.output import (
    MISMATCH,
    finish,
    json_option,
    load_trust,
    print_json,
    say,
    signer_words,
)
from tallystick.commit.encoding import canonical_json
from tallystick.disk.keys import load_private_key, load_public_key
from tallystick.errors import UsageError


class _Requests(click.Group):
    """A group whose arguments make a request where they do not begin with a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["make", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Requests)
def request() -> None:
    """Make, show or cancel a client's own request to a model.

    `tallystick request STATEMENT …` is short for `tallystick request make STATEMENT …`.
    """


@request.command()
@click.argument("statement", type=click.Path())
@asked_options
@click.option("--nonce", help="Nonce to use, as 16 bytes in hexadecimal. Default: a new one.")
@click.option(
    "--client",
    type=click.Path(),
    metavar="KEY",
    help="Your public key. Its private key can later sign a cancellation.",
)
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write.")
@json_option
def make(
    statement: str,
    nonce: str | None,
    client: str | None,
    output: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a request to the model that STATEMENT names. STATEMENT is a file or its directory.

    The model itself is not needed. You choose the seed or nonce and the secret, so that nothing
    is left for a server to choose.
    """
    made = request_of(
        Path(statement),
        nonce=None if nonce is None else _nonce(nonce),
        client=None if client is None else load_public_key(Path(client)),
        out=Path(output),
        **asked_for(options, "Pass --prompt, --message, --messages or --tokens"),
    )
    if as_json:
        print_json(
            {
                "request": output,
                "request_digest": made.digest,
                "model_digest": made.model,
                "seed": str(made.seed),
                "client": None if made.client is None else made.client.key_id,
            }
        )
        return
    say(f"request digest  {made.digest.hex()}")
    say(f"model digest    {made.model.hex()}")
    say(
        f"request         {output} (it has the secret: give it to the server only, and keep a copy)"
    )
    say(f"next            tallystick generate MODEL --request {output}, on the server")


@request.command()
@click.argument("file", type=click.Path())
@click.option("--after", "tokens", required=True, type=click.IntRange(1), metavar="N",
              help="Number of tokens after which the answer ends.")  # fmt: skip
@click.option("--key", required=True, type=click.Path(), help="The client's private key.")
@click.option(
    "--choice",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of the answer to end, if the request asks for several.",
)
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write.")
@json_option
def cancel(file: str, tokens: int, key: str, choice: int, output: str, as_json: bool) -> None:
    """Sign that an answer to the request in FILE ends after N tokens.

    The request must name this key as its client's. The server ends the answer there. Its receipt
    and the cancellation together prove that you wanted that.
    """
    private = load_private_key(Path(key))
    cancel_of(Path(file), tokens, private, choice=choice, out=Path(output))
    if as_json:
        print_json(
            {
                "cancellation": output,
                "choice": choice,
                "answer_tokens": tokens,
                "client": private.public.key_id,
            }
        )
        return
    say(f"client        {private.public.key_id}")
    say(f"cancellation  {output}: answer {choice} ends after {tokens} tokens")
    say(f"next          tallystick generate MODEL --request {file} --cancelled {output}")


@request.command()
@click.argument("file", type=click.Path())
@click.option(
    "--parts",
    required=True,
    metavar="NAME,NAME",
    help="Parts to show, separated by commas: choices, client, date, input, model, seed, "
    "settings, stop_strings.",
)
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write.")
@json_option
def show(file: str, parts: str, output: str, as_json: bool) -> None:
    """Show some parts of the request in FILE with their salts, and only digests of the others.

    The secret is not shown. `tallystick check OUTPUT --receipt RECEIPT` prints what the parts
    prove.
    """
    names = [name.strip() for name in parts.split(",") if name.strip()]
    shown = show_request(Path(file), names, out=Path(output))
    if as_json:
        print_json(
            {
                "shown_request": output,
                "request_digest": shown.digest,
                "shown": sorted(shown.shown),
                "hidden": sorted(shown.hidden),
            }
        )
        return
    say(f"shown           {', '.join(sorted(shown.shown))}")
    say(f"hidden          {', '.join(sorted(shown.hidden)) or 'nothing'}")
    say(f"request digest  {shown.digest.hex()}")
    say(f"next            tallystick check {output} --receipt RECEIPT")


def _nonce(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 16 or found.hex() != text:
        raise UsageError(f"{text[:80]!r} is not a nonce.", "Write 32 hexadecimal digits.")
    return found


def check_shown_request(shown: str, receipt: str, trust: tuple[str, ...], as_json: bool) -> None:
    """Say which parts of the receipt's request are proved, and which are hidden."""
    report = check_shown(Path(shown), Path(receipt), trust=load_trust(trust))
    parts = {name: part.value for name, part in sorted(report.request.shown.items())}
    hidden = sorted(report.request.hidden)
    if as_json:
        print_json(
            {
                "accepted": report.accepted,
                "proved": report.proved,
                "request_digest": report.request.digest,
                "receipt_request": report.receipt.request,
                "signer": report.receipt.signer.key_id,
                "trusted": report.trusted,
                "shown": parts,
                "hidden": hidden,
                "contradictions": [
                    {"clause": one.clause, "sentence": one.sentence}
                    for one in report.contradictions
                ],
            }
        )
    else:
        say(f"signer      {report.receipt.signer.key_id} ({signer_words(report.trusted)})")
        if not report.proved:
            say("MISMATCH    The receipt is for another request, so nothing here is proved.")
        for one in report.contradictions:
            say(f"CONVICTED   by its own words: {one.sentence} (ANSWERS {one.clause})")
        for name, value in parts.items():
            label = "PROVED" if report.proved else "unproved"
            say(f"{label:12}{name}: {canonical_json(value).decode('utf-8')}")
        say(f"hidden      {', '.join(hidden) or 'nothing'}")
    if not report.accepted:
        finish(MISMATCH)
