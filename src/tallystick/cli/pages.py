"""Pages that carry evidence and a judge (PROTOCOL 8.6): what `judge` and `inspect` say of them, and
`tallystick judge-page`, the judge for people who have a browser and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import json_option, note, print_json, say, target_file
from tallystick.commit.encoding import sha256
from tallystick.disk.files import write_file
from tallystick.disk.regular import open_beginning, os_errors, read_file
from tallystick.errors import CounterpartyError
from tallystick.job.carried import CarriedEvidence, PageJudgement, is_page, read_page
from tallystick.limits import LIMITS
from tallystick.protocol.evidence import EvidenceHead
from tallystick.report.built_judge import judge_page as page_of_judge

_BEGINNING = 64


def begins_as_page(path: Path, what: str) -> bool:
    """Whether the file at `path` begins as a page does. Raises StorageError, CorruptFileError."""
    file, _ = open_beginning(path, what, _BEGINNING)
    with os_errors(path), file:
        return is_page(file.read(_BEGINNING))


def load_page(path: Path) -> bytes:
    """The page's bytes. Raises StorageError, CorruptFileError."""
    return read_file(path, LIMITS.page_bytes, "page")


def _judge_json(page: bytes) -> dict[str, Any]:
    from tallystick.report.with_judge import embedded_judge  # as in page_json

    judge = embedded_judge(page)
    return {
        "listed": judge.listed,
        "version": judge.version,
        "script": judge.script,
        "style": judge.style,
    }


def page_json(page: bytes, judged: PageJudgement) -> dict[str, Any]:
    """The member `page` of `judge --json`."""
    # Here, since to judge evidence needs neither the pages nor the runs that they show.
    from tallystick.report.with_judge import differing

    return {
        "job": "yours" if judged.own_job else "page",
        "job_digest": judged.terms.digest,
        "carried_job_digest": _carried_job(judged.carried),
        "judge": _judge_json(page),
        "differs": list(differing(page, judged.carried, judged.terms, judged.judgement)),
    }


def _carried_job(carried: CarriedEvidence) -> bytes | None:
    """The digest of the job that came with a page; None where it is none."""
    try:
        return carried.terms.digest
    except CounterpartyError:
        return None


def say_page(found: dict[str, Any]) -> None:
    """What `page_json` has found, in words; what a reader should doubt goes to standard error."""
    digest = found["job_digest"].hex()
    if found["job"] == "yours":
        say(f"job         your own copy, {digest}")
    else:
        say(f"job         came with the page: {digest}")
        say("            The verdict is about that job. To be sure that it is the one you mean,")
        say("            compare the digest, or pass your own copy with --job.")
    judge = found["judge"]
    if judge["listed"]:
        say(f"judge       the page's is that of tallystick {judge['version']}, byte for byte")
    if not found["differs"]:
        say("page        byte for byte what this version writes about this evidence")


def warn_of_page(found: dict[str, Any]) -> None:
    """Warnings about all of a page that was not judged by."""
    if not found["judge"]["listed"]:
        note(
            "tallystick: This version does not list the judge in this page, and did not use it. "
            "Do not believe what the page shows when you open it."
        )
    if found["differs"]:
        parts = ", ".join(found["differs"])
        note(
            "tallystick: The page is not what this version writes about the same evidence. "
            f"What differs: {parts}. Another version, or a person, wrote it."
        )
    if found["carried_job_digest"] != found["job_digest"]:
        note("tallystick: The job in the page is not yours, or it is damaged.")


def inspect_page(path: Path) -> dict[str, Any]:
    """What the page at `path` carries. Judges nothing.

    Raises StorageError, CorruptFileError, DigestMismatchError, UnsupportedVersionError.
    """
    data = load_page(path)
    carried = read_page(data)
    commitment = carried.terms.commitment
    return {
        "kind": "page",
        "page_bytes": len(data),
        "evidence_bytes": len(carried.evidence),
        "evidence_digest": sha256(carried.evidence),
        "evidence_job_digest": EvidenceHead.from_bytes(carried.evidence).job_digest,
        "job_digest": carried.terms.digest,
        "contract": commitment.contract,
        "steps": commitment.steps,
        "job_files": {name: len(content) for name, content in sorted(carried.job.items())},
        "judge": _judge_json(data),
        "names": [
            {"public_key": key, "key_id": sha256(key), "name": name}
            for key, name in sorted(carried.names.items())
        ],
    }


def say_inspected(path: str, found: dict[str, Any]) -> None:
    """What `inspect_page` has found at `path`, for people."""
    judge = found["judge"]
    whose = f"that of tallystick {judge['version']}" if judge["listed"] else "none that is listed"
    say("what        a page that carries the evidence of a dispute, with the job")
    say(f"job digest  {found['job_digest'].hex()}")
    say(f"evidence    {found['evidence_bytes']:,} bytes, {found['evidence_digest'].hex()}")
    say(f"judge       {whose}")
    for entry in found["names"]:
        say(f"name        {entry['key_id']}: {entry['name']} (by the page's maker)")
    say("proves      Nothing by itself: its evidence has to be judged.")
    say(f"next        tallystick judge {path} --job JOB")


@click.command("judge-page")
@click.option("-o", "--out", required=True, type=click.Path(), help="Page to write.")
@json_option
def judge_page(out: str, as_json: bool) -> None:
    """Write the judge as a single HTML page that works offline in any browser.

    To use the page, open it and drop evidence and a job onto it. The page judges them in the
    browser and sends nothing. An existing file is replaced.
    """
    target, page = target_file(out, "page"), page_of_judge()
    write_file(target, [page])
    digest = sha256(page)
    if as_json:
        print_json({"page": out, "bytes": len(page), "sha256": digest})
    else:
        say(f"{out}: {len(page):,} bytes, SHA-256 {digest.hex()}")
        say("Open it in a browser, and drop evidence and a job onto it.")
