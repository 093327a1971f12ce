"""`tallystick chat URL`: a conversation with a model server, each answer checked."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallystick.answers.layout import Settings
from tallystick.answers.request import ModelRequest
from tallystick.api.requests import client_request
from tallystick.cli.asked import refuse_asked
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
from tallystick.commit.signing import PublicKey
from tallystick.disk.keys import load_private_key
from tallystick.errors import DigestMismatchError, UsageError
from tallystick.service import require_packages

if TYPE_CHECKING:  # it needs the packages of the extra
    from tallystick.serving.question import Question
    from tallystick.serving.received import ReceivedReport

KEY_VARIABLE = "TALLYSTICK_API_KEY"
_ASKS = ("message", "system", "max_tokens", "temperature", "top_p")


@click.command()
@click.argument("url")
@click.option("--message", help="Question to ask. Default: one for each line of standard input.")
@click.option("--system", help="System message that comes before all others.")
@click.option(
    "--served",
    metavar="NAME",
    help="Name of the model on the server. Default: the server's first model.",
)
@click.option("--digest", help="Digest of the model to accept. Any other model is refused.")
@click.option(
    "--model", type=click.Path(), help="Your copy of the model, to check the computation."
)
@click.option("--adapter", type=click.Path(), help="Your copy of the model's adapter.")
@click.option("--key", type=click.Path(), help=f"File with the API key. Default: ${KEY_VARIABLE}.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Directory for the answer, with --message or --request.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Largest number of tokens in an answer.",
)
@click.option(
    "--temperature",
    type=float,
    default=1.0,
    show_default=True,
    help="How evenly tokens are drawn. 0 always takes the most likely one.",
)
@click.option(
    "--top-p",
    type=float,
    default=1.0,
    show_default=True,
    help="Draw only from the most likely tokens that together have probability P.",
)
@click.option(
    "--request",
    "file",
    type=click.Path(),
    help="File with your own request, made by `tallystick request`. It is asked once.",
)
@click.option(
    "--client",
    type=click.Path(),
    metavar="KEY",
    help="Your private key. With it, Ctrl-C ends an answer and signs that you ended it.",
)
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
    file: str | None,
    client: str | None,
    tls_ca: str | None,
    threads: int | None,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Chat with a model on the server at URL, and check the receipt of each answer.

    Each question is a request of your own, with a nonce and a secret that the server cannot choose.
    Signature, request and text are always checked. With --model, the computation is checked too.
    The lines after an answer say what was checked. The exit code is 1 if an answer is not the one
    that was signed.
    """
    require_packages("tallystick chat")
    from tallystick.serving.api_keys import key_text
    from tallystick.serving.chat_client import ChatClient
    from tallystick.serving.question import Question
    from tallystick.serving.received import check_received

    if message is None and file is None and (as_json or output is not None):
        raise UsageError(
            "--json and -o need a single question.", "Pass it with --message or --request."
        )
    if adapter is not None and model is None:
        raise UsageError("--adapter needs --model.", "Pass the model with --model too.")
    settings = Settings(max_tokens=max_tokens, temperature=temperature, top_p=top_p)
    believed = load_trust(trust)
    text = key_text(None if key is None else Path(key), KEY_VARIABLE)
    signs = None if client is None else load_private_key(Path(client))
    own = None if file is None else _own(Path(file), None if signs is None else signs.public)
    messages = [] if system is None else [{"role": "system", "content": system}]
    wrong = False

    def ask(server: ChatClient, request: ModelRequest) -> tuple[str, ReceivedReport]:
        heard = (lambda _: None) if as_json else say_text
        question = Question(server, request, heard, signs)
        with _cancelled_by_interrupt(question, signs is not None):
            got = question.answer()
        if not as_json:
            say_text("\n")
        copy, beside = (None if name is None else Path(name) for name in (model, adapter))
        return got.shown, check_received(server, got, believed, copy, threads, beside)

    def questions(server: ChatClient) -> Iterator[ModelRequest]:
        if own is not None:
            yield own
            return
        for said in [message] if message is not None else map(str.rstrip, sys.stdin):
            if said:
                messages.append({"role": "user", "content": said})
                yield server.request(messages, settings, None if signs is None else signs.public)

    with ChatClient(url, text, served, None if tls_ca is None else Path(tls_ca)) as server:
        stated = server.statement.digest
        if digest is not None and stated.hex() != digest.lower():
            raise DigestMismatchError(
                f"The model {server.model} on the server has the digest {stated.hex()}, not that "
                "of --digest.",
                "Choose another server, or another model of this one with --served.",
            )
        if own is not None and own.model != stated:
            raise UsageError(
                f"The request is to the model {own.model.hex()}, but {server.model} on the server "
                f"is {stated.hex()}.",
                "Choose another server, or another model of this one with --served.",
            )
        for request in questions(server):
            answer, report = ask(server, request)
            messages.append({"role": "assistant", "content": answer})
            wrong |= not report.accepted
            if output is not None and report.files is not None:
                report.files.write(Path(output))
            if as_json:
                print_json(
                    {
                        "text": answer,
                        "accepted": report.accepted,
                        "model_digest": stated,
                        "request_digest": request.digest,
                        "finish": report.finish,
                        "checked": report.checked,
                        "unchecked": report.unchecked,
                        "wrong": report.wrong,
                    }
                )
            else:
                _say(report)
    if wrong:
        finish(MISMATCH)


def _own(file: Path, client: PublicKey | None) -> ModelRequest:
    """The request in `file`. Raises UsageError if another option asks for something too."""
    refuse_asked(_ASKS, "--request")
    found = client_request(file, {})
    if client is not None and found.client != client:
        raise UsageError(
            "The request does not name the key of --client as its client's.",
            "Make the request with `tallystick request … --client`, or leave --client out here.",
        )
    return found


@contextmanager
def _cancelled_by_interrupt(question: Question, signs: bool) -> Iterator[None]:
    """Within this context the first Ctrl-C ends the answer with a signature, the second ends the
    command. Without a key, or outside of the main thread, an interrupt ends the command."""
    if not signs or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        if question.cancelled:
            raise KeyboardInterrupt
        question.cancel()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say(report: ReceivedReport) -> None:
    for sentence in report.checked:
        note(f"checked      {sentence}")
    for sentence in report.unchecked:
        note(f"not checked  {sentence}")
    for sentence in report.wrong:
        say(f"WRONG        {sentence}")
