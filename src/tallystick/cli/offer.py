"""`tallystick offer`: offers, and what parties and referees sign about them (PROTOCOL 14); with the
outcomes of sessions, from a file or from a referee's log (14.6).
"""

from __future__ import annotations

import time
from dataclasses import fields
from os import urandom
from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import finish, json_option, load_keys, print_json, say
from tallystick.cli.places import PLACE
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.book import Book, check_session, open_book, providers_of
from tallystick.delegation.documents import (
    Acceptance,
    Alarm,
    Document,
    Receipt,
    Withdrawal,
    open_document,
    sign_document,
)
from tallystick.delegation.offer import (
    NONCE_BYTES,
    Deadlines,
    Offer,
    Payer,
    Reexecution,
    SessionNumbers,
    Withdrawing,
)
from tallystick.delegation.outcome import Outcome
from tallystick.delegation.rules import Rules
from tallystick.delegation.statement import read_outcome
from tallystick.delegation.watch import outcome_of, replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import read_file
from tallystick.errors import MismatchError, UsageError
from tallystick.job.job_file import load_terms
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import find_contract


def outcome_in(path: str) -> Outcome:
    """The outcome in a file of canonical JSON."""
    return read_outcome(read_file(Path(path), LIMITS.envelope_bytes, "outcome"))


def outcome_in_log(directory: str, job: str | None) -> tuple[Outcome, Rules]:
    """The outcome of the session in a referee's directory, whose log is played again, and the
    session's rules. Raises DeviationError for a log that convicts its referee."""
    if job is None:
        raise UsageError("A log can only be replayed with its job.", "Pass the job with --job.")
    session = replayed(load_terms(Path(job)), EntryLog(Path(directory)))
    outcome = outcome_of(session)
    assert session.rules is not None
    return outcome, session.rules


def session_outcome(
    name: str,
    file: str | None,
    log: str | None,
    job: str | None,
    book: Book,
    first: Outcome | None = None,
) -> Outcome | None:
    """The outcome that options name, None where none does.

    With a log the session must be the one that the offer orders: its own, or after `first` the
    challenge session (14.5, 14.7.1). Raises MismatchError for another.
    """
    if file is not None and log is not None:
        raise UsageError(
            f"The outcome of the {name} was given twice.", "Pass either a file or a log."
        )
    if log is None:
        return None if file is None else outcome_in(file)
    outcome, rules = outcome_in_log(log, job)
    check_session(book, rules, first)
    return outcome


HOUR, MINUTE = 3_600_000, 60_000  # milliseconds
_TIMES = ("deadlines.accept", "deadlines.withdraw", "deadlines.seal")

out_option = click.option("--out", required=True, type=click.Path(), help="File to write.")
key_option = click.option("--key", required=True, type=click.Path(), help="Your private key.")


def now_ms() -> int:
    """This machine's time in milliseconds since 1970 (PROTOCOL 11.1)."""
    return time.time_ns() // 1_000_000


def read_document(path: str) -> tuple[Document, bytes]:
    """The document in a file, and its envelope."""
    data = read_file(Path(path), LIMITS.commitment_bytes, "document")
    return open_document(data), data


def read_offer(path: str) -> Offer:
    """The offer in a file. Raises UsageError for another document."""
    document, _ = read_document(path)
    if not isinstance(document, Offer):
        raise UsageError(
            f"{path} is not an offer. It is of the kind {document.NAME}.",
            "Pass the offer first, and then its documents.",
        )
    return document


def read_book(paths: tuple[str, ...]) -> Book:
    """The book of the documents in files."""
    return open_book([read_document(path)[1] for path in paths])


@click.group()
def offer() -> None:
    """Offer jobs to providers, and sign the documents that answer an offer.

    `tallystick settle` uses them to compute who owes whom. No money moves.
    """


# ---- new ----------------------------------------------------------------------------------------


def _defaults(steps: int, most_parties: int) -> dict[str, int | str]:
    """What `--set` changes: times from now on, a session's numbers, and no price at all."""
    now = now_ms()
    return {
        "unit": "credit", "providers": 2, "least": 1, "most_parties": most_parties, "price": 0,
        "provider_stake": 0, "client_stake": 0, "alarm_stake": 0, "absence": 0, "silence": 0,
        "reward": 0, "withdrawal.client": 0, "withdrawal.provider": 0,
        "deadlines.accept": now + HOUR, "deadlines.withdraw": now + 2 * HOUR,
        "deadlines.seal": now + 26 * HOUR, "deadlines.challenge": 24 * HOUR,
        "rules.arity": 20, "rules.opening": 10 * MINUTE, "rules.budget": 10 * MINUTE,
        "rules.step": 1000, "rules.steps": steps, "rules.extension": MINUTE,
        "reexecution.payer": "each", "reexecution.unit_price": 0, "reexecution.most_steps": 0,
    }  # fmt: skip


def _changed(values: dict[str, int | str], settings: tuple[str, ...]) -> dict[str, int | str]:
    for text in settings:
        name, equal, value = text.partition("=")
        if name not in values or not equal:
            raise UsageError(f"An offer has no term {name!r}.", f"Set one of: {', '.join(values)}.")
        if isinstance(values[name], str):
            values[name] = value
            continue
        later = value.startswith("+") and name in _TIMES
        digits = value[1:] if later else value
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 16:
            raise UsageError(
                f"{name}={value!r} is not a number.",
                "Write an integer. For a deadline you can also write +N: N milliseconds from now.",
            )
        values[name] = int(digits) + (now_ms() if later else 0)
    return values


def _offer(key: PublicKey, job: str, keys: list[PublicKey], referees: list[PublicKey],
           settings: tuple[str, ...]) -> Offer:  # fmt: skip
    terms = load_terms(Path(job))
    logged = find_contract(terms.commitment.contract).keeps_log
    values = _changed(_defaults(terms.commitment.steps, 2 if logged else 64), settings)
    if logged and values["most_parties"] != 2:
        raise UsageError(
            "A session under a contract with logs has exactly two parties (PROTOCOL 10.1).",
            "Leave most_parties at 2.",
        )
    if values["reexecution.payer"] not in {payer.value for payer in Payer}:
        raise UsageError(
            "reexecution.payer names nobody who can pay.", "Choose client, loser or each."
        )

    def group(kind: type[Any]) -> Any:
        prefix = {Deadlines: "deadlines", SessionNumbers: "rules", Withdrawing: "withdrawal",
                  Reexecution: "reexecution"}[kind]  # fmt: skip
        return {f.name: values[f"{prefix}.{f.name}"] for f in fields(kind)}

    again = group(Reexecution)
    plain: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    return Offer(
        client=key,
        job_digest=terms.digest,
        nonce=urandom(NONCE_BYTES),
        keys=_ascending(keys),
        referees=_ascending(referees),
        deadlines=Deadlines(**group(Deadlines)),
        rules=SessionNumbers(**group(SessionNumbers)),
        withdrawal=Withdrawing(**group(Withdrawing)),
        reexecution=Reexecution(**{**again, "payer": Payer(again["payer"])}),
        **plain,
    )


def _ascending(keys: list[PublicKey]) -> tuple[PublicKey, ...]:
    return tuple(sorted(keys, key=lambda key: key.raw))


@offer.command()
@click.argument("job", type=PLACE)
@out_option
@key_option
@click.option("--referee", "referees", required=True, multiple=True, type=click.Path(),
              help="Public key of a referee that you trust (repeatable).")  # fmt: skip
@click.option(
    "--provider",
    "providers",
    multiple=True,
    type=click.Path(),
    help="Public key of a provider that may accept (repeatable). Default: any.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Set a term of the offer, such as price=100 or deadlines.accept=+60000 "
              "(repeatable).")  # fmt: skip
@json_option
def new(
    job: str, out: str, key: str, referees: tuple[str, ...], providers: tuple[str, ...],
    settings: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Offer JOB to providers. The offer is written to a file and signed with your key."""
    secret = load_private_key(Path(key))
    made = _offer(secret.public, job, load_keys(providers), load_keys(referees), settings)
    _write(out, secret, made, as_json)


# ---- what answers an offer ----------------------------------------------------------------------


@offer.command()
@click.argument("file", metavar="OFFER", type=click.Path())
@out_option
@key_option
@click.option("--job", type=PLACE, help="Your copy of the job. The offer must be for this job.")
@json_option
def accept(file: str, out: str, key: str, job: str | None, as_json: bool) -> None:
    """Accept OFFER as a provider. It takes effect once a referee has signed a receipt for it."""
    wanted = read_offer(file)
    if job is not None and load_terms(Path(job)).digest != wanted.job_digest:
        raise MismatchError("The offer is for another job than yours.", "Do not accept it.")
    secret = load_private_key(Path(key))
    _write(out, secret, Acceptance(wanted.digest, secret.public), as_json)


@offer.command()
@click.argument("file", metavar="OFFER", type=click.Path())
@out_option
@key_option
@json_option
def withdraw(file: str, out: str, key: str, as_json: bool) -> None:
    """Withdraw from OFFER, as its client or a provider. The offer sets the cost."""
    wanted = read_offer(file)
    secret = load_private_key(Path(key))
    _write(out, secret, Withdrawal(wanted.digest, secret.public), as_json)


@offer.command()
@click.argument("file", metavar="OFFER", type=click.Path())
@click.option("--outcome", type=click.Path(), help="Outcome file of the offer's session.")
@click.option(
    "--log",
    type=click.Path(),
    help="Instead of --outcome: the directory of the session's referee, with its log.",
)
@click.option("--job", type=PLACE, help="Your copy of the job, to replay the log.")
@out_option
@key_option
@json_option
def alarm(
    file: str, outcome: str | None, log: str | None, job: str | None, out: str, key: str,
    as_json: bool,
) -> None:  # fmt: skip
    """State that the claim accepted for OFFER is false. A false alarm costs you your stake."""
    wanted = read_offer(file)
    if job is not None and log is None:
        raise UsageError(
            "--job is only used to replay a log.", "Pass the log with --log, or leave --job out."
        )
    if outcome is not None and log is None:
        ended = outcome_in(outcome)
    elif log is not None and outcome is None:
        ended, _ = outcome_in_log(log, job)
    else:
        raise UsageError(
            "An alarm needs the outcome of one session.", "Pass --outcome, or --log with --job."
        )
    if ended.offer != wanted.digest or ended.accepted is None:
        raise UsageError(
            "This outcome does not belong to this offer, or it accepts no claim.",
            "Pass an outcome of this offer that accepts a claim. Without one, no alarm is "
            "possible.",
        )
    secret = load_private_key(Path(key))
    raised = Alarm(wanted.digest, ended.session, ended.accepted, secret.public)
    _write(out, secret, raised, as_json)


@offer.command()
@click.argument("file", metavar="OFFER", type=click.Path())
@click.argument("document", type=click.Path())
@out_option
@key_option
@json_option
def receive(file: str, document: str, out: str, key: str, as_json: bool) -> None:
    """Sign, as a referee of OFFER, that DOCUMENT has just arrived."""
    wanted, (came, _) = read_offer(file), read_document(document)
    secret = load_private_key(Path(key))
    if secret.public not in wanted.referees:
        raise UsageError(
            "This key is not one of the offer's referees.",
            "Sign with the key of a referee that the offer names.",
        )
    if isinstance(came, (Offer, Receipt)) or came.offer != wanted.digest:
        raise UsageError(
            "This document needs no receipt for this offer.",
            "Pass an acceptance, withdrawal or alarm for this offer.",
        )
    _write(out, secret, Receipt(wanted.digest, came.digest, now_ms(), secret.public), as_json)


def _write(out: str, secret: PrivateKey, document: Document, as_json: bool) -> None:
    path = Path(out)
    write_file(path, [sign_document(secret, document)])
    if as_json:
        print_json({"kind": document.NAME, "path": path, "digest": document.digest})
        return
    say(f"{document.NAME:<11} {path}")
    say(f"digest      {document.digest.hex()}")


# ---- check --------------------------------------------------------------------------------------


@offer.command()
@click.argument("documents", nargs=-1, required=True, type=click.Path())
@json_option
def check(documents: tuple[str, ...], as_json: bool) -> None:
    """Check the signatures of an offer and its DOCUMENTS, and print what they settle so far."""
    book = read_book(documents)
    found = providers_of(book)
    if as_json:
        print_json(
            {
                "offer": book.offer.digest,
                "job_digest": book.offer.job_digest,
                "client": book.offer.client.raw,
                "taken": [key.raw for key in found.taken],
                "withdrawn": [key.raw for key in found.withdrawn],
                "standing": [key.raw for key in found.standing],
                "client_withdrew": found.client_withdrew,
                "held": found.held,
                "without_receipt": [document.digest for document in book.unreceipted],
            }
        )
        finish(0)
    say(f"offer       {book.offer.digest.hex()}")
    say(f"job         {book.offer.job_digest.hex()}")
    say(f"client      {book.offer.client.raw.hex()}")
    for key in found.standing:
        say(f"stands      {key.raw.hex()}")
    for key in found.withdrawn:
        say(f"withdrawn   {key.raw.hex()}")
    for document in book.unreceipted:
        say(f"no receipt  {document.NAME} of {document.signer.raw.hex()}: it has no effect")
    if found.client_withdrew:
        say("session     none: the client has withdrawn")
    elif not found.held:
        say(f"session     none: fewer than {book.offer.least} providers stand")
    else:
        say(f"session     of {len(found.standing)} providers, from {book.offer.deadlines.withdraw}")
