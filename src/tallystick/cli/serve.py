"""`tallystick serve` and `tallystick fetch-logs`: a party on a network; neither imports torch."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tallystick.cli.offer import read_offer
from tallystick.cli.output import (
    device_option,
    json_option,
    load_keys,
    note,
    print_json,
    say,
    threads_option,
)
from tallystick.cli.places import PLACE
from tallystick.commit.signing import Envelope, PublicKey, verify_run
from tallystick.delegation.book import check_ordered
from tallystick.delegation.offer import Offer
from tallystick.delegation.rules import Rules
from tallystick.devices.context import ExecutionContext, context_on
from tallystick.disk.keys import load_private_key
from tallystick.disk.mounts import url_of
from tallystick.disk.regular import is_directory, present
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job, load_terms
from tallystick.limits import LIMITS
from tallystick.prover.cheating import party_of
from tallystick.prover.handover import copy_run, hand_over
from tallystick.prover.registered import Registered
from tallystick.run.store.claim import signing_key
from tallystick.run.store.directory import RunStore
from tallystick.service import require_packages
from tallystick.terminal.progress import counted

if TYPE_CHECKING:
    from tallystick.service.guard import Guard

tls_ca_option = click.option(
    "--tls-ca",
    type=click.Path(),
    help="PEM file of the certificate authorities to trust instead of the system's.",
)


@click.command()
@click.argument("run", type=PLACE, required=False)
@click.option(
    "--answers",
    type=click.Path(),
    help="Instead of RUN: the directory in which a model server keeps its answers.",
)
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Address to listen on. Port 0 takes a free port.",
)
@click.option(
    "--referee",
    "referees",
    required=True,
    multiple=True,
    metavar="KEY",
    help="Public key of a referee to trust (repeatable).",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(),
    help="The run's private key, if the run does not hold it. With --answers: a key that "
    "signed receipts (repeatable).",
)
@click.option(
    "--at-once",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --answers: number of answers computed at the same time.",
)
@click.option("--as-attack", is_flag=True, help="Play the cheat that the run's directory declares.")
@click.option("--tls-cert", type=click.Path(), help="PEM file of this server's certificates.")
@click.option("--tls-key", type=click.Path(), help="PEM file of the certificate's private key.")
@click.option(
    "--sessions",
    type=click.Path(),
    help="Directory for this party's sessions. Default: RUN.sessions, beside the run.",
)
@click.option(
    "--offer",
    "offers",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="An offer that you have accepted (repeatable). A session for it is refused "
    "unless it has the offer's rules.",
)
@threads_option
@device_option
def serve(
    run: str | None,
    answers: str | None,
    listen: str,
    referees: tuple[str, ...],
    keys: tuple[str, ...],
    at_once: int,
    as_attack: bool,
    tls_cert: str | None,
    tls_key: str | None,
    sessions: str | None,
    offers: tuple[str, ...],
    threads: int | None,
    device: str,
) -> None:
    """Answer trusted referees about RUN, or about kept answers, until SIGINT or SIGTERM.

    The server seals the run's commitment, opens it, and answers the queries of its own games and
    no others (PROTOCOL 13). No other part of the run can be read. Under a contract with logs, it
    hands over the logs once it has sealed (PROTOCOL 6.15.1).

    With --answers, the server defends every answer that a model server keeps. Each answer has its
    own address: URL/answers/JOB, where JOB is the job digest in the receipt.
    """
    require_packages("tallystick serve")
    from tallystick.service.party_app import party_app
    from tallystick.service.server import HttpServer, listening_socket, tls_context

    if (run is None) == (answers is None):
        raise UsageError(
            "Exactly one of RUN and --answers is needed.",
            "Pass either a RUN or --answers DIRECTORY.",
        )
    own = [load_private_key(Path(name)) for name in keys]
    if answers is not None:
        if as_attack or sessions is not None or offers or device != "cpu":
            raise UsageError(
                "--as-attack, --sessions, --offer and --device cannot be used with --answers.",
                "Leave them out.",
            )
    elif len(own) > 1:
        raise UsageError("A run is served with one key.", "Pass --key only once.")
    elif run is not None and sessions is None and url_of(Path(run)) is not None:
        raise UsageError(
            "The run is on another machine, so its sessions cannot be stored beside it.",
            "Pass a local directory with --sessions. Use the same one each time: it records what "
            "was answered.",
        )
    if (tls_cert is None) != (tls_key is None):
        raise UsageError(
            "TLS needs both a certificate and its private key.",
            "Pass both --tls-cert and --tls-key.",
        )
    tls = tls_context(Path(tls_cert), Path(tls_key)) if tls_cert and tls_key else None
    believed = load_keys(referees)

    def listening(app: Guard, signers: Sequence[PublicKey]) -> None:
        server = HttpServer(app, sock, tls)
        host = sock.getsockname()[0]
        scheme = "http" if tls is None else "https"
        say(f"serving     {scheme}://{f'[{host}]' if ':' in host else host}:{server.port}")
        for one in signers:
            # Both are 64 hexadecimal digits: `/v1/party` has the first one.
            say(f"public key  {one.raw.hex()}")
            say(f"key id      {one.key_id}")
        server.run()

    if answers is not None:
        from tallystick.cli.serve_answers import serve_answers
        from tallystick.serving.kept.parties import disputes_app

        signers = [one.public for one in own]
        with listening_socket(listen) as sock:
            serve_answers(
                Path(answers),
                own,
                believed,
                ExecutionContext(threads),
                at_once,
                lambda parties: listening(disputes_app(parties, tell=_tell), signers),
            )
        return
    assert run is not None
    key = own[0] if own else None
    path = Path(run).absolute()
    store = RunStore(path)
    store.require()
    if not as_attack and store.exists and present(store.override_path):
        note(f"{store.override_path} was ignored. To play its cheat, pass --as-attack.")
    context = context_on(device, lambda: store.job().commitment.contract, threads)
    sock = listening_socket(listen)
    with (
        sock,
        party_of(path, key, context, as_attack=as_attack, notice=note) as prover,
    ):
        private = signing_key(store, prover.run.signer, key)
        kept = Path(sessions) if sessions else path.with_name(path.name + ".sessions")
        check = check_of_offers([read_offer(name) for name in offers], private.public)
        registered = Registered(prover, private, prover.job.terms, believed, kept, note, check)
        try:
            listening(party_app(registered, tell=_tell), [registered.key])
        finally:
            if not registered.close():
                note("An answer was not finished. It is computed again when a referee asks.")


def check_of_offers(offers: list[Offer], key: PublicKey) -> Callable[[Rules], None]:
    """A check of a session's rules against the accepted offer that they name (PROTOCOL 14.5).

    Rules that name no offer, or another document such as an alarm, are not looked at.
    """
    by_digest = {offer.digest: offer for offer in offers}

    def check(rules: Rules) -> None:
        offer = by_digest.get(rules.offer)
        if offer is not None:
            check_ordered(offer, key, rules)

    return check


def _tell(error: BaseException) -> None:
    for line in traceback.format_exception(error):
        note(line.rstrip())


@click.command("fetch-logs")
@click.argument("url")
@click.option("--job", required=True, type=PLACE, help="Your own copy of the job.")
@click.option("--out", required=True, type=click.Path(), help="Directory for the logs.")
@click.option(
    "--from-step",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="First step whose log is fetched.",
)
@click.option(
    "--as-run", is_flag=True, help="Make the directory a run that `train --replay` can follow."
)
@tls_ca_option
@json_option
def fetch_logs(
    url: str,
    job: str,
    out: str,
    from_step: int,
    as_run: bool,
    tls_ca: str | None,
    as_json: bool,
) -> None:
    """Fetch the logs of the party at URL, and check each against its signed run.

    With --as-run the directory becomes a copy of the run, without states, that `train --replay`
    can follow. Otherwise name the directory `logs` in your copy of the run. Only missing steps
    are fetched, so the same command resumes an interrupted one.
    """
    require_packages("tallystick fetch-logs")
    from tallystick.service.client import LogSource

    if tls_ca and not url.lower().startswith("https:"):
        raise UsageError(
            "--tls-ca can only be used with https URLs.",
            "Write https://HOST:PORT, or leave --tls-ca out.",
        )
    if as_run and from_step:
        raise UsageError(
            "With --as-run, the logs must begin with step 0.", "Leave out --from-step or --as-run."
        )
    whole = load_job(Path(job)) if as_run else None
    terms, target = whole.terms if whole else load_terms(Path(job)), Path(out)
    if present(target) and not is_directory(target):
        raise UsageError(f"{out} is not a directory.", "Name a directory for the logs.")
    with LogSource(url, Path(tls_ca) if tls_ca else None) as source:
        run, _ = verify_run(Envelope.from_bytes(source.commitment, LIMITS.commitment_bytes))
        with counted("logs", max(0, run.final_step - from_step), as_json) as tell:
            if whole is not None:
                copy_run(source, whole, target, tell)
                steps = range(run.final_step)
            else:
                steps = hand_over(source, terms, from_step, target, tell)
    if as_json:
        print_json(
            {
                "logs": target,
                "steps": [steps.start, steps.stop],
                "run_root": run.run_root,
                "signer": run.signer.key_id,
            }
        )
    else:
        say(f"logs        {target}, steps {steps.start} to {steps.stop - 1}")
        say(f"run root    {run.run_root.hex()}")
        say(f"signer      {run.signer.key_id}")
