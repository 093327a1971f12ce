"""`tallystick serve-model`: a model server with receipts, and the API keys of its clients."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallystick.api.answering import DAYS
from tallystick.api.speculating import speculation_of
from tallystick.cli.output import json_option, note, print_json, say, threads_option
from tallystick.disk.keys import load_private_key
from tallystick.errors import TallystickError, UsageError
from tallystick.job.numbers import moment
from tallystick.limits import LIMITS
from tallystick.service import require_packages

if TYPE_CHECKING:  # it needs the packages of the extra
    from tallystick.serving.kept.answers import KeptAnswers

_MIB = 1 << 20
_EXPIRE_SECONDS = 3600.0
_KEYS = "api-keys.json"


class _WithKeys(click.Group):
    """A command whose first argument `keys` is a group of commands of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] != ["keys"]:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WithKeys)
def serve_model() -> None:
    """Serve models through OpenAI's interface. Write ./keys for a model directory named `keys`."""


@serve_model.command(options_metavar="MODEL... [OPTIONS]")
@click.argument("models", nargs=-1, required=True, type=click.Path(), metavar="")
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Address to listen on. Port 0 takes a free port.",
)
@click.option("--key", type=click.Path(), help="Private key that signs. Default: a new one.")
@click.option(
    "--api-keys",
    type=click.Path(),
    help="File with the API keys that `serve-model keys add` makes. Without it, the server "
    "listens on loopback only.",
)
@click.option(
    "--statement", "statements", multiple=True, type=click.Path(),
    help="Statement of each MODEL in turn (repeatable). Default: MODEL.statement.",
)  # fmt: skip
@click.option(
    "--adapter", "adapters", multiple=True, type=click.Path(), metavar="DIR",
    help="Directory with the adapter of each MODEL in turn (repeatable): a LoRA saved by peft. "
    "Use - for a MODEL without one. The statement is then DIR.statement, and the model is named "
    "after DIR.",
)  # fmt: skip
@click.option("--share-prefixes", is_flag=True, help="Share computed prefixes between keys. "
              "Response times then reveal what other keys have asked.")  # fmt: skip
@click.option("--at-once", type=click.IntRange(1, 64), default=32, show_default=True,
              help="Largest number of answers of one model to compute together.")  # fmt: skip
@click.option("--key-at-once", type=click.IntRange(1, 64), default=16, show_default=True,
              help="Largest number of answers of one API key to compute together.")  # fmt: skip
@click.option("--waiting", type=click.IntRange(1, 65536), default=512, show_default=True,
              help="Largest number of waiting answers of all API keys.")  # fmt: skip
@click.option("--key-waiting", type=click.IntRange(1, 65536), default=256, show_default=True,
              help="Largest number of waiting answers of one API key.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(1, LIMITS.text_places), default=4096,
              show_default=True, help="Largest number of tokens in an answer.")  # fmt: skip
@click.option(
    "--key-tokens",
    type=click.IntRange(0),
    default=0,
    help="Largest number of tokens that an API key may use in a minute. Default: no limit.",
)
@click.option("--seconds", type=click.FloatRange(1, 86400), default=600, show_default=True,
              help="Seconds that a request may take, to the end of its answers.")  # fmt: skip
@click.option("--memory", type=click.IntRange(1), default=1024, show_default=True, metavar="MIB",
              help="Memory for the attention keys and values of each model.")  # fmt: skip
@click.option("--speculate", metavar="lookup[:K]", help="Guess up to K tokens ahead from the "
              "text so far. This changes the speed but never the answers.")  # fmt: skip
@click.option("--draft", type=click.Path(), help="Guess tokens with the smaller model in "
              "this directory; it needs the same tokenizer. This changes the speed but never the "
              "answers.")  # fmt: skip
@click.option(
    "--keep",
    "kept",
    type=click.Path(),
    help="Directory in which answers are kept for disputes. Without it, they are kept in memory, "
    "and receipts promise nothing.",
)
@click.option("--keep-mib", "kept_mib", type=click.IntRange(1), default=4096, show_default=True,
              metavar="MIB", help="Disk space for kept answers. "
              "Requests are refused when it is full.")  # fmt: skip
@click.option("--days", type=click.IntRange(0, 36500), default=DAYS, show_default=True,
              help="Days for which receipts promise to answer disputes.")  # fmt: skip
@click.option("--tls-cert", type=click.Path(), help="PEM file of this server's certificates.")
@click.option("--tls-key", type=click.Path(), help="PEM file of the certificate's private key.")
@threads_option
def run(
    models: tuple[str, ...],
    listen: str,
    key: str | None,
    api_keys: str | None,
    statements: tuple[str, ...],
    adapters: tuple[str, ...],
    share_prefixes: bool,
    memory: int,
    speculate: str | None,
    draft: str | None,
    kept: str | None,
    kept_mib: int,
    days: int,
    tls_cert: str | None,
    tls_key: str | None,
    threads: int | None,
    **limits: Any,
) -> None:
    """Answer requests of OpenAI's clients with the models in the directories MODEL, until SIGINT
    or SIGTERM.

    Each answer carries its signed receipt. The log on standard error has a line of JSON for each
    request, without its text. `serve-model keys add NAME` makes an API key.
    """
    require_packages("tallystick serve-model")
    from tallystick.commit.signing import PrivateKey
    from tallystick.service.server import (
        HttpServer,
        listening_socket,
        parse_listen,
        tls_context,
    )
    from tallystick.serving.api_keys import KeyRing, ServingLimits
    from tallystick.serving.app import ModelServer, is_loopback, log_line
    from tallystick.serving.keeping import AnswerKeeper, MemoryKeeper
    from tallystick.serving.kept.answers import KeptAnswers
    from tallystick.serving.models import open_served, served_name

    if api_keys is None and not is_loopback(parse_listen(listen)[0]):
        raise UsageError(
            f"Without API keys, a model is only served on a loopback address. {listen} is not one.",
            "Make a key with `tallystick serve-model keys add NAME`, and pass its file with "
            "--api-keys.",
        )
    if statements and len(statements) != len(models):
        raise UsageError(
            "The number of --statement options is not the number of models.",
            "Pass --statement once for each MODEL, or not at all.",
        )
    if adapters and len(adapters) != len(models):
        raise UsageError(
            "The number of --adapter options is not the number of models.",
            "Pass --adapter once for each MODEL, or not at all. Use - for a MODEL without an "
            "adapter.",
        )
    if (tls_cert is None) != (tls_key is None):
        raise UsageError(
            "TLS needs both a certificate and its private key.",
            "Pass both --tls-cert and --tls-key.",
        )
    tls = tls_context(Path(tls_cert), Path(tls_key)) if tls_cert and tls_key else None
    paths = [Path(model).absolute() for model in models]
    beside = [None if one == "-" else Path(one).absolute() for one in adapters or "-" * len(models)]
    if len(set(map(served_name, paths, beside))) != len(paths):
        raise UsageError(
            "Two of these models have the same name.", "Rename one of their directories."
        )
    if kept is not None and key is None:
        raise UsageError(
            "--keep needs a key: later, kept answers are defended with the key that signed them.",
            "Make a key with `tallystick keys new KEY.pem`, and pass it with --key.",
        )
    speculation = speculation_of(speculate, None if draft is None else Path(draft))
    signing = PrivateKey.generate() if key is None else load_private_key(Path(key))
    ring = None if api_keys is None else KeyRing(Path(api_keys))
    bounds = ServingLimits(
        at_once=limits["at_once"],
        key_at_once=limits["key_at_once"],
        waiting=limits["waiting"],
        key_waiting=limits["key_waiting"],
        answer_tokens=limits["max_tokens"],
        key_tokens_minute=limits["key_tokens"],
        seconds=limits["seconds"],
    )
    with ExitStack() as stack:
        keeper: AnswerKeeper = MemoryKeeper()
        durable: KeptAnswers | None = None
        if kept is not None:
            keeper = durable = stack.enter_context(KeptAnswers(Path(kept), kept_mib * _MIB, days))
            durable.require_models()  # those of earlier answers too (ANSWERS 7.7.2)
            expiring = threading.Thread(target=_expire, args=(durable,), daemon=True)
            expiring.start()
        sock = stack.enter_context(listening_socket(listen))
        served = []
        stateds = statements or [None] * len(paths)
        for path, adapter, place in zip(paths, beside, stateds, strict=True):
            note(f"reading {served_name(path, adapter)}")
            stated = None if place is None else Path(place)
            one = open_served(
                path, stated, signing, keeper, bounds, _tell, threads, memory * _MIB,
                share_prefixes, speculation, adapter,
            )  # fmt: skip
            if durable is not None:
                durable.uses(one.statement, path, adapter)
            stack.callback(one.thread.close)
            one.thread.start()
            served.append(one)
        server = ModelServer(served, keeper, ring, bounds, _tell, lambda said: note(log_line(said)))
        http = HttpServer(server.app(), sock, tls, grace=10)
        host = sock.getsockname()[0]
        scheme = "http" if tls is None else "https"
        say(f"serving     {scheme}://{f'[{host}]' if ':' in host else host}:{http.port}/v1")
        for model in served:
            say(f"model       {model.name}  {model.digest}")
        say(f"public key  {signing.public.raw.hex()}")
        say(f"key id      {signing.public.key_id}")
        http.run()


def _expire(keeper: KeptAnswers) -> None:
    """Delete what has passed its date, now and every hour, as long as the process lives."""
    while True:
        try:
            keeper.expire()
        except TallystickError as error:
            note(str(error))
        time.sleep(_EXPIRE_SECONDS)


def _tell(error: BaseException) -> None:
    for line in traceback.format_exception(error):
        note(line.rstrip())


@serve_model.group()
def keys() -> None:
    """Add, remove and list API keys. The file holds only their hashes."""


file_option = click.option(
    "--file",
    "path",
    type=click.Path(),
    default=_KEYS,
    show_default=True,
    help="File with the API keys.",
)


@keys.command()
@click.argument("name")
@file_option
@click.option("--operator", is_flag=True, help="Let this key read the metrics of all keys.")
@json_option
def add(name: str, path: str, operator: bool, as_json: bool) -> None:
    """Make the API key NAME, and print it. It is shown only once: the file holds only its hash."""
    from tallystick.serving.api_keys import add_key

    made = add_key(Path(path), name, operator)
    if as_json:
        print_json({"name": name, "key": made, "file": path})
    else:
        say(made)
        note(f"Copy the key now. {path} holds only its hash.")


@keys.command()
@click.argument("name")
@file_option
def remove(name: str, path: str) -> None:
    """Remove the API key NAME from the file. A running server notices within a second."""
    from tallystick.serving.api_keys import remove_key

    remove_key(Path(path), name)


@keys.command("list")
@file_option
@json_option
def list_(path: str, as_json: bool) -> None:
    """List the names of the API keys."""
    from tallystick.serving.api_keys import read_keys

    found: list[Mapping[str, Any]] = [
        {"name": key.name, "made": moment(key.made), "operator": key.operator}
        for key in read_keys(Path(path))
    ]
    if as_json:
        print_json({"keys": found})
        return
    for one in found:
        say(f"{one['name']}  {one['made']}{'  operator' if one['operator'] else ''}")
