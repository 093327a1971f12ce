"""Our envelopes and Statements, read by securesystemslib and in-toto-attestation as they are."""

from __future__ import annotations

from pathlib import Path

from claim_tools import needs, read_by_others, refused_by_others

from tallystick.commit.signed import (
    RUN_ROOT,
    Subject,
    claim_type,
    sign_statement,
    statement_payload,
)
from tallystick.commit.signing import PrivateKey

KEY, OTHER = PrivateKey(bytes([1]) * 32), PrivateKey(bytes([2]) * 32)


def test_the_tools_read_a_claim(tmp_path: Path) -> None:
    needs("securesystemslib")
    needs("in_toto_attestation")
    subjects = [Subject.of_bytes("a", b"content"), Subject("run", {RUN_ROOT: bytes(32)})]
    payload = statement_payload(claim_type("run"), subjects, {"steps": 3, "convicted": []})
    file = tmp_path / "claim.json"
    file.write_bytes(sign_statement(KEY, payload).to_bytes())
    expected = [[s.name, {n: d.hex() for n, d in s.digests.items()}] for s in subjects]
    assert read_by_others(file, KEY.public) == (claim_type("run"), expected)
    assert refused_by_others(file, OTHER.public)
