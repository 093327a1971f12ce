"""`tallystick settle`: the transfers that an offer and its outcomes give (PROTOCOL 14.8)."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.offer import now_ms, read_book, session_outcome
from tallystick.cli.output import json_option, note, print_json, say
from tallystick.cli.places import PLACE
from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import Book
from tallystick.delegation.outcome import Outcome
from tallystick.delegation.statement import (
    Settled,
    check_settlement,
    settled_from,
    sign_settlement,
)
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import read_file
from tallystick.errors import UsageError
from tallystick.limits import LIMITS


@click.command()
@click.argument("documents", nargs=-1, required=True, type=click.Path())
@click.option("--outcome", type=click.Path(), help="Outcome file of the offer's session.")
@click.option("--challenge", type=click.Path(), help="Outcome file of the session after an alarm.")
@click.option("--log", type=click.Path(), help="Instead of --outcome: the referee's directory.")
@click.option(
    "--challenge-log",
    type=click.Path(),
    help="Instead of --challenge: the directory of the referee of that session.",
)
@click.option("--job", type=PLACE, help="Your copy of the job, to replay the logs.")
@click.option("--key", type=click.Path(), help="Private key of a referee, to sign the settlement.")
@click.option("--out", type=click.Path(), help="File for the signed settlement.")
@click.option(
    "--check",
    "signed",
    type=click.Path(),
    help="Check this signed settlement instead of writing one.",
)
@json_option
def settle(
    documents: tuple[str, ...],
    outcome: str | None,
    challenge: str | None,
    log: str | None,
    challenge_log: str | None,
    job: str | None,
    key: str | None,
    out: str | None,
    signed: str | None,
    as_json: bool,
) -> None:
    """Compute who owes whom from an offer, its DOCUMENTS with receipts, and outcomes.

    With --key and --out, the command signs the settlement and writes it to a file. With --check,
    it compares the settlement with one that is signed. The exit code is 1 if they differ.
    """
    if job is not None and log is None and challenge_log is None:
        raise UsageError(
            "--job is only used to replay a log.",
            "Pass --log or --challenge-log, or leave --job out.",
        )
    book = read_book(documents)
    session = session_outcome("session", outcome, log, job, book)
    second = session_outcome("challenge", challenge, challenge_log, job, book, session)
    if second is not None and session is None:
        raise UsageError(
            "The outcome of the challenge session needs that of the offer's own session.",
            "Pass --outcome or --log as well.",
        )
    if signed is not None:
        if key is not None or out is not None:
            raise UsageError("--check writes nothing.", "Leave out --key and --out.")
        settled = _checked(signed, book, session, second)
    else:
        settled = _made(book, session, second, key, out)
    if as_json:
        print_json(_json(settled, signed is not None))
    else:
        _say(settled)


def _checked(path: str, book: Book, session: Outcome | None, challenge: Outcome | None) -> Settled:
    data = read_file(Path(path), LIMITS.envelope_bytes, "settlement")
    stated = session is None
    settled = check_settlement(data, book, session, challenge, stated=stated)
    if stated and settled.session is not None:
        note("The outcomes are the ones in the settlement. Pass --log to use your own.")
    return settled


def _made(
    book: Book, session: Outcome | None, challenge: Outcome | None, key: str | None, out: str | None
) -> Settled:
    if (key is None) != (out is None):
        raise UsageError("--key and --out are needed together.", "Pass both, or neither.")
    if key is None or out is None:
        # The transfers do not depend on the time, nor on the referee that signs them.
        first = book.offer.referees[0]
        time = now_ms()
        if time < settled_from(book, session):
            note("Documents that change these transfers may still arrive (PROTOCOL 14.9.1).")
        time = max(time, settled_from(book, session))
        return Settled(book, first, time, session, challenge)
    secret = load_private_key(Path(key))
    settled = Settled(book, secret.public, now_ms(), session, challenge)
    write_file(Path(out), [sign_settlement(secret, settled)])
    return settled


def _json(settled: Settled, checked: bool) -> dict[str, object]:
    found = settled.settlement
    return {
        "accepted": found.accepted,
        "checked": checked,
        "offer": settled.book.offer.digest,
        "unit": settled.book.offer.unit,
        "transfers": [
            {"from": t.payer.raw, "to": t.payee.raw, "amount": t.amount, "reason": t.reason}
            for t in found.transfers
        ],
        "balances": [
            {"key": key.raw, "amount": found.balance(key)} for key in _keys(settled)
        ],
    }  # fmt: skip


def _keys(settled: Settled) -> list[PublicKey]:
    """The keys that pay or get something, ascending."""
    found = {key for t in settled.settlement.transfers for key in (t.payer, t.payee)}
    return sorted(found, key=lambda key: key.raw)


def _say(settled: Settled) -> None:
    found, unit = settled.settlement, settled.book.offer.unit
    say(f"offer       {settled.book.offer.digest.hex()}")
    say(f"claim       {'none is accepted' if found.accepted is None else found.accepted.hex()}")
    for t in found.transfers:
        payer, payee = t.payer.raw.hex()[:16], t.payee.raw.hex()[:16]
        say(f"{t.reason:<12} {payer} owes {payee}  {t.amount} {unit}")
    for key in _keys(settled):
        say(f"balance      {key.raw.hex()[:16]}  {found.balance(key):+d} {unit}")
