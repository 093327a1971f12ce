"""`tallystick check SHOWN --receipt RECEIPT`: parts of a request, against a receipt."""

from __future__ import annotations

from pathlib import Path

from tallystick.api.requests import check_shown
from tallystick.cli.output import MISMATCH, finish, load_trust, print_json, say, signer_words
from tallystick.commit.encoding import canonical_json


def check_shown_request(shown: str, receipt: str, trust: tuple[str, ...], as_json: bool) -> None:
    """Say which parts of the receipt's request are proved, and which are hidden."""
    report = check_shown(Path(shown), Path(receipt), trust=load_trust(trust))
    parts = {name: part.value for name, part in sorted(report.request.shown.items())}
    hidden = sorted(report.request.hidden)
    if as_json:
        print_json(
            {
                "accepted": report.accepted,
                "proved": report.proved,
                "request_digest": report.request.digest,
                "receipt_request": report.receipt.request,
                "signer": report.receipt.signer.key_id,
                "trusted": report.trusted,
                "shown": parts,
                "hidden": hidden,
                "contradictions": [
                    {"clause": one.clause, "sentence": one.sentence}
                    for one in report.contradictions
                ],
            }
        )
    else:
        say(f"signer      {report.receipt.signer.key_id} ({signer_words(report.trusted)})")
        if not report.proved:
            say("MISMATCH    The receipt is for another request, so nothing here is proved.")
        for one in report.contradictions:
            say(f"CONVICTED   by its own words: {one.sentence} (ANSWERS {one.clause})")
        for name, value in parts.items():
            label = "PROVED" if report.proved else "unproved"
            say(f"{label:12}{name}: {canonical_json(value).decode('utf-8')}")
        say(f"hidden      {', '.join(hidden) or 'nothing'}")
    if not report.accepted:
        finish(MISMATCH)
