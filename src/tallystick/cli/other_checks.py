"""`tallystick check` of more than one receipt, or of evidence: many answers in a directory, some of
them executed (--sample, ANSWERS 8.8), two receipts of one signer (--against), and what convicts the
signer of a receipt (6.9, 6.10).
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from tallystick.answers.show import is_evidence
from tallystick.answers.two_receipts import ReceiptsConviction
from tallystick.api.convictions import ReceiptsReport, check_conviction, compare_receipts
from tallystick.api.samples import SampleReport
from tallystick.cli.output import MISMATCH, finish, load_trust, note, print_json, say, signer_words
from tallystick.commit.signing import PrivateKey
from tallystick.disk.files import write_file
from tallystick.disk.regular import is_directory, present, read_file
from tallystick.errors import CannotCheckError, CounterpartyError, UsageError
from tallystick.job.numbers import count
from tallystick.limits import LIMITS
from tallystick.run.parallel.sample import Confidence, digits

_SEED = re.compile(r"[0-9a-f]{64}")
_LABELS = {
    "contradiction": "CONVICTED   by its own words: ",
    "difference": "MISMATCH    ",
    "finding": "FINDING     ",
    "refused": "REFUSED     ",
}


def seed_of(text: str) -> bytes:
    """The seed of an earlier report. Raises UsageError."""
    if not _SEED.fullmatch(text):
        raise UsageError(
            f"{text[:80]!r} is not a seed.", "Write the 64 hexadecimal digits from the report."
        )
    return bytes.fromhex(text)


def say_sample(report: SampleReport, as_json: bool) -> None:
    """Print the report, and end with exit code 1 where it is not accepted."""
    if as_json:
        print_json(sample_json(report))
    else:
        _say(report)
    if not report.accepted:
        finish(MISMATCH)


def sample_json(report: SampleReport) -> dict[str, object]:
    """The object of `check --sample --json`; documented keys."""
    return {
        "accepted": report.accepted,
        "answers": report.answers,
        "receipts": report.receipts,
        "set_digest": report.set_digest,
        "seed": report.seed,
        "drawn": report.drawn,
        "executed": report.executed,
        "problems": [vars(problem) for problem in report.problems],
        "notes": [
            {"clause": note.clause, "sentence": note.sentence, "answers": number}
            for note, number in report.notes
        ],
        "confidence": [
            {
                "share": None if one.share is None else float(one.share),
                "false_answers": one.false_segments,
                "probability": digits(one.probability),
            }
            for one in report.confidence
        ],
        "seconds": report.seconds,
    }


def _say(report: SampleReport) -> None:
    total, drawn = len(report.receipts), len(report.drawn)
    say(f"set         {count(total, 'receipt')}, digest {report.set_digest.hex()}")
    say(f"seed        {report.seed.hex()}")
    say(f"checked     {count(report.answers, 'answer')}: signatures, digests, words and texts")
    say(f"executed    {report.executed} of the {drawn} drawn")
    for problem in report.problems:
        clause = f" (ANSWERS {problem.clause})" if problem.clause else ""
        say(f"{_LABELS[problem.kind]}{problem.path}: {problem.sentence}{clause}")
    for found, number in report.notes:
        say(f"note        {count(number, 'answer')}: {found.sentence} (ANSWERS {found.clause})")
    if report.accepted:
        say("MATCH       nothing speaks against any of them")
    for one in report.confidence:
        say(f"sample      {_in_words(one, total)}")
    say("            This holds if whoever signed the answers did not know the seed then.")


def _in_words(one: Confidence, total: int) -> str:
    """How likely such a check finds out a server that gave so many false answers."""
    false = f"{one.false_segments:,} of {total:,}"
    if one.share is None:
        told = f"If one of the {total:,} answers were false"
    else:
        told = f"If {float(one.share):.0%} of the answers were false ({false})"
    if one.probability == 1:
        return f"{told}, such a check would find one for certain."
    percent = math.floor(one.probability * 1000) / 10  # never rounded up to what is not so
    return f"{told}, such a check would find one in {percent:.1f} of 100 cases."


def compare(
    receipt: str, other: str, evidence: str | None, trust: tuple[str, ...], as_json: bool
) -> None:
    """Say whether they contradict each other: exit code 1. CannotCheckError for files that convict
    nobody, as forged ones."""
    place = None if evidence is None else Path(evidence)
    believed = load_trust(trust)
    try:
        report = compare_receipts(Path(receipt), Path(other), trust=believed, evidence=place)
    except CounterpartyError as error:
        raise CannotCheckError(error.message, error.next_action) from error
    found = report.conviction
    written = None if found is None else evidence
    if as_json:
        print_json({**_json(report), "evidence": written})
    elif found is None:
        for one, trusted in zip(report.receipts, report.trusted, strict=True):
            say(f"signer      {one.signer.key_id} ({signer_words(trusted)})")
        say(f"NOTHING     follows from these two. {report.sentence}")
    else:
        say_conviction(found)
        if written is not None:
            say(f"evidence    {written}; anyone checks it with `tallystick check {written}`")
    if found is not None:
        finish(MISMATCH)


def say_conviction(found: ReceiptsConviction) -> None:
    receipt = found.receipt
    say(f"model       {receipt.model.hex()}")
    say(f"signer      {receipt.signer.key_id} ({signer_words(found.trusted)})")
    say(f"CONVICTED   by two receipts: {found.sentence} (ANSWERS {found.clause})")


def conviction_json(found: ReceiptsConviction) -> dict[str, object]:
    """The object of `check EVIDENCE --json` about two receipts; documented keys."""
    first, second = found.receipts
    return {
        "convicted": first.signer.key_id,
        "trusted": found.trusted,
        "clause": found.clause,
        "sentence": found.sentence,
        "row": found.row,
        "tokens": None if found.tokens is None else list(found.tokens),
        "model_digest": first.model,
        "request_digest": first.request,
        "job_digests": [first.job, second.job],
        "run_roots": [first.root, second.root],
    }


def _json(report: ReceiptsReport) -> dict[str, object]:
    """The object of `check --against --json`; documented keys."""
    if report.conviction is not None:
        return conviction_json(report.conviction)
    return {"convicted": None, "sentence": report.sentence}


def is_conviction(path: Path) -> bool:
    """Whether the file at `path` begins as such evidence."""
    return present(path) and not is_directory(path) and is_evidence(path)


def check_evidence(
    evidence: str,
    trust: tuple[str, ...],
    as_json: bool,
    signer: tuple[Path, PrivateKey] | None = None,
) -> None:
    """Verify it, and say whom it convicts: exit code 1. CannotCheckError for a file that convicts
    nobody. `signer` is where a claim about it goes, and who signs that."""
    try:
        found = check_conviction(Path(evidence), trust=load_trust(trust))
    except CounterpartyError as error:
        raise CannotCheckError(error.message, error.next_action) from error
    receipt = found.receipt
    if isinstance(found, ReceiptsConviction):
        if as_json:
            print_json(conviction_json(found))
        else:
            say_conviction(found)
    elif as_json:
        print_json(
            {
                "convicted": receipt.signer.key_id,
                "trusted": found.trusted,
                "clause": "6.7",
                "sentence": found.sentence,
                "row": found.row,
                "claimed": found.claimed,
                "drawn": found.drawn,
                "model_digest": receipt.model,
                "request_digest": receipt.request,
                "job_digest": receipt.job,
                "run_root": receipt.root,
            }
        )
    else:
        say(f"model       {receipt.model.hex()}")
        say(f"signer      {receipt.signer.key_id} ({signer_words(found.trusted)})")
        say(f"CONVICTED   by its own words: {found.sentence} (ANSWERS 6.7)")
    if signer is not None:
        from tallystick.api.claims import claim_conviction  # brings the kinds of claims with it

        target, secret = signer
        data = read_file(Path(evidence), LIMITS.conviction_bytes, "evidence")
        write_file(target, [claim_conviction(data, secret)])
        note(f"The claim is in {target}.")
    finish(MISMATCH)
