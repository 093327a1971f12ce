"""Receipts in claims: an answer, what a check found of it, and evidence about it (CLAIMS 4 and 5).

Nothing here tells of a text: sentences of a check may name tokens, so only their clauses are taken
(CLAIMS 1.7).
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.answers.check import AnswerReport
from tallystick.answers.other_tokens import OtherTokens
from tallystick.answers.receipt import AnswerReceipt, read_receipt
from tallystick.answers.two_receipts import BEGINNING as TWO_RECEIPTS
from tallystick.answers.two_receipts import TwoReceipts
from tallystick.answers.words import Said
from tallystick.commit.encoding import JsonValue, sha256
from tallystick.commit.statement import (
    RUN_ROOT,
    STATE_ROOT,
    Subject,
    claim_type,
    statement_payload,
)
from tallystick.errors import MismatchError
from tallystick.protocol.statement import CONVICTION_TYPE

ANSWER_TYPE = claim_type("answer")
RECEIPT = "receipt.json"


def answer_payload(receipt: bytes, report: AnswerReport | None = None) -> bytes:
    """The claim about the answer of a receipt, whose signatures are verified here.

    `report` is what a check of that answer has found, None where nobody checked it. Raises the
    errors of `read_receipt`, and MismatchError for the report of another answer.
    """
    found = read_receipt(receipt).receipt
    if report is not None and report.receipt != found:
        raise MismatchError(
            "The report is about another receipt.",
            "Check this receipt, and use the report of that check.",
        )
    predicate: dict[str, JsonValue] = {
        "answer": found.answer,
        "checked": None if report is None else _checked(report),
        "choice": found.choice,
        "finish": found.finish,
        "job_digest": found.job.hex(),
        "model_digest": found.model.hex(),
        "prompt": found.prompt,
        "request_digest": found.request.hex(),
        "signer": found.signer.raw.hex(),
        "time": found.time,
        "until": found.until,
    }
    subjects = [
        Subject.of_bytes(RECEIPT, receipt),
        Subject("run", {RUN_ROOT: found.root}),
        Subject("final-state", {STATE_ROOT: found.state}),
    ]
    return statement_payload(ANSWER_TYPE, subjects, predicate)


def _checked(report: AnswerReport) -> JsonValue:
    return {
        "accepted": report.accepted,
        "contradictions": _clauses(report.contradictions),
        "executed": report.executed,
        "findings": _clauses(report.findings),
        "state_differs": report.state_differs,
        "texts": report.texts,
    }


def _clauses(said: Sequence[Said]) -> list[JsonValue]:
    return [one.clause for one in said]


def answer_conviction_payload(evidence: bytes) -> bytes:
    """The claim that `evidence` (ANSWERS 6.9 or 6.10) convicts, which is verified here.

    Raises the errors of `check_conviction` for a file that convicts nobody.
    """
    receipts: tuple[bytes, ...]
    if evidence.startswith(TWO_RECEIPTS):
        two = TwoReceipts.from_bytes(evidence)
        clause, receipts = two.convicts().clause, two.receipts
    else:
        other = OtherTokens.from_bytes(evidence)
        other.convicts()
        clause, receipts = "6.7", (other.receipt,)
    found = [read_receipt(data).receipt for data in receipts]
    subjects = [Subject.of_bytes("evidence", evidence)]
    for number, (data, one) in enumerate(zip(receipts, found, strict=True), 1):
        subjects.append(Subject.of_bytes(f"receipt-{number}", data))
        subjects.append(Subject(f"run-{number}", {RUN_ROOT: one.root}))
    predicate: dict[str, JsonValue] = {
        "accepted": None,
        "convicted": [_convicted(one, clause) for one in found],
        "evidence": sha256(evidence).hex(),
        "forfeit": False,
        "job_digest": found[0].job.hex(),
        "specification": "ANSWERS",
    }
    return statement_payload(CONVICTION_TYPE, subjects, predicate)


def _convicted(receipt: AnswerReceipt, clause: str) -> JsonValue:
    return {
        "case": "",
        "clause": clause,
        "key": receipt.signer.raw.hex(),
        "run_root": receipt.root.hex(),
        "sentence": "",
    }
