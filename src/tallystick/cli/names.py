"""Names of keys: those that the caller gives with --name, and those of a page's maker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import say
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PublicKey
from tallystick.disk.keys import load_public_key
from tallystick.errors import UsageError
from tallystick.protocol.judge import Judgement
from tallystick.protocol.verdict import PARTIES

name_option = click.option(
    "--name",
    "named",
    multiple=True,
    metavar="KEY=NAME",
    help="Your name for the holder of a public key. KEY is the key's file or its 64 "
    "hexadecimal digits (repeatable).",
)
_DIGITS = re.compile(r"[0-9a-f]{64}")


def load_names(given: Sequence[str]) -> dict[str, str]:
    """Name by key as `--name` gives them: a key id, or the 64 digits that the caller typed, which
    are a public key's or a key id's. Raises UsageError, CannotCheckError."""
    names = dict[str, str]()
    for text in given:
        key, equals, name = text.partition("=")
        if not equals or not key or not name.strip():
            raise UsageError(
                f"{text!r} is not KEY=NAME.", "Write KEY=NAME, such as alice.pub=Alice."
            )
        names[key if _DIGITS.fullmatch(key) else load_public_key(Path(key)).key_id] = name
    return names


def names_by_key(names: Mapping[str, str], keys: Sequence[PublicKey]) -> dict[bytes, str]:
    """The names of `load_names` by raw public key, each of them one of `keys`.

    Raises UsageError for another one.
    """
    known = {key.key_id: key.raw for key in keys} | {key.raw.hex(): key.raw for key in keys}
    if strange := sorted(set(names) - set(known)):
        raise UsageError(
            f"No party in this evidence has the key {strange[0]}.",
            "Pass the public key of a party.",
        )
    return {known[key]: name for key, name in names.items()}


def names_json(
    found: Judgement, own: Mapping[str, str], makers: Mapping[bytes, str]
) -> list[dict[str, Any]]:
    """The names of the keys that a verdict is about, and whose names they are."""
    by_reader = {**own, **{sha256(bytes.fromhex(k)).hex(): name for k, name in own.items()}}
    by_maker = {sha256(key).hex(): name for key, name in makers.items()}
    keys = dict.fromkeys((*found.signers, *([found.referee] if found.referee else ())))
    return [
        {"key_id": key, "name": names[key], "given_by": giver}
        for key in keys
        for giver, names in (("you", by_reader), ("page", by_maker))
        if key in names
    ]


def say_names(found: Judgement, names: Sequence[Mapping[str, Any]]) -> None:
    """One line for each name, with the giver of it."""
    givers = {"you": "by your --name", "page": "by the page's maker; nobody has checked it"}
    for entry in names:
        roles = [p for p, signer in zip(PARTIES, found.signers, strict=True)
                 if signer == entry["key_id"]]  # fmt: skip
        who = " and ".join(roles) or "the referee"
        say(f"name        {who}: {entry['name']} ({givers[entry['given_by']]})")
