"""P-256 keys of model signatures (CLAIMS 7.1, 7.2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claim_schemas import fits
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tallystick.commit.p256 import P256Key, p256_key_of, vouching_payload
from tallystick.commit.signing import PrivateKey
from tallystick.disk.keys import load_p256_key, save_private_key
from tallystick.errors import CannotCheckError, StorageError

OWNER = PrivateKey(bytes([1]) * 32)
KEY = P256Key.generate()


def test_a_key_survives_its_files(tmp_path: Path) -> None:
    path = tmp_path / "key"
    save_private_key(KEY, path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match="not overwritten"):
        save_private_key(KEY, path)
    assert load_p256_key(path).public == KEY.public
    public = load_pem_public_key(KEY.public.pem())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    # Raises for a signature that does not verify.
    public.verify(load_p256_key(path).sign(b"message"), b"message", ec.ECDSA(SHA256()))


def test_other_keys_are_refused() -> None:
    other = P256Key(ec.generate_private_key(ec.SECP384R1()))
    for data in (OWNER.pem(), other.pem(), b"", KEY.public.pem()):
        with pytest.raises(CannotCheckError, match=r"a\.pem"):
            p256_key_of(data, "a.pem")


def test_the_claim_that_vouches() -> None:
    found = json.loads(vouching_payload(KEY.public, "key.pub", OWNER.public))
    fits(found, "key")
    assert bytes.fromhex(found["predicate"]["key"]) == KEY.public.der
