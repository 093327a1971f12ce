"""What was found, as claims: by whoever repeated a run's steps (CLAIMS 3), by a check of an answer,
and as evidence about one (4, 5).

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
from tallystick.commit.signed import RUN_ROOT, STATE_ROOT, Subject, claim_type, statement_payload
from tallystick.commit.signing import Envelope, verify_run
from tallystick.errors import MismatchError, UsageError
from tallystick.limits import LIMITS
from tallystick.protocol.statement import COMMITMENT, CONVICTION_TYPE
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.store.directory import RunStore

AUDIT_TYPE = claim_type("audit")


def audit_payload(report: AuditReport) -> bytes:
    """The claim that an audit came to `report`. The run's commitment is read from its directory.

    Raises MismatchError where that is another run by now, or another signer's.
    """
    store = RunStore(report.run)
    if not store.signed:
        raise UsageError(f"{store.directory} has no signed commitment.", "Finish the run first.")
    commitment = store.commitment_bytes()
    run, _ = verify_run(Envelope.from_bytes(commitment, LIMITS.commitment_bytes))
    if (run.run_root, run.signer.key_id) != (report.run_root, report.signer):
        raise MismatchError(
            f"{report.run} is not the run that was audited, or it has another signer.",
            "Audit it again.",
        )
    found, choices = report.difference, report.choices
    predicate: dict[str, JsonValue] = {
        "accepted": report.accepted,
        "checkpoints": report.checkpoints_compared,
        "choices": None if choices is None else {"left": choices[0], "taken": choices[1]},
        "contract": report.contract,
        "difference": None
        if found is None
        else {
            "interval": list(found.interval),
            "kind": found.kind,
            "sentence": found.sentence,
            "slot": found.slot,
            "step": found.step,
        },
        "findings": len(report.findings) + report.unnamed,
        "job_digest": report.job_digest.hex(),
        "losses": report.losses_compared,
        "sample": _sample(report),
        "sampled": report.sampled,
        "signer": run.signer.raw.hex(),
        "steps": [report.first_step, report.last_step],
        "stored": report.stored_compared,
        "whole": report.whole,
    }
    subjects = [
        Subject.of_bytes(COMMITMENT, commitment),
        Subject("run", {RUN_ROOT: run.run_root}),
    ]
    return statement_payload(AUDIT_TYPE, subjects, predicate)


def _sample(report: AuditReport) -> JsonValue:
    segments = report.segments
    if not report.sampled or segments is None:
        return None
    repeated: list[JsonValue] = [[first, last] for first, last in segments.repeated]
    return {"repeated": repeated, "secret": report.secret, "total": segments.total}


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
