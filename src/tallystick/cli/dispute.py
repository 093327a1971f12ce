"""`tallystick dispute`; it imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tallystick.api.disputes import Disputing, playing
from tallystick.cli.judge import damage, job_option, report, terms_of
from tallystick.cli.output import (
    device_option,
    json_option,
    load_trust,
    note,
    target_file,
    threads_option,
    trust_option,
)
from tallystick.cli.places import PLACE
from tallystick.cli.verdicts import say_event
from tallystick.commit.signing import Envelope, verify_run
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import is_directory, present
from tallystick.errors import TallystickError, UsageError
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement
from tallystick.protocol.referee import MAX_ARITY, MIN_ARITY
from tallystick.protocol.verdict import PARTIES, Verdict
from tallystick.prover.handover import hand_over
from tallystick.prover.prover import Prover
from tallystick.terminal.progress import counted


@click.command()
@click.argument("run_a", type=PLACE)
@click.argument("run_b", type=PLACE)
@job_option
@click.option("--out", required=True, type=click.Path(), help="File for the evidence.")
@click.option(
    "--arity",
    type=click.IntRange(MIN_ARITY, MAX_ARITY),
    default=20,
    show_default=True,
    help="Number of parts into which each round of the search cuts the remaining range.",
)
@click.option("--key-a", type=click.Path(), help="Private key of A, if A's run does not hold it.")
@click.option("--key-b", type=click.Path(), help="Private key of B, if B's run does not hold it.")
@click.option("--key", type=click.Path(), help="The referee's private key, which signs forfeits.")
@click.option(
    "--as-attack",
    "attacks",
    type=click.Choice(PARTIES),
    multiple=True,
    help="Let this run play the cheat that its override.json declares (repeatable).",
)
@click.option(
    "--logs-a",
    type=click.Path(),
    help="If the game ends undecided, fetch A's rounding logs from the disputed step on "
    "into this directory. To use it, place it as `logs` in your copy of A's run.",
)
@click.option("--logs-b", type=click.Path(), help="The same for B's rounding logs.")
@threads_option
@device_option
@trust_option
@json_option
def dispute(
    run_a: str,
    run_b: str,
    job: str,
    out: str,
    arity: int,
    key_a: str | None,
    key_b: str | None,
    key: str | None,
    attacks: tuple[str, ...],
    logs_a: str | None,
    logs_b: str | None,
    threads: int | None,
    device: str,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Decide a dispute between RUN_A and RUN_B, and write the evidence for the verdict.

    The exit code is 0 if the runs are the same, 1 if a party is convicted, 2 if the dispute stays
    undecided.
    """
    terms, target = terms_of(job), target_file(out, "evidence")
    referee_key = load_private_key(Path(key)) if key else None
    trusted = load_trust(trust)
    _check_targets(logs_a, logs_b)
    keys = Path(key_a) if key_a else None, Path(key_b) if key_b else None
    asked = Disputing(arity, attacks, keys, referee_key, threads, device)
    runs, tell = (Path(run_a), Path(run_b)), None if as_json else say_event
    with damage(), playing(asked, runs, terms, tell, _say_fault, note) as (played, provers):
        data = played.evidence.to_bytes()
        write_file(target, [data])
        handed = _handed_over(terms, provers, played.verdict, (logs_a, logs_b), as_json)
    signed = [verify_run(Envelope.from_bytes(c))[0] for c in played.evidence.commitments]
    known = [None if trusted is None else run.signer in trusted for run in signed]
    word = None
    if played.verdict.forfeit and referee_key is not None:
        word = referee_key.public.key_id
    found = Judgement(
        played.verdict,
        (signed[0].run_root, signed[1].run_root),
        (signed[0].signer.key_id, signed[1].signer.key_id),
        (known[0], known[1]),
        word,
    )
    executed = sum(prover.executed_steps for prover in provers)
    report(found, data, target, as_json, {"executed_steps": executed, "logs": handed}, terms=terms)


def _check_targets(*targets: str | None) -> None:
    """Each party's logs need a directory of their own. It is checked before a long game begins."""
    named = [Path(target) for target in targets if target is not None]
    if len(named) != len(set(named)):
        raise UsageError(
            "--logs-a and --logs-b name the same directory.", "Name two different directories."
        )
    for path in named:
        if present(path) and not is_directory(path):
            raise UsageError(f"{path} is not a directory.", "Name a directory for the logs.")


def _handed_over(
    terms: Terms,
    provers: Sequence[Prover],
    found: Verdict,
    targets: Sequence[str | None],
    quiet: bool,
) -> list[str | None]:
    """The directories with each party's logs, from the disputed step on (PROTOCOL 6.15).

    A hand-over that fails does not change the verdict: the command reports it, and the result has
    null for it.
    """
    written: list[str | None] = [None for _ in targets]
    if not found.undecided or found.place.step is None:
        return written
    for k, (name, prover, target) in enumerate(zip(PARTIES, provers, targets, strict=True)):
        if target is None:
            continue
        last = prover.run.final_step
        try:
            with counted(f"{name} hands over logs", last - found.place.step, quiet) as tell:
                hand_over(prover, terms, found.place.step, Path(target), tell)
            written[k] = target
        except TallystickError as error:
            note(f"{name}'s logs were not handed over: {error.message} {error.next_action}")
    return written


def _say_fault(party: int, why: str) -> None:
    note(f"{PARTIES[party]} has not answered yet ({why})")
