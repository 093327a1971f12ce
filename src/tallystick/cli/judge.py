"""`tallystick judge`, and what it shares with `dispute`.

It loads no torch, and nothing that answers for a run: a judge needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import (
    CANNOT_CHECK,
    MISMATCH,
    finish,
    json_option,
    load_keys,
    load_trust,
    note,
    print_json,
    say,
    trust_option,
    trust_referee_option,
)
from tallystick.cli.pages import begins_as_page, load_page, page_json, say_page, warn_of_page
from tallystick.cli.places import PLACE
from tallystick.cli.verdicts import (
    load_names,
    name_option,
    names_json,
    say_names,
    say_verdict,
    verdict_json,
)
from tallystick.commit.encoding import sha256
from tallystick.commit.signed import sign_statement
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import read_file
from tallystick.errors import CannotCheckError, CounterpartyError, UsageError
from tallystick.job.carried import judge_carried
from tallystick.job.job_file import load_terms
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.evidence import Evidence
from tallystick.protocol.judge import Judgement, judge
from tallystick.protocol.statement import conviction_statement, run_statement
from tallystick.report.answer_meanings import Work, work_of

job_option = click.option(
    "--job",
    required=True,
    type=PLACE,
    help="Your own copy of the job; its job.json and program.txt are enough.",
)


@contextmanager
def damage() -> Iterator[None]:
    """Damaged files end with exit code 2: here 1 is a conviction, and damage convicts no party."""
    try:
        yield
    except CounterpartyError as error:
        raise CannotCheckError(error.message, error.next_action) from error


def terms_of(path: str) -> Terms:
    """The job's terms. Raises UsageError where there is no job, CannotCheckError for damage."""
    with damage():
        return load_terms(Path(path))


def report(
    found: Judgement,
    data: bytes,
    path: Path,
    as_json: bool,
    more: dict[str, object] | None = None,
    tell: Callable[[], None] = lambda: None,
    terms: Terms | None = None,
) -> None:
    """Print the outcome and end with its exit code. `more` are further members of the object, and
    `tell` says them to people. `terms` are the job's, where they are at hand."""
    digest = sha256(data)
    if as_json:
        body = verdict_json(found)
        print_json({**body, "evidence": path, "evidence_digest": digest, **(more or {})})
    else:
        say_verdict(found, Work.TRAINING if terms is None else work_of(terms))
        say(f"evidence    {path} ({len(data):,} bytes, {digest.hex()[:16]})")
        tell()
    if found.verdict.convicted:
        finish(MISMATCH)
    if found.verdict.undecided:
        finish(CANNOT_CHECK)


@click.command("judge")
@click.argument("evidence", type=click.Path())
@click.option("--job", type=PLACE, help="Your own copy of the job. A page brings one along.")
@name_option
@trust_option
@trust_referee_option
@click.option(
    "--statement", "claim", type=click.Path(), help="Write the accepted claim to this file."
)
@click.option(
    "--claim",
    "conviction",
    type=click.Path(),
    help="Write a claim about who is convicted to this file, for other tools to read.",
)
@click.option("--key", type=click.Path(), help="Key that signs the statement or the claim.")
@json_option
def judge_command(
    evidence: str,
    job: str | None,
    named: tuple[str, ...],
    trust: tuple[str, ...],
    believed: tuple[str, ...],
    claim: str | None,
    conviction: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Replay the game in the EVIDENCE file and print its verdict.

    Nothing in the file is believed unless it is proved. EVIDENCE may also be a page written by
    `report --with-judge`. Of such a page, only the evidence counts. Without --job, the job in
    the page counts too.

    The exit code is 0 if the parties agree, 1 if a party is convicted, 2 if the evidence is refused
    or decides nothing.
    """
    terms, path = terms_of(job) if job else None, Path(evidence)
    if (claim or conviction) and not key:
        raise UsageError(
            "A statement or claim has to be signed.", "Pass the key that signs it with --key FILE."
        )
    if (claim or conviction) and terms is None:
        raise UsageError(
            "--statement and --claim need your own copy of the job.", "Pass it with --job."
        )
    names = load_names(named)
    with damage():
        case = _case(path, terms, load_trust(trust), load_keys(believed))
    if claim and key and terms is not None:
        _write_statement(terms, case.found, case.data, Path(claim), load_private_key(Path(key)))
    if conviction and key:
        _write_conviction(case.found, case.data, Path(conviction), load_private_key(Path(key)))
    said = names_json(case.found, names, case.makers)
    more: dict[str, object] = {}
    if names or case.page is not None:
        more["names"] = said
    if case.page is not None:
        more["page"] = case.page
        warn_of_page(case.page)

    def tell() -> None:
        say_names(case.found, said)
        if case.page is not None:
            say_page(case.page)

    report(case.found, case.data, path, as_json, more, tell, terms)


@dataclass(frozen=True)
class _JudgedFile:
    """Judged evidence; of a page also its maker's names, and what there is to say of the page."""

    found: Judgement
    data: bytes
    makers: Mapping[bytes, str] = field(default_factory=dict)
    page: dict[str, Any] | None = None


def _case(
    path: Path,
    terms: Terms | None,
    trust: Sequence[PublicKey] | None,
    believed: Sequence[PublicKey],
) -> _JudgedFile:
    if begins_as_page(path, "evidence file"):
        page = load_page(path)
        judged = judge_carried(page, terms, trust, believed)
        carried = judged.carried
        return _JudgedFile(
            judged.judgement, carried.evidence, carried.names, page_json(page, judged)
        )
    if terms is None:
        raise UsageError(
            "Evidence can only be judged with its job.",
            "Pass your own copy with --job. Only a page brings its job along.",
        )
    data = read_file(path, LIMITS.evidence_bytes, "evidence file")
    return _JudgedFile(judge(terms, data, trust, believed), data)


def _write_statement(
    terms: Terms, found: Judgement, data: bytes, path: Path, key: PrivateKey
) -> None:
    verdict = found.verdict
    if verdict.accepted is None and not verdict.agreement:
        note("No statement was written, because neither run was accepted.")
        return
    commitment = Evidence.from_bytes(data).commitments[verdict.accepted or 0]
    payload = run_statement(terms.commitment.contract, commitment, verdict, data)
    write_file(path, [sign_statement(key, payload).to_bytes()])


def _write_conviction(found: Judgement, data: bytes, path: Path, key: PrivateKey) -> None:
    if not found.verdict.convicted:
        note("No claim was written, because nobody is convicted.")
        return
    payload = conviction_statement(found.verdict, data)
    write_file(path, [sign_statement(key, payload).to_bytes()])
