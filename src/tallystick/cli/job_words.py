"""A job in words on a terminal, and in JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tallystick.cli.output import say
from tallystick.job.words import JobInWords, against, beside, sentences


def say_words(words: JobInWords) -> None:
    """What the job digest covers, and apart from it what it does not."""
    say("The job digest covers:")
    for sentence in sentences(words):
        say(f"  {sentence}")
    uncommitted = beside(words)
    if uncommitted:
        say("Not committed (its author's word, which no digest covers):")
        for line in uncommitted:
            say(f"  {line}")


def words_json(words: JobInWords) -> dict[str, Any]:
    """The parts and the sentences; what is not committed stands in `not_committed` alone."""
    parts = asdict(words)
    return {
        "digest": parts.pop("digest"),
        "not_committed": dict(parts.pop("beside")),
        "sentences": sentences(words),
        "covered": parts,
    }


def say_against(first: JobInWords, second: JobInWords, names: tuple[str, str]) -> None:
    """What differs between two jobs: a line of each."""
    apart = against(first, second)
    if not apart:
        say("The two have one job digest: they are one job.")
    for label, ours, theirs in apart:
        say(label)
        for name, sentence in zip(names, (ours, theirs), strict=True):
            say(f"  {name}  {sentence or '(nothing)'}")
    if first.beside != second.beside:
        say("Beside the job digests, not committed:")
        for name, own, other in ((names[0], first, second), (names[1], second, first)):
            for line in beside(own):
                if line not in beside(other):
                    say(f"  {name}  {line}")


def against_json(first: JobInWords, second: JobInWords) -> dict[str, Any]:
    """What differs between two jobs."""
    return {
        "same": first.digest == second.digest,
        "job_digests": [first.digest, second.digest],
        "apart": [entry._asdict() for entry in against(first, second)],
    }
