"""The accepted claim as an in-toto Statement in a DSSE envelope (PROTOCOL 9)."""

from __future__ import annotations

from tallystick.commit.encoding import JsonValue, canonical_json, sha256
from tallystick.commit.signing import Envelope, PrivateKey, RunCommitment, sign_envelope
from tallystick.errors import UsageError
from tallystick.program.terms import Terms
from tallystick.protocol.verdict import Verdict

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:tallystick:training-run:v1"


def statement(
    terms: Terms, run: RunCommitment, verdict: Verdict | None, evidence: bytes | None
) -> bytes:
    """The Statement about an accepted run, canonical JSON.

    `verdict` and `evidence` are of the dispute that accepted the run, None without a dispute.
    Raises UsageError if the verdict does not accept a run: then there is no claim to state.
    """
    if verdict is not None and not verdict.agreement and verdict.accepted is None:
        raise UsageError("No run was accepted, so there is no claim to state.", "See the verdict.")
    convicted: list[JsonValue] = []
    if verdict is not None:
        convicted = [
            {"case": verdict.case, "clause": c.clause, "party": c.party, "sentence": c.sentence}
            for c in verdict.convicted
        ]
    predicate: dict[str, JsonValue] = {
        "checkpoints": run.checkpoints,
        "contract": terms.commitment.contract,
        "convicted": convicted,
        "disputed": verdict is not None,
        "evidence": None if evidence is None else sha256(evidence).hex(),
        "job_digest": terms.digest.hex(),
        "signer": run.signer.raw.hex(),
        "steps": run.final_step,
    }
    subjects: list[JsonValue] = [
        {"digest": {"sha256": run.run_root.hex()}, "name": "run"},
        {"digest": {"sha256": run.final_state_root.hex()}, "name": "final-state"},
    ]
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "predicate": predicate,
            "predicateType": PREDICATE_TYPE,
            "subject": subjects,
        }
    )


def sign_statement(key: PrivateKey, payload: bytes) -> Envelope:
    """The Statement in an envelope signed with `key`."""
    return sign_envelope(key, PAYLOAD_TYPE, payload)
