"""Ed25519 keys, DSSE envelopes and the run commitment statement (COMMITMENTS 9).

The signature covers the exact payload bytes through DSSE's pre-authentication encoding. A payload
is parsed only after the check that its bytes are canonical JSON.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from tallystick.commit.encoding import (
    JsonValue,
    canonical_json,
    check_hash,
    parse_canonical_json,
)
from tallystick.commit.members import Members
from tallystick.commit.points import ORDER, unfit_key, unfit_point
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    MachineFaultError,
    SignatureInvalidError,
    UsageError,
)
from tallystick.limits import LIMITS

RUN_COMMITMENT_TYPE = "application/vnd.tallystick.run-commitment.v1+json"
RUN_COMMITMENT_KIND = "tallystick/run-commitment/1"


# ---- keys (COMMITMENTS 9.1) ---------------------------------------------------------------------
# OpenSSL answers "invalid" also when memory is short. A signature is refused only after this many
# refusals. After each of them the library must accept a known good signature: RFC 8032, 7.1.
_REFUSALS = 2
KNOWN_KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
KNOWN_SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)
# Made with the secret of that key and an R outside of the subgroup of prime order, for the same
# message: it satisfies only the equation with the cofactor.
_COFACTOR_ONLY = bytes.fromhex(
    "5b61c2e3b93e6c06450f327ea72cdfeb8cde6aa020d2dd827ab3f86e708c8393"
    "6ea4df5eb500bab859372e25d500777a161e66d01eb15656b39ded90af91ee0f"
)


@cache
def check_the_equation() -> None:
    """Raises MachineFaultError where the library multiplies by the cofactor (9.1.2)."""
    if PublicKey(KNOWN_KEY).library_verifies(_COFACTOR_ONLY, b""):
        raise MachineFaultError(
            "The Ed25519 of this machine's `cryptography` takes another equation than OpenSSL's.",
            "Install a build of `cryptography` with OpenSSL.",
        )


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 public key: 32 raw bytes, a point of the prime-order subgroup (COMMITMENTS 9.1.1).

    Raises UsageError for any others. A parser of another party's bytes converts that error.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != 32:
            raise UsageError("An Ed25519 public key has 32 bytes.", "Load it from its file.")
        why = unfit_key(self.raw)
        if why:
            raise UsageError(f"This Ed25519 public key is refused: {why}.", "Make another key.")

    @property
    def key_id(self) -> str:
        """Hexadecimal SHA-256 of the raw key, the name of a signer (COMMITMENTS 9.1)."""
        return hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """True if `signature` is this key's over `message` (9.1.2).

        The library decides [S]B = R + [k]A, without the cofactor. As A is in the subgroup of prime
        order, an R that satisfies it is there too, so R needs no multiplication of its own.

        Raises MachineFaultError where the library cannot decide. OpenSSL answers "invalid" also
        when it finds no memory, and that must not invalidate an honest party's signature.
        """
        if len(signature) != 64 or int.from_bytes(signature[32:], "little") >= ORDER:
            return False
        if unfit_point(signature[:32]):
            return False
        for _ in range(_REFUSALS):
            if self.library_verifies(signature, message):
                check_the_equation()
                return True
            if not PublicKey(KNOWN_KEY).library_verifies(KNOWN_SIGNATURE, b""):
                raise MachineFaultError(
                    "This machine cannot verify signatures at the moment.",
                    "Free memory, then try again.",
                )
        return False

    def library_verifies(self, signature: bytes, message: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> bytes:
        """SubjectPublicKeyInfo PEM."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class PrivateKey:
    """An Ed25519 signing key. No repr and no error message shows its secret."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise UsageError("An Ed25519 seed has 32 bytes.", "Make a key with `keys new`.")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @staticmethod
    def generate() -> PrivateKey:
        """A new key from the operating system's randomness."""
        return PrivateKey(os.urandom(32))

    @property
    def public(self) -> PublicKey:
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return PublicKey(raw)

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature over `message`."""
        return self._key.sign(message)

    def pem(self) -> bytes:
        """PKCS #8 PEM, not encrypted: the secret itself."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# InternalError: OpenSSL says so of a key whose length does not fit its algorithm.
NO_KEY = (ValueError, TypeError, UnsupportedAlgorithm, InternalError)


def private_key_of(data: bytes, name: str) -> PrivateKey:
    """The key in the PEM bytes of `PrivateKey.pem`, from the file `name`.

    Raises CannotCheckError with the next action.
    """
    try:
        key = load_pem_private_key(data, password=None)
    except NO_KEY:
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise CannotCheckError(
            f"{name} holds no unencrypted Ed25519 private key.",
            "Make one with `tallystick keys new`.",
        )
    seed = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return PrivateKey(seed)


def public_key_of(data: bytes, name: str) -> PublicKey:
    """The public key in PEM bytes, or the public half of a private key; as private_key_of."""
    try:
        key = load_pem_public_key(data)
    except NO_KEY:
        return private_key_of(data, name).public
    if not isinstance(key, Ed25519PublicKey):
        raise CannotCheckError(f"{name} holds no Ed25519 key.", "Ask its owner for the right file.")
    return PublicKey(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


# ---- DSSE (COMMITMENTS 9.2, 9.3) ----------------------------------------------------------------


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE v1 pre-authentication encoding: the bytes that are signed (COMMITMENTS 9.2)."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Signature:
    key_id: str
    signature: bytes


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope. Its payload is untrusted until verify_envelope has returned."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    def to_bytes(self) -> bytes:
        """Canonical JSON of the envelope (COMMITMENTS 9.3)."""
        signatures: list[JsonValue] = [
            {"keyid": s.key_id, "sig": base64.b64encode(s.signature).decode("ascii")}
            for s in self.signatures
        ]
        return canonical_json(
            {
                "payload": base64.b64encode(self.payload).decode("ascii"),
                "payloadType": self.payload_type,
                "signatures": signatures,
            }
        )

    @staticmethod
    def from_bytes(data: bytes, limit: int = LIMITS.envelope_bytes) -> Envelope:
        """Inverse of to_bytes for untrusted bytes, at most `limit` of them, checked before they
        are parsed. Raises CorruptFileError."""
        whole = Members(parse_canonical_json(data, "envelope", limit), _bad_envelope)
        whole.only("payload", "payloadType", "signatures")
        kind, signatures = whole.of("payloadType", str), whole.of("signatures", list)
        if len(signatures) > LIMITS.signatures:
            _bad_envelope("it has too many signatures")
        found = []
        for item in signatures:
            one = Members(item, _bad_envelope)
            one.only("keyid", "sig")
            found.append(Signature(one.of("keyid", str), _from_base64(one.of("sig", str))))
        return Envelope(kind, _from_base64(whole.of("payload", str)), tuple(found))


def _bad_envelope(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The envelope is malformed: {why}.", "Ask its sender for an intact copy."
    )


def _from_base64(text: str) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        data = None
    # Base64 leaves padding bits free, so the parser takes only the one canonical spelling.
    if data is not None and base64.b64encode(data).decode("ascii") == text:
        return data
    _bad_envelope("a value is not canonical base64")


def sign_envelope(key: PrivateKey, payload_type: str, payload: bytes) -> Envelope:
    """An envelope over `payload` with one signature."""
    signature = key.sign(pae(payload_type, payload))
    return Envelope(payload_type, payload, (Signature(key.public.key_id, signature),))


@dataclass(frozen=True)
class Verified:
    """The content of a verified envelope: its payload, its signer, and our trust in that signer.

    `trusted` is None without a trust list: the signature is then consistent, and no more is known.
    """

    payload: bytes
    signer: PublicKey
    trusted: bool | None


def verify_envelope(
    envelope: Envelope,
    payload_type: str,
    keys: Iterable[PublicKey],
    trust: Sequence[PublicKey] | None = None,
) -> Verified:
    """Verify `envelope` with one of `keys` (those the payload or a file names) or of `trust`.

    Without `trust`, an unknown signer is reported (`trusted` is None) and accepted. With it, a
    signer outside the list raises SignatureInvalidError; so does any signature that does not
    verify, a key that cannot be found, or an envelope of another payload type (9.4).
    """
    if envelope.payload_type != payload_type:
        raise SignatureInvalidError(
            f"The envelope carries {envelope.payload_type!r}, not {payload_type!r}.", "Refuse it."
        )
    if not envelope.signatures:
        raise SignatureInvalidError("The envelope has no signature.", "Ask its sender to sign.")
    known = {k.key_id: k for k in (*keys, *(trust or ()))}
    message = pae(envelope.payload_type, envelope.payload)
    signers = []
    for s in envelope.signatures:
        key = known.get(s.key_id)
        if key is None:
            raise SignatureInvalidError(
                f"No key is at hand for the signer {s.key_id[:16]}...", "Pass it with --trust."
            )
        if not key.verifies(s.signature, message):
            raise SignatureInvalidError(
                f"The signature of {s.key_id[:16]}... does not verify.", "Refuse the file."
            )
        signers.append(key)
    if trust is None:
        return Verified(envelope.payload, signers[0], None)
    allowed = {k.key_id for k in trust}
    for key in signers:
        if key.key_id in allowed:
            return Verified(envelope.payload, key, True)
    raise SignatureInvalidError(
        f"The signer {signers[0].key_id[:16]}... is not in the trust list.",
        "Pass the signer's key with --trust if you mean to trust it.",
    )


# ---- the run commitment (COMMITMENTS 9.5) -------------------------------------------------------


@dataclass(frozen=True)
class RunCommitment:
    """A trainer's signed statement about a finished run. The key that it names signs it."""

    job_digest: bytes
    run_root: bytes
    final_step: int
    final_state_root: bytes
    checkpoints: int
    signer: PublicKey

    def __post_init__(self) -> None:
        check_hash(self.job_digest, "job digest")
        check_hash(self.run_root, "run root")
        check_hash(self.final_state_root, "final state root")
        if not 0 <= self.final_step <= LIMITS.steps:
            raise UsageError("The final step is out of range.", f"Give 0 to {LIMITS.steps}.")
        if not 1 <= self.checkpoints <= LIMITS.checkpoints:
            raise UsageError(
                "The number of checkpoints is out of range.", f"Give 1 to {LIMITS.checkpoints}."
            )

    def payload(self) -> bytes:
        """Canonical JSON of the statement (COMMITMENTS 9.5)."""
        return canonical_json(
            {
                "checkpoints": self.checkpoints,
                "final_state_root": self.final_state_root.hex(),
                "final_step": self.final_step,
                "job_digest": self.job_digest.hex(),
                "kind": RUN_COMMITMENT_KIND,
                "run_root": self.run_root.hex(),
                "signer": self.signer.raw.hex(),
            }
        )

    @staticmethod
    def from_payload(payload: bytes) -> RunCommitment:
        """Parse an untrusted payload. Raises CorruptFileError."""
        value = parse_canonical_json(payload, "run commitment", LIMITS.commitment_bytes)
        members = Members(value, _bad_statement)
        members.only(
            "checkpoints", "final_state_root", "final_step", "job_digest", "kind", "run_root",
            "signer",
        )  # fmt: skip
        if (kind := members.value["kind"]) != RUN_COMMITMENT_KIND:
            _bad_statement(f"its kind is {kind!r}")
        try:
            return RunCommitment(
                job_digest=members.hex("job_digest"),
                run_root=members.hex("run_root"),
                final_step=members.of("final_step", int),
                final_state_root=members.hex("final_state_root"),
                checkpoints=members.of("checkpoints", int),
                signer=PublicKey(members.hex("signer")),
            )
        except UsageError as error:
            _bad_statement(error.message)


def _bad_statement(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The run commitment is malformed: {why}.", "Ask the trainer for an intact copy."
    )


def sign_run(key: PrivateKey, commitment: RunCommitment) -> Envelope:
    """Sign `commitment` with the key it names. Raises UsageError for another key."""
    if commitment.signer != key.public:
        raise UsageError("The commitment names another signer.", "Build it with this key.")
    return sign_envelope(key, RUN_COMMITMENT_TYPE, commitment.payload())


def verify_run(
    envelope: Envelope, trust: Sequence[PublicKey] | None = None
) -> tuple[RunCommitment, Verified]:
    """The run commitment in `envelope`, signed by exactly the key it names (9.4, 9.5).

    Raises CounterpartyError. See verify_envelope for `trust` and what `trusted` means.
    """
    if envelope.payload_type != RUN_COMMITMENT_TYPE:
        raise SignatureInvalidError(
            f"The envelope carries {envelope.payload_type!r}, not a run commitment.", "Refuse it."
        )
    commitment = RunCommitment.from_payload(envelope.payload)
    if [s.key_id for s in envelope.signatures] != [commitment.signer.key_id]:
        raise SignatureInvalidError(
            "The run commitment is not signed by exactly the signer it names.", "Refuse the run."
        )
    verified = verify_envelope(envelope, RUN_COMMITMENT_TYPE, [commitment.signer], trust)
    return commitment, verified
