"""Sealed commitments: a party binds itself before it sees another's run (PROTOCOL 10.2, 10.3)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit.encoding import Reader, Writer, tag
from tallystick.commit.signed import open_compact, sign_compact, split_compact
from tallystick.commit.signing import Envelope, PrivateKey, PublicKey, RunCommitment, verify_run
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.limits import LIMITS

SEAL_TAG, SEALED_TAG, OPENING_TAG = tag("seal/1"), tag("sealed/1"), tag("opening/1")
SEAL_TYPE = "application/vnd.tallystick.seal.v1"
OPENING_TYPE = "application/vnd.tallystick.opening.v1"
NONCE_BYTES = 32


def read_key(source: Reader) -> PublicKey:
    """The next 32 bytes as a key. Raises CorruptFileError where they are none."""
    try:
        return PublicKey(source.raw(32))
    except UsageError as error:
        raise CorruptFileError(
            f"A message names what is not a valid key: {error.message}", "Refuse it."
        ) from error


@dataclass(frozen=True)
class Seal:
    """The statement of `key` in `session`: `digest` hides the commitment that it will open."""

    session: bytes
    key: PublicKey
    digest: bytes

    def to_bytes(self) -> bytes:
        """The layout of PROTOCOL 10.2."""
        out = Writer(SEAL_TAG).hash(self.session).raw(self.key.raw).hash(self.digest)
        return out.finish()


@dataclass(frozen=True)
class SealOpening:
    """The nonce and the run commitment's envelope that `key` sealed in `session`."""

    session: bytes
    key: PublicKey
    nonce: bytes
    commitment: bytes

    def to_bytes(self) -> bytes:
        """The layout of PROTOCOL 10.3."""
        out = Writer(OPENING_TAG).hash(self.session).raw(self.key.raw).hash(self.nonce, "nonce")
        return out.blob(self.commitment).finish()

    def sealed(self, job_digest: bytes) -> bytes:
        """The digest that the seal of this opening has (10.2)."""
        out = Writer(SEALED_TAG).hash(job_digest).hash(self.session).raw(self.key.raw)
        return out.hash(self.nonce, "nonce").blob(self.commitment).digest()

    def run(self, job_digest: bytes) -> RunCommitment:
        """The run commitment of `key` for that job. Raises CounterpartyError (10.3.1)."""
        envelope = Envelope.from_bytes(self.commitment, LIMITS.commitment_bytes)
        run, _ = verify_run(envelope)
        if run.signer != self.key:
            raise CorruptFileError("The opened commitment is of another signer.", "Refuse it.")
        if run.job_digest != job_digest:
            raise CorruptFileError("The opened commitment is of another job.", "Refuse it.")
        return run


def sign_seal(key: PrivateKey, job_digest: bytes, opening: SealOpening) -> bytes:
    """The signed seal of `opening`, whose key is the public half of `key`."""
    seal = Seal(opening.session, opening.key, opening.sealed(job_digest))
    return sign_compact(key, SEAL_TYPE, seal.to_bytes())


def sign_opening(key: PrivateKey, opening: SealOpening) -> bytes:
    """The signed opening."""
    return sign_compact(key, OPENING_TYPE, opening.to_bytes())


def open_seal(message: bytes) -> Seal:
    """The seal in untrusted bytes, signed by the key that it names. Raises CorruptFileError."""
    data = split_compact(message, LIMITS.seal_bytes, "signed seal").data
    source = Reader(data, "seal")
    source.expect(SEAL_TAG)
    session, key, digest = source.hash(), read_key(source), source.hash()
    source.end()
    open_compact(message, SEAL_TYPE, key, LIMITS.seal_bytes, "signed seal")
    return Seal(session, key, digest)


def open_opening(message: bytes) -> SealOpening:
    """The opening in untrusted bytes, signed by the key that it names. Raises CorruptFileError.

    Whether it fits a seal is another question: `sealed`, `run`.
    """
    data = split_compact(message, LIMITS.sealed_bytes, "signed opening").data
    source = Reader(data, "opening")
    source.expect(OPENING_TAG)
    session, key, nonce = source.hash(), read_key(source), source.raw(NONCE_BYTES)
    commitment = source.blob(LIMITS.commitment_bytes)
    source.end()
    open_compact(message, OPENING_TYPE, key, LIMITS.sealed_bytes, "signed opening")
    return SealOpening(session, key, nonce, commitment)


def is_sealed_by(seal: Seal, opening: SealOpening, job_digest: bytes) -> bool:
    """Whether `opening` opens `seal` (10.3.1)."""
    same = (seal.session, seal.key) == (opening.session, opening.key)
    return same and opening.sealed(job_digest) == seal.digest


def opened_run(seal: Seal, opening: SealOpening, job_digest: bytes) -> RunCommitment | None:
    """The run commitment that `opening` opens; None where it is a false statement (10.3.1)."""
    if not is_sealed_by(seal, opening, job_digest):
        return None
    try:
        return opening.run(job_digest)
    except CounterpartyError:
        return None
