"""What a dispute lets one claim: the accepted run, and who is convicted (CLAIMS 2 and 4)."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.commit.encoding import JsonValue, sha256
from tallystick.commit.signed import (
    RUN_ROOT,
    STATE_ROOT,
    Subject,
    claim_type,
    statement_payload,
)
from tallystick.commit.signing import Envelope, RunCommitment, verify_run
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.protocol.evidence import Evidence
from tallystick.protocol.verdict import PARTIES, Verdict

COMMITMENT = "commitment.json"
RUN_TYPE, CONVICTION_TYPE = claim_type("run"), claim_type("conviction")


def run_subjects(commitment: bytes, run: RunCommitment) -> list[Subject]:
    """The run in the envelope `commitment`: its file, its run root and its final state."""
    return [
        Subject.of_bytes(COMMITMENT, commitment),
        Subject("run", {RUN_ROOT: run.run_root}),
        Subject("final-state", {STATE_ROOT: run.final_state_root}),
    ]


def run_statement(
    contract: str,
    commitment: bytes,
    verdict: Verdict | None = None,
    evidence: bytes | None = None,
    files: Sequence[Subject] = (),
) -> bytes:
    """The claim about the run that `commitment` (an envelope) is of (CLAIMS 2).

    `verdict` and `evidence` are of the dispute that accepted the run, None without a dispute.
    `files` are exports whose content the caller has compared with the run. Raises UsageError if the
    verdict does not accept a run: then there is no claim to state.
    """
    if verdict is not None and not verdict.agreement and verdict.accepted is None:
        raise UsageError("No run was accepted, so there is nothing to state.", "See the verdict.")
    run = _run(commitment)
    convicted: list[JsonValue] = []
    if verdict is not None:
        convicted = [
            {"case": verdict.case, "clause": c.clause, "party": c.party, "sentence": c.sentence}
            for c in verdict.convicted
        ]
    predicate: dict[str, JsonValue] = {
        "checkpoints": run.checkpoints,
        "contract": contract,
        "convicted": convicted,
        "disputed": verdict is not None,
        "evidence": None if evidence is None else sha256(evidence).hex(),
        "job_digest": run.job_digest.hex(),
        "signer": run.signer.raw.hex(),
        "steps": run.final_step,
    }
    return statement_payload(RUN_TYPE, [*run_subjects(commitment, run), *files], predicate)


def conviction_statement(verdict: Verdict, evidence: bytes) -> bytes:
    """The claim that `evidence`, judged to `verdict`, convicts (CLAIMS 4).

    Raises UsageError where it convicts nobody.
    """
    if not verdict.convicted:
        raise UsageError("Nobody is convicted, so there is no conviction to state.")
    commitments = Evidence.from_bytes(evidence).commitments
    runs = [_run(commitment) for commitment in commitments]
    subjects = [Subject.of_bytes("evidence", evidence)]
    convicted: list[JsonValue] = []
    named = set[int]()
    for one in verdict.convicted:
        run, name = runs[one.party], PARTIES[one.party]
        if one.party not in named:
            subjects.append(Subject.of_bytes(f"commitment-{name}", commitments[one.party]))
            subjects.append(Subject(f"run-{name}", {RUN_ROOT: run.run_root}))
            named.add(one.party)
        convicted.append(
            {
                "case": verdict.case,
                "clause": one.clause,
                "key": run.signer.raw.hex(),
                "run_root": run.run_root.hex(),
                "sentence": one.sentence,
            }
        )
    accepted = None if verdict.accepted is None else runs[verdict.accepted].run_root.hex()
    predicate: dict[str, JsonValue] = {
        "accepted": accepted,
        "convicted": convicted,
        "evidence": sha256(evidence).hex(),
        "forfeit": verdict.forfeit,
        "job_digest": runs[0].job_digest.hex(),
        "specification": "PROTOCOL",
    }
    return statement_payload(CONVICTION_TYPE, subjects, predicate)


def _run(commitment: bytes) -> RunCommitment:
    return verify_run(Envelope.from_bytes(commitment, LIMITS.commitment_bytes))[0]
