"""`tallystick chat URL`: a conversation with a model server, each answer checked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tallystick.answers.layout import Settings
from tallystick.cli.output import (
    MISMATCH,
    finish,
    json_option,
    load_trust,
    note,
    print_json,
    say,
    say_text,
    threads_option,
    trust_option,
)
from tallystick.cli.serve import tls_ca_option
from tallystick.errors import DigestMismatchError, UsageError
from tallystick.service import require_packages

if TYPE_CHECKING:  # it needs the packages of the extra
    from tallystick.serving.received import ReceivedReport

KEY_VARIABLE = "TALLYSTICK_API_KEY"


@click.command()
@click.argument("url")
@click.option("--message", help="Ask this once; by default lines of standard input, one by one.")
@click.option("--system", help="A message of the role `system` before all others.")
@click.option("--served", metavar="NAME", help="Which model of the server; by default its first.")
@click.option("--digest", help="The model digest to accept; others are refused.")
@click.option("--model", type=click.Path(), help="Your copy of the model: check the computation.")
@click.option("--adapter", type=click.Path(), help="Your copy of its adapter, if it has one.")
@click.option("--key", type=click.Path(), help=f"File of the API key; by default ${KEY_VARIABLE}.")
@click.option("-o", "--output", type=click.Path(), help="The directory of the answer (--message).")
@click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True)
@click.option("--temperature", type=float, default=1.0, show_default=True)
@click.option("--top-p", type=float, default=1.0, show_default=True)
@tls_ca_option
@threads_option
@trust_option
@json_option
def chat(
    url: str,
    message: str | None,
    system: str | None,
    served: str | None,
    digest: str | None,
    model: str | None,
    adapter: str | None,
    key: str | None,
    output: str | None,
    max_tokens: int,
    temperature: float,
    top_p: float,
    tls_ca: str | None,
    threads: int | None,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Talk with a model of the server at URL, and check each answer's receipt.

    Signature, request and text are always checked, with --model the computation too; the lines
    after an answer say which. Exit code 1 if an answer is not what was signed.
    """
    require_packages("tallystick chat")
    from tallystick.serving.api_keys import key_text
    from tallystick.serving.chat_client import ChatClient
    from tallystick.serving.received import check_received

    if message is None and (as_json or output is not None):
        raise UsageError("--json and -o are for one answer.", "Give --message.")
    if adapter is not None and model is None:
        raise UsageError("--adapter goes with --model.", "Name the model too.")
    settings = Settings(max_tokens=max_tokens, temperature=temperature, top_p=top_p)
    believed = load_trust(trust)
    text = key_text(None if key is None else Path(key), KEY_VARIABLE)
    messages = [] if system is None else [{"role": "system", "content": system}]
    wrong = False

    def ask(client: ChatClient, said: str) -> tuple[str, ReceivedReport]:
        messages.append({"role": "user", "content": said})
        heard = (lambda _: None) if as_json else say_text
        got = client.ask(messages, settings, heard)
        if not as_json:
            say_text("\n")
        messages.append({"role": "assistant", "content": got.shown})
        own, beside = (None if name is None else Path(name) for name in (model, adapter))
        return got.shown, check_received(client, got, believed, own, threads, beside)

    with ChatClient(url, text, served, None if tls_ca is None else Path(tls_ca)) as client:
        if digest is not None and client.statement.digest.hex() != digest.lower():
            raise DigestMismatchError(
                f"The server's {client.model} is the model {client.statement.digest.hex()}.",
                "Name another server, or --served.",
            )
        for said in [message] if message is not None else map(str.rstrip, sys.stdin):
            if not said:
                continue
            answer, report = ask(client, said)
            wrong |= not report.accepted
            if output is not None and report.files is not None:
                report.files.write(Path(output))
            if as_json:
                print_json(
                    {
                        "text": answer,
                        "accepted": report.accepted,
                        "model_digest": client.statement.digest,
                        "checked": report.checked,
                        "unchecked": report.unchecked,
                        "wrong": report.wrong,
                    }
                )
            else:
                _say(report)
    if wrong:
        finish(MISMATCH)


def _say(report: ReceivedReport) -> None:
    for sentence in report.checked:
        note(f"checked      {sentence}")
    for sentence in report.unchecked:
        note(f"not checked  {sentence}")
    for sentence in report.wrong:
        say(f"WRONG        {sentence}")
