"""P-256 keys for formats that know no Ed25519 (CLAIMS 7).

No game, seal or receipt takes one: it signs models in OpenSSF's format, for the Ed25519 key that
vouches for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
)

from tallystick.commit.encoding import JsonValue
from tallystick.commit.signed import Subject, claim_type, statement_payload
from tallystick.commit.signing import NO_KEY, PublicKey
from tallystick.errors import CannotCheckError

KEY_TYPE = claim_type("key")
SCHEME, USE = "ecdsa-sha2-nistp256", "model-signing"


@dataclass(frozen=True)
class P256PublicKey:
    """A public key, by the bytes of its SubjectPublicKeyInfo."""

    der: bytes

    def pem(self) -> bytes:
        """The content of its public file."""
        key = load_der_public_key(self.der)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class P256Key:
    """A signing key. No repr and no error message shows its secret."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    @staticmethod
    def generate() -> P256Key:
        return P256Key(ec.generate_private_key(ec.SECP256R1()))

    @property
    def public(self) -> P256PublicKey:
        public = self._key.public_key()
        return P256PublicKey(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def sign(self, message: bytes) -> bytes:
        """ECDSA with SHA-256, in DER."""
        return self._key.sign(message, ec.ECDSA(SHA256()))

    def pem(self) -> bytes:
        """PKCS #8 PEM, not encrypted: the secret itself."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def p256_key_of(data: bytes, name: str) -> P256Key:
    """The key in the PEM bytes of `P256Key.pem`, from the file `name`. Raises CannotCheckError."""
    try:
        key = load_pem_private_key(data, password=None)
    except NO_KEY:
        key = None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return P256Key(key)
    raise CannotCheckError(
        f"{name} holds no unencrypted P-256 private key.", "Make one with `tallystick keys p256`."
    )


def vouching_payload(key: P256PublicKey, name: str, signer: PublicKey) -> bytes:
    """The claim by which `signer` vouches for `key`, whose public file is called `name`."""
    predicate: dict[str, JsonValue] = {
        "key": key.der.hex(),
        "scheme": SCHEME,
        "signer": signer.raw.hex(),
        "use": USE,
    }
    return statement_payload(KEY_TYPE, [Subject.of_bytes(name, key.pem())], predicate)
