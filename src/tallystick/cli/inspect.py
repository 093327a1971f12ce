"""`tallystick inspect` and `tallystick fsck`."""

from __future__ import annotations

import stat
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallystick.cli.judge import terms_of
from tallystick.cli.output import (
    CANNOT_CHECK,
    MISMATCH,
    finish,
    json_option,
    load_trust,
    note,
    print_json,
    say,
    trust_option,
)
from tallystick.cli.pages import begins_as_page, inspect_page, say_inspected
from tallystick.cli.places import PLACE
from tallystick.disk.mounts import url_of
from tallystick.disk.regular import is_directory, mode_of, present, read_file
from tallystick.errors import UsageError
from tallystick.job.job import MANIFEST
from tallystick.job.job_file import load_job
from tallystick.limits import LIMITS
from tallystick.protocol.evidence import Evidence
from tallystick.report.revealed import OpenedNumbers, Revealed, ranges, revealed
from tallystick.report.revealed import in_words as in_words
from tallystick.run.show.inspect import inspect_job, inspect_run
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import FsckReport
from tallystick.run.store.fsck import fsck as check
from tallystick.service.archive import ArchiveReport, fsck_archive, is_archive
from tallystick.service.show import inspect_archive, session_lines

if TYPE_CHECKING:
    from tallystick.job.words import JobInWords


@click.command()
@click.argument("path", type=PLACE)
@click.option(
    "--job",
    type=PLACE,
    help="Job that the evidence belongs to. With it, the command shows what the evidence "
    "reveals of an answer's text.",
)
@json_option
def inspect(path: str, job: str | None, as_json: bool) -> None:
    """Say what PATH is, what it claims, what that proves, and what to do next.

    PATH is a run, a job, a referee's directory, or any file that Tallystick writes: evidence, a
    commitment, a statement, an answer or a part of one, an offer or one of its documents, an
    outcome, a seal, a log entry, an exported model, a key, or a page that carries evidence. No
    step is executed.
    """
    from tallystick.cli.job import words_json
    from tallystick.job.words import words_of

    place, words = Path(path), None
    if RunStore(place).exists:
        found = inspect_run(place)
        words = words_of(RunStore(place).job())
    elif present(place / MANIFEST) and is_directory(place):
        found, words = inspect_job(place), words_of(load_job(place))
    elif is_archive(place):
        found = inspect_archive(place)
    elif stat.S_ISREG(mode_of(place)) and begins_as_page(place, "page"):
        found = inspect_page(place)
    else:
        _inspect_file(place, job, as_json)
        return
    if job is not None:
        raise _only_evidence()
    if as_json:
        print_json(found if words is None else {**found, "words": words_json(words)})
    elif found["kind"] == "session":
        _say_session(path, found)
    elif found["kind"] == "page":
        say_inspected(path, found)
    elif words is not None:
        _say_directory(path, found, words)
    if found.get("damage"):
        what = "journal of this signed run" if found["kind"] == "run" else "referee's log"
        note(f"The {what} is damaged: {found['damage'].rstrip('.')}. See `fsck`.")
        finish(CANNOT_CHECK)


def _only_evidence() -> UsageError:
    return UsageError("--job can only be used with evidence.", "Leave --job out.")


def _inspect_file(path: Path, job: str | None, as_json: bool) -> None:
    # Loaded for a file only: it brings all kinds of documents with it.
    from tallystick.answers.show import say_of_answer
    from tallystick.run.show.files import say_of

    found = say_of_answer(path) if present(path) else None
    if found is None and present(path) and not is_directory(path):
        found = say_of(path)
    if found is None:
        raise UsageError(
            f"{path} is not a run, a job, a referee's directory or a file that Tallystick wrote.",
            "Name one of these. `tallystick inspect --help` lists the kinds of files.",
        )
    if job is not None and found.kind != "evidence":
        raise _only_evidence()
    reveals = None if job is None else revealed_in(path, job)
    if as_json:
        more = {} if reveals is None else {"reveals": reveals_json(reveals)}
        print_json({**asdict(found), "path": path, **more})
        return
    say(f"what        {found.what}")
    for name, value in found.claims.items():
        say(f"claims      {name} {value}")
    for key_id in found.signed_by:
        say(f"signer      {key_id}")
    if reveals is not None:
        for line in in_words(reveals):
            say(f"shows       {line}")
    say(f"proves      {found.proves}")
    say(f"next        {found.next_action}")


def _say_session(path: str, found: dict[str, Any]) -> None:
    """A referee's directory for people."""
    say("what        a referee's directory: the log of a session between parties")
    for line in session_lines(found):
        say(line)
    say("proves      That the referee signed this log. It does not show that the referee kept")
    say("            to its rules, or who is right: replay the log to find out.")
    say(f"next        tallystick fsck {path} --job JOB")


def _say_directory(path: str, found: dict[str, Any], words: JobInWords) -> None:
    """A run or a job for people."""
    from tallystick.cli.job import say_words

    if found["kind"] == "job":
        say("what        a job: everything that determines a run")
        say(f"job digest  {words.digest.hex()}")
        say_words(words)
        say("proves      That its parts belong to the digest. It does not show that anyone ran it.")
        say(f"next        tallystick train {path} --out RUN")
        return
    signed = found["signer"] is not None
    say(f"what        {'a finished' if found['finished'] else 'an unfinished'} run of a job")
    _say_all({name: value for name, value in found.items() if name != "recipe"})
    say_words(words)
    if signed:
        say("proves      That the signer stands by these roots. An audit shows if they are right.")
        say(f"next        tallystick audit {path}")
    else:
        say("proves      Nothing yet: nobody has signed it.")
        say(f"next        tallystick train {path} --out {path}, to continue it")


def _say_all(found: dict[str, Any]) -> None:
    for key, value in found.items():
        if key == "declared_override":
            if value:
                say(f"declared override: {value}")
        elif key == "loss":
            _say_losses(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            say(f"{key:21}" + "  ".join(value[0]))
            for item in value:
                cells = (v.hex() if isinstance(v, bytes) else str(v) for v in item.values())
                say("  " + "  ".join(cells))
        elif isinstance(value, dict):
            say(f"{key:21}" + ", ".join(f"{k}={v}" for k, v in value.items()))
        else:
            say(f"{key:21}{value.hex() if isinstance(value, bytes) else value}")


def _say_losses(losses: list[float]) -> None:
    if losses:
        say(f"{'loss':21}{len(losses)} steps, first {losses[0]:.6g}, last {losses[-1]:.6g}")


@click.command()
@click.argument("run", type=PLACE)
@click.option("--job", type=PLACE, help="Replay a referee's log with this job.")
@click.option(
    "--copy", type=click.Path(), help="Another copy of a referee's log, to compare with this one."
)
@trust_option
@json_option
def fsck(
    run: str, job: str | None, copy: str | None, trust: tuple[str, ...], as_json: bool
) -> None:
    """Check every byte of RUN, or of a job, against its digests. No step is executed.

    For a referee's directory, the command checks the log and the evidence. With --job it replays
        the log and names the first entry by which the referee broke its rules (exit code 1). With
        --copy it compares the log with a copy that someone else fetched.
    """
    directory = Path(run)
    if is_archive(directory) and not RunStore(directory).exists:
        if trust:
            raise UsageError(
                "--trust is for runs and jobs. This is a referee's directory.", "Leave --trust out."
            )
        report: FsckReport = fsck_archive(
            directory, terms_of(job) if job else None, Path(copy) if copy else None
        )
    elif job or copy:
        raise UsageError(
            "--job and --copy are for a referee's directory. This is not one.",
            "Leave them out, or name a referee's directory.",
        )
    else:
        report = check(directory, load_trust(trust))
    if as_json:
        print_json(_report_json(report))
    else:
        _say_report(report)
    if not report.clean:
        finish(MISMATCH)


def _report_json(report: FsckReport) -> dict[str, Any]:
    found: dict[str, Any] = {
        "clean": report.clean,
        "finished": report.finished,
        "checked": list(report.checked),
        "problems": [
            {"path": p.path, "message": p.message, "next_action": p.next_action}
            for p in report.problems
        ],
    }
    if isinstance(report, ArchiveReport):
        wrong = report.deviation
        found["entries"], found["replayed"] = report.entries, report.replayed
        found["deviation"] = wrong and {
            "index": wrong.index,
            "clause": wrong.clause,
            "sentence": wrong.why,
        }
    return found


def _where(report: FsckReport, path: str) -> str:
    """The file of a problem: an object by its URL, another one as it is called in the directory."""
    url = url_of(report.path)
    return path if url is None else f"{url}/{path}"


def _say_report(report: FsckReport) -> None:
    for p in report.problems:
        say(f"{_where(report, p.path)}: {p.message} {p.next_action}")
    if not report.clean:
        return
    state = "finished" if report.finished else "not finished"
    if not isinstance(report, ArchiveReport):
        say(f"clean: {len(report.checked)} files of a run or job ({state})")
        return
    say(f"clean: a log of {report.entries} entries, and its evidence ({state})")
    if report.replayed:
        say("the referee followed the rules of its session in every entry")
    else:
        say("the entries are signed and linked; --job JOB says whether the referee was right")


def revealed_in(path: Path, job: str) -> Revealed:
    """What the evidence at `path` shows, by the terms of `job`. Raises UsageError for a job of
    another kind or other evidence, CounterpartyError, StorageError."""
    data = read_file(path, LIMITS.evidence_bytes, "evidence file")
    return revealed(terms_of(job), Evidence.from_bytes(data))


def reveals_json(found: Revealed) -> dict[str, Any]:
    """The member `reveals` of `inspect --json`; documented keys."""
    return {
        "tokens": [{"place": place, "token": token} for place, token in found.tokens.items()],
        "prompt_tokens": found.prompt,
        "drawn": [{"row": row, "token": token} for row, token in found.drawn.items()],
        "logprob_rows": ranges(found.logprobs),
        "encoding_values": ranges(found.made),
        "fields": found.fields,
        "weights": [_numbers(one) for one in found.weights],
        "activations": [_numbers(one) for one in found.activations],
        "values": found.values,
    }


def _numbers(found: OpenedNumbers) -> dict[str, Any]:
    return asdict(found)
