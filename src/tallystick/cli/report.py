"""`tallystick report`: a run, or the evidence of a dispute, as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tallystick.answers.files import RECEIPT
from tallystick.api.disputes import judge
from tallystick.cli.output import (
    finish,
    json_option,
    load_keys,
    load_trust,
    note,
    print_json,
    say,
    target_file,
    trust_option,
    trust_referee_option,
)
from tallystick.cli.places import PLACE
from tallystick.cli.verdicts import load_names, name_option, names_by_key
from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import DeviationError
from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.files import write_file
from tallystick.disk.regular import is_directory, mode_of, present, read_file, same_file
from tallystick.errors import CannotCheckError, CounterpartyError, UsageError
from tallystick.job.carried import CarriedEvidence, terms_files
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.report.built_judge import BuiltJudge, built_judge
from tallystick.report.dispute_page import dispute_page, headline
from tallystick.report.facts import RunFacts, read_dispute, read_run
from tallystick.report.page import refusal_page
from tallystick.report.run_page import headline as run_headline
from tallystick.report.run_page import run_page
from tallystick.report.session_page import deviation_page, session_headline, session_page
from tallystick.report.with_judge import facts_for, write_page
from tallystick.run.store.directory import RunStore
from tallystick.service.archive import is_archive

Page = tuple[str, str]  # its main sentence, and the whole document
RUN, EVIDENCE, SESSION, ANSWER = "run", "evidence", "session", "answer"  # what a page is about


def _of_run(source: Path, job: Job | None, trust: Sequence[PublicKey] | None) -> Page:
    run = read_run(source, job, trust)
    return run_headline(run), run_page(run)


def _of_evidence(
    source: Path,
    terms: Terms,
    trust: Sequence[PublicKey] | None,
    runs: Sequence[RunFacts],
    believed: Sequence[PublicKey],
) -> Page:
    dispute = read_dispute(source, terms, trust, runs, believed)
    return headline(dispute), dispute_page(dispute)


def _with_judge(
    source: Path,
    job: Job,
    believed: Sequence[PublicKey],
    named: Mapping[str, str],
    built: BuiltJudge,
) -> Page:
    data = read_file(source, LIMITS.evidence_bytes, "evidence file")
    found = judge(data, job, trust_referees=believed)
    dispute = facts_for(data, job.terms, found)
    keys = [*(run.signer for run in dispute.runs), *believed]
    carried = CarriedEvidence(data, terms_files(job), names_by_key(named, keys))
    return headline(dispute), write_page(carried, dispute, built)


def _of_session(source: Path, terms: Terms) -> Page:
    session = replayed(terms, EntryLog(source))
    return session_headline(session), session_page(session, source.name)


def _of_answer(
    source: Path, trust: Sequence[PublicKey] | None, model: str | None, adapter: str | None
) -> Page:
    # Loaded for an answer only: it brings what reads a model.
    from tallystick.report.answer_page import answer_headline, answer_page, read_answer

    own, beside = (None if name is None else Path(name) for name in (model, adapter))
    found = read_answer(source, trust, own, beside)
    return answer_headline(found), answer_page(found)


def _kind_of(source: Path) -> str:
    if RunStore(source).exists:
        return RUN
    if is_directory(source) and present(source / RECEIPT):
        return ANSWER
    if is_archive(source):
        return SESSION
    if is_directory(source) or not mode_of(source):
        raise UsageError(
            f"{source} is not a run, evidence, an answer or a referee's directory.",
            "Name one of these.",
        )
    return EVIDENCE


def _check_options(
    kind: str,
    with_judge: bool,
    beside: Sequence[str],
    trust: Sequence[str],
    believed: Sequence[str],
    named: Sequence[str],
    model: str | None,
    adapter: str | None,
) -> None:
    """Raises UsageError for options that do not go together, or not with this kind of page."""
    if kind != EVIDENCE and believed:
        raise UsageError(
            "--trust-referee can only be used with evidence.", "Leave --trust-referee out."
        )
    if kind != EVIDENCE and beside:
        raise UsageError(
            "--run can only be used with evidence.",
            "Leave --run out, or pass the evidence as PATH.",
        )
    if with_judge and (kind != EVIDENCE or beside or trust):
        raise UsageError(
            "--with-judge needs evidence as PATH, and cannot be combined with --run or --trust. "
            "Everything on the page follows from the evidence.",
            "Leave out --with-judge, or --run and --trust.",
        )
    if kind != ANSWER and model is not None:
        raise UsageError("--model can only be used with an answer.", "Leave --model out.")
    if model is None and adapter is not None:
        raise UsageError("--adapter needs --model.", "Pass the model with --model too.")
    if named and not with_judge:
        raise UsageError("--name needs --with-judge.", "Add --with-judge, or leave --name out.")


@click.command()
@click.argument("path", type=PLACE)
@click.option("-o", "--out", required=True, type=click.Path(), help="Page to write.")
@click.option("--job", type=PLACE, help="Your own copy of the job. Evidence needs it.")
@click.option(
    "--run", "beside", multiple=True, type=PLACE, help="Run of a party, to plot its losses too."
)
@click.option(
    "--model",
    type=click.Path(),
    help="Your copy of an answer's model, to check the computation as well.",
)
@click.option("--adapter", type=click.Path(), help="Directory of the adapter of an answer's model.")
@trust_option
@trust_referee_option
@click.option(
    "--with-judge",
    is_flag=True,
    help="Put the evidence, the job and a judge into the page. The page then contains a script.",
)
@name_option
@json_option
def report(
    path: str,
    out: str,
    job: str | None,
    beside: tuple[str, ...],
    model: str | None,
    adapter: str | None,
    trust: tuple[str, ...],
    believed: tuple[str, ...],
    with_judge: bool,
    named: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write one HTML page about PATH: a run, evidence, a referee's directory, or an answer.

    Evidence is judged and a referee's log is replayed before any part of it is shown. If a check
    fails, the page gives only the reason, and the exit code is 1 or 2.

    With --with-judge the page judges its evidence again wherever it is opened. Names given with
    --name are shown as yours. Without --with-judge the page has no script.
    """
    source, target = Path(path), target_file(out, "page")
    if same_file(target, source):
        raise UsageError(
            f"{out} is the file that the page is about.", "Choose another file for the page."
        )
    kind, code = _kind_of(source), 0
    _check_options(kind, with_judge, beside, trust, believed, named, model, adapter)
    names, built = load_names(named), built_judge() if with_judge else None
    keys, referees = load_trust(trust), load_keys(believed)
    own = load_job(Path(job)) if job else None
    if kind not in (RUN, ANSWER) and own is None:
        raise UsageError(
            "Evidence and referees' logs can only be judged with their job.",
            "Pass your own copy with --job.",
        )
    runs = [read_run(Path(name), own) for name in beside]  # a fault of theirs is not the evidence's
    try:
        if kind == ANSWER:
            sentence, page = _of_answer(source, keys, model, adapter)
        elif kind == RUN or own is None:  # all others have a job here
            sentence, page = _of_run(source, own, keys)
        elif kind == SESSION:
            sentence, page = _of_session(source, own.terms)
        elif built is not None:
            sentence, page = _with_judge(source, own, referees, names, built)
        else:
            sentence, page = _of_evidence(source, own.terms, keys, runs, referees)
    except (CounterpartyError, CannotCheckError) as error:
        note(f"tallystick: {error.message}")
        sentence, code = error.message, error.exit_code
        if isinstance(error, DeviationError):
            page = deviation_page(source.name, error)
        else:
            page = refusal_page(source.name, kind, error)
    data = page.encode("utf-8")
    write_file(target, [data])
    if as_json:
        print_json(
            {
                "report": out,
                "kind": kind,
                "checked": code == 0,
                "sentence": sentence,
                "bytes": len(data),
            }
        )
    else:
        say(sentence if code == 0 else "Nothing is shown of it; the page says why.")
        say(f"{out}: {len(data):,} bytes")
    if code:
        finish(code)
