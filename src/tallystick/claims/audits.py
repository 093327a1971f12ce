"""The report of an audit as a claim of whoever repeated the steps (CLAIMS 3)."""

from __future__ import annotations

from tallystick.commit.encoding import JsonValue
from tallystick.commit.signing import Envelope, verify_run
from tallystick.commit.statement import RUN_ROOT, Subject, claim_type, statement_payload
from tallystick.errors import MismatchError, UsageError
from tallystick.limits import LIMITS
from tallystick.protocol.statement import COMMITMENT
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
