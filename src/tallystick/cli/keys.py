"""`tallystick keys new` and `tallystick keys show`."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.output import json_option, print_json, say
from tallystick.commit.p256 import P256Key, vouching_payload
from tallystick.commit.signed import sign_statement
from tallystick.commit.signing import PrivateKey
from tallystick.disk.files import make_directory, write_file
from tallystick.disk.keys import load_private_key, load_public_key, save_private_key

_DEFAULT = "tallystick-key.pem"


@click.group()
def keys() -> None:
    """Make and show signing keys."""


@keys.command()
@click.argument("file", type=click.Path(), default=_DEFAULT)
@json_option
def new(file: str, as_json: bool) -> None:
    """Write a private key to FILE (default tallystick-key.pem) and its public key to FILE.pub."""
    path = Path(file)
    if str(path.parent) not in ("", "."):
        make_directory(path.parent)
    key = PrivateKey.generate()
    save_private_key(key, path)
    public = path.with_name(path.name + ".pub")
    write_file(public, [key.public.pem()])
    if as_json:
        print_json({"private": path, "public": public, "key_id": key.public.key_id})
        return
    say(f"private key  {path} (keep it; train with --key {path})")
    say(f"public key   {public} (give it to auditors, for --trust)")
    say(f"key id       {key.public.key_id}")


@keys.command()
@click.argument("file", type=click.Path())
@json_option
def show(file: str, as_json: bool) -> None:
    """Print the key id of FILE, a private or public key. Secrets are not printed."""
    key = load_public_key(Path(file))
    if as_json:
        print_json({"key_id": key.key_id, "public_key": key.raw})
    else:
        say(f"key id      {key.key_id}")
        say(f"public key  {key.raw.hex()}")


@keys.command()
@click.argument("file", type=click.Path())
@click.option(
    "--key",
    required=True,
    type=click.Path(),
    help="Your own private key, which vouches for the new key.",
)
@json_option
def p256(file: str, key: str, as_json: bool) -> None:
    """Write a P-256 key to FILE, for formats without Ed25519, and vouch for it with your own key.

    The public key goes to FILE.pub. The signed claim that it is yours goes to FILE.claim.json.
    """
    path, owner = Path(file), load_private_key(Path(key))
    made = P256Key.generate()
    public = path.with_name(path.name + ".pub")
    vouched = path.with_name(path.name + ".claim.json")
    payload = vouching_payload(made.public, public.name, owner.public)
    save_private_key(made, path)
    write_file(public, [made.public.pem()])
    write_file(vouched, [sign_statement(owner, payload).to_bytes()])
    if as_json:
        print_json({"private": path, "public": public, "claim": vouched})
        return
    say(f"private key  {path} (keep it; sign models with --p256 {path})")
    say(f"public key   {public} (give it to those who verify models)")
    say(f"claim        {vouched} ({owner.public.key_id} vouches for the key)")
