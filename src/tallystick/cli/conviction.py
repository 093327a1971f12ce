"""`tallystick check EVIDENCE`: what convicts the signer of a receipt (ANSWERS 6.9, 6.10)."""

from __future__ import annotations

from pathlib import Path

from tallystick.answers.show import is_evidence
from tallystick.answers.two_receipts import ReceiptsConviction
from tallystick.api.convictions import check_conviction
from tallystick.cli.output import MISMATCH, finish, load_trust, note, print_json, say, signer_words
from tallystick.cli.two_receipts import conviction_json, say_conviction
from tallystick.commit.signing import PrivateKey
from tallystick.disk.files import write_file
from tallystick.disk.regular import is_directory, present, read_file
from tallystick.errors import CannotCheckError, CounterpartyError
from tallystick.limits import LIMITS


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
