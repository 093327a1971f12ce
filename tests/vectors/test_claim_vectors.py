"""vectors/claims/claims.json against the package (CLAIMS 1, 2, 5, 7)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import make_claim_vectors as maker
import pytest
from claim_schemas import fits
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from tallystick.claims.findings import answer_payload
from tallystick.claims.models import model_signature
from tallystick.commit.p256 import P256Key, P256PublicKey, vouching_payload
from tallystick.commit.signed import (
    PAYLOAD_TYPE,
    Subject,
    read_statement,
    sign_statement,
)
from tallystick.commit.signing import Envelope, PrivateKey, pae
from tallystick.protocol.statement import run_statement

FILE = Path(__file__).resolve().parents[2] / "vectors" / "claims" / "claims.json"
VECTORS = json.loads(FILE.read_text())
KEY = PrivateKey(bytes.fromhex(VECTORS["seed"]))


def test_the_file_is_what_the_reference_makes() -> None:
    assert maker.text() == FILE.read_text()


def same(payload: bytes, claim: str, name: str) -> None:
    """The payload, signed, is the claim of the file, which has its schema's form and is read."""
    assert sign_statement(KEY, payload).to_bytes().decode() == claim
    fits(json.loads(payload), name)
    found = read_statement(claim.encode(), [KEY.public])
    assert found.predicate_type == f"https://tallystick.dev/claims/{name}/v1"


@pytest.mark.parametrize("case", VECTORS["runs"])
def test_a_run(case: dict[str, Any]) -> None:  # CLAIMS 2
    files = [
        Subject(name, {n: bytes.fromhex(d) for n, d in digests.items()})
        for name, digests in case["files"].items()
    ]
    payload = run_statement(case["contract"], case["commitment"].encode(), files=files)
    same(payload, case["claim"], "run")


@pytest.mark.parametrize("case", VECTORS["answers"])
def test_an_answer(case: dict[str, Any]) -> None:  # CLAIMS 5
    same(answer_payload(case["receipt"].encode()), case["claim"], "answer")


@pytest.mark.parametrize("case", VECTORS["keys"])
def test_a_key(case: dict[str, Any]) -> None:  # CLAIMS 7.2
    key = load_pem_public_key(case["public"].encode())
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    same(vouching_payload(P256PublicKey(der), case["name"], KEY.public), case["claim"], "key")


@pytest.mark.parametrize("case", VECTORS["models"], ids=lambda case: case["name"])
def test_a_model(case: dict[str, Any], tmp_path: Path) -> None:  # CLAIMS 7.3, 7.4
    place = tmp_path / case["name"]
    for name, content in case["files"].items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    own = case["signature"]
    target = tmp_path / "beside.sig" if own is None else place / own
    key = P256Key.generate()
    bundle = json.loads(model_signature(key, place, target))
    envelope = bundle["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"])
    assert payload.decode() == case["payload"]
    (signature,) = envelope["signatures"]
    signed = pae(PAYLOAD_TYPE, payload)
    public = load_pem_public_key(key.public.pem())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    public.verify(base64.b64decode(signature["sig"]), signed, ec.ECDSA(SHA256()))
    assert Envelope(PAYLOAD_TYPE, payload, ()).payload_type == envelope["payloadType"]
