"""vectors/delegation/settlement.json against the package and its second reading (PROTOCOL 14)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_settlement_vectors as maker
import pytest
from claim_schemas import fits

from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import Envelope, PrivateKey, PublicKey, RunCommitment
from tallystick.delegation.book import open_book
from tallystick.delegation.documents import open_document, sign_document
from tallystick.delegation.outcome import claim_digest
from tallystick.delegation.statement import check_settlement, read_outcome, sign_settlement

FILE = Path(__file__).resolve().parents[2] / "vectors" / "delegation" / "settlement.json"
VECTORS = json.loads(FILE.read_text())
KEYS = {bytes.fromhex(k): PrivateKey(bytes.fromhex(s)) for k, s in VECTORS["seeds"].items()}


def test_the_file_is_what_the_reference_makes() -> None:
    assert maker.text() == FILE.read_text()


def test_digests_of_claims() -> None:  # PROTOCOL 14.6
    for claim in VECTORS["claims"]:
        run = RunCommitment(
            bytes(32), bytes.fromhex(claim["run_root"]), claim["final_step"],
            bytes.fromhex(claim["final_state_root"]), claim["checkpoints"],
            PublicKey(next(iter(KEYS))),
        )  # fmt: skip
        assert claim_digest(run).hex() == claim["digest"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_a_case(case: dict[str, Any]) -> None:  # PROTOCOL 14.1, 14.8, 14.9
    envelopes = [d["envelope"].encode() for d in case["documents"]]
    for stored, envelope in zip(case["documents"], envelopes, strict=True):
        document = open_document(envelope)
        assert document.digest.hex() == stored["digest"]
        assert document.payload().decode() == stored["payload"]
        assert sign_document(KEYS[document.signer.raw], document) == envelope
    session, challenge = (
        None if case[name] is None else read_outcome(canonical_json(case[name]))
        for name in ("session", "challenge")
    )
    signed, old = case["claim"].encode(), case["statement"].encode()
    settled = check_settlement(signed, open_book(envelopes), session, challenge)
    assert sign_settlement(KEYS[settled.referee.raw], settled) == signed
    # 14.9.3: the old form is read, and not written.
    assert check_settlement(old, open_book(envelopes), session, challenge) == settled
    fits(json.loads(Envelope.from_bytes(signed).payload), "settlement")
    found = [
        {"amount": t.amount, "from": t.payer.raw.hex(), "reason": t.reason, "to": t.payee.raw.hex()}
        for t in settled.settlement.transfers
    ]
    assert found == case["transfers"]
