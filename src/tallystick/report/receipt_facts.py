"""What a receipt says on a page, whatever it is of: who signed it, and the digests in it."""

from __future__ import annotations

from tallystick.answers.check import AnswerReport
from tallystick.job.numbers import moment
from tallystick.report.html import join
from tallystick.report.page import trust_badge
from tallystick.report.words import digest


def signed_facts(report: AnswerReport) -> dict[str, object]:
    """Who signed what, and until when they answer for it."""
    receipt = report.receipt
    return {
        "Signed by the key": join(digest(receipt.signer.key_id), " ", trust_badge(report.trusted)),
        "Signed at, by its own clock": moment(receipt.time),
        "Answers disputes until": moment(receipt.until),
        "Model": digest(receipt.model),
    }


def digest_facts(report: AnswerReport, contract: str) -> dict[str, object]:
    receipt = report.receipt
    return {
        "Model digest": digest(receipt.model),
        "Request digest": digest(receipt.request),
        "Job digest": digest(receipt.job),
        "Run root": digest(receipt.root),
        "Final state": digest(receipt.state),
        "Contract": contract,
    }
