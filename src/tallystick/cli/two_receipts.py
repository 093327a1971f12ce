"""`tallystick check RECEIPT --against OTHER`: two receipts of one signer (ANSWERS 6.10)."""

from __future__ import annotations

from pathlib import Path

from tallystick.answers.two_receipts import ReceiptsConviction
from tallystick.api.convictions import ReceiptsReport, compare_receipts
from tallystick.cli.output import MISMATCH, finish, load_trust, print_json, say, signer_words
from tallystick.errors import CannotCheckError, CounterpartyError


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
