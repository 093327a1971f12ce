"""Our envelopes and Statements, read by securesystemslib and in-toto-attestation as they are."""

from __future__ import annotations

from pathlib import Path

from claim_tools import needs, python, tried

from tallystick.commit.signing import PrivateKey
from tallystick.commit.statement import (
    RUN_ROOT,
    Subject,
    claim_type,
    sign_statement,
    statement_payload,
)

KEY, OTHER = PrivateKey(bytes([1]) * 32), PrivateKey(bytes([2]) * 32)

# Verifies the envelope by securesystemslib, then reads the payload by in-toto-attestation.
READ = """
import hashlib, json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
import in_toto_attestation.v1.statement_pb2 as pb
raw = sys.argv[2]
keyid = hashlib.sha256(bytes.fromhex(raw)).hexdigest()
key = SSlibKey(keyid, "ed25519", "ed25519", {"public": raw})
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
envelope.verify([key], 1)
assert envelope.payload_type == "application/vnd.in-toto+json"
message = json_format.Parse(envelope.payload, pb.Statement())
statement = Statement.copy_from_pb(message)
statement.validate()
for subject in statement.pb.subject:
    print(subject.name, dict(subject.digest))
print(statement.pb.predicate_type)
"""


def test_the_tools_read_a_claim(tmp_path: Path) -> None:
    needs("securesystemslib")
    needs("in_toto_attestation")
    subjects = [Subject.of_bytes("a", b"content"), Subject("run", {RUN_ROOT: bytes(32)})]
    payload = statement_payload(claim_type("run"), subjects, {"steps": 3, "convicted": []})
    file = tmp_path / "claim.json"
    file.write_bytes(sign_statement(KEY, payload).to_bytes())
    said = python(READ, file, KEY.public.raw.hex())
    assert said.splitlines() == [
        *(f"{s.name} { {n: d.hex() for n, d in s.digests.items()} }" for s in subjects),
        claim_type("run"),
    ]
    refused = tried(READ, file, OTHER.public.raw.hex())
    assert refused.returncode != 0 and "VerificationError" in refused.stderr
