"""`tallystick check DIRECTORY --sample N`: many answers, some of them executed (ANSWERS 8.8)."""

from __future__ import annotations

import math
import re

from tallystick.api.samples import SampleReport
from tallystick.cli.output import MISMATCH, finish, print_json, say
from tallystick.errors import UsageError
from tallystick.job.numbers import count
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
    for note, number in report.notes:
        say(f"note        {count(number, 'answer')}: {note.sentence} (ANSWERS {note.clause})")
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
