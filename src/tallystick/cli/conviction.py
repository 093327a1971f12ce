"""What convicts the signer of a receipt (ANSWERS 6.9, 6.10): `tallystick check EVIDENCE`, and
`tallystick check RECEIPT --against OTHER`, two receipts of one signer.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.answers.show import is_evidence
from tallystick.answers.two_receipts import ReceiptsConviction
from tallystick.api.convictions import ReceiptsReport, check_conviction, compare_receipts
from tallystick.cli.output import MISMATCH, finish, load_trust, note, print_json, say, signer_words
from tallystick.commit.signing import PrivateKey
from tallystick.disk.files import write_file
from tallystick.disk.regular import is_directory, present, read_file
from tallystick.errors import CannotCheckError, CounterpartyError
from tallystick.limits import LIMITS


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
