"""What a request asks for, as options of `generate` and `request`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import click

from tallystick.cli.places import refuse_options
from tallystick.commit.encoding import JsonValue
from tallystick.disk.regular import read_file
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

Command = Callable[..., Any]

_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--prompt", help="Text to continue. Use - for standard input."),
    click.option(
        "--message",
        help="One message from a user, put into the model's chat template. Use - for "
        "standard input.",
    ),
    click.option(
        "--messages",
        type=click.Path(),
        help="JSON file with a whole conversation: a list of objects with role and content.",
    ),
    click.option("--tokens", type=click.Path(), help="JSON file with a list of token ids."),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        default=128,
        show_default=True,
        help="Largest number of tokens in an answer.",
    ),
    click.option(
        "--temperature",
        type=float,
        default=0.0,
        show_default=True,
        help="How evenly tokens are drawn. 0 always takes the most likely one.",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(0),
        default=0,
        help="Draw only from the K most likely tokens.",
    ),
    click.option(
        "--top-p",
        type=float,
        default=1.0,
        help="Draw only from the most likely tokens that together have probability P.",
    ),
    click.option(
        "--min-p",
        type=float,
        default=0.0,
        help="Never draw a token with less than P times the probability of the most likely one.",
    ),
    click.option(
        "--repetition",
        type=float,
        default=1.0,
        help="Penalty factor for tokens that already occur in the prompt or the answer.",
    ),
    click.option(
        "--presence",
        type=float,
        default=0.0,
        help="Amount subtracted from the logit of each token that already occurs in the answer.",
    ),
    click.option(
        "--frequency",
        type=float,
        default=0.0,
        help="Amount subtracted from a token's logit for each time it occurs in the answer.",
    ),
    click.option(
        "--stop", "stops", multiple=True, help="End the answer when this text appears (repeatable)."
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, (1 << 64) - 1),
        help="Seed of the draws. Default: derived from a new nonce.",
    ),
    click.option(
        "--choices",
        type=click.IntRange(1, LIMITS.choices),
        default=1,
        show_default=True,
        help="Number of answers.",
    ),
    click.option("--date", metavar="YYYY-MM-DD", help="Date that the chat template sees as today."),
)


def asked_options(command: Command) -> Command:
    """`command` with the options of what is asked for; `asked_for` takes their values."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def asked_for(options: Mapping[str, Any], help_: str) -> dict[str, Any]:
    """The values of these options as `api.requests.request` takes them. Raises UsageError, which
    has `help_` as its next action, unless exactly one input is given."""
    asked = dict(options)
    message = asked.pop("message")
    prompt, messages, tokens = (asked[name] for name in ("prompt", "messages", "tokens"))
    if sum(given is not None for given in (prompt, message, messages, tokens)) != 1:
        raise UsageError("Exactly one input is needed.", f"{help_}.")
    if prompt is not None:
        asked["prompt"] = _said(prompt)
    if message is not None:
        asked["messages"] = [{"role": "user", "content": _said(message)}]
    if messages is not None:
        asked["messages"] = _list(messages, dict, "messages", '[{"role": …, …}, …]')
    if tokens is not None:
        asked["tokens"] = _list(tokens, int, "token ids", "[1, 2, …]")
    asked["stop_strings"] = asked.pop("stops")
    return asked


def refuse_asked(options: Collection[str], beside: str) -> None:
    """UsageError where one of the options of these names is given beside the option `beside`."""
    refuse_options(
        options, f"cannot be given beside {beside}, which says itself what is asked for."
    )


def _said(text: str) -> str:
    """The text of an option, or for - what standard input has."""
    return sys.stdin.read().removesuffix("\n") if text == "-" else text


def _list(path: str, kind: type, what: str, form: str) -> list[JsonValue]:
    """The list in a JSON file that the caller names."""
    data = read_file(Path(path), LIMITS.request_bytes, what)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(type(one) is kind for one in found):
        raise UsageError(
            f"{path} is not a JSON list of {what}.", f"The file must have the form {form}."
        )
    return found
