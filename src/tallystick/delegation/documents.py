"""Acceptance, withdrawal, alarm and receipt: documents of an offer (PROTOCOL 14.1 to 14.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from tallystick.commit.encoding import canonical_json, check_hash, parse_canonical_json, sha256
from tallystick.commit.members import Members
from tallystick.commit.signing import (
    Envelope,
    PrivateKey,
    PublicKey,
    sign_envelope,
    verify_envelope,
)
from tallystick.delegation.offer import LATEST, Offer, key_of, within
from tallystick.errors import CorruptFileError, SignatureInvalidError, UsageError
from tallystick.limits import LIMITS


class _Small:
    """A document of keys, digests and numbers, each a member of its own name."""

    NAME: ClassVar[str]
    SIGNER: ClassVar[str]  # the field that names the key which signs
    KEYS: ClassVar[tuple[str, ...]]
    HASHES: ClassVar[tuple[str, ...]]
    NUMBERS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.HASHES:
            check_hash(getattr(self, name), f"{self.NAME}'s {name}")
        for name in self.NUMBERS:
            within(name, getattr(self, name), 0, LATEST)

    @property
    def signer(self) -> PublicKey:
        key: PublicKey = getattr(self, self.SIGNER)
        return key

    def payload(self) -> bytes:
        """The signed canonical JSON."""
        return canonical_json(
            {
                "kind": f"tallystick/{self.NAME}/1",
                **{name: getattr(self, name).raw.hex() for name in self.KEYS},
                **{name: getattr(self, name).hex() for name in self.HASHES},
                **{name: getattr(self, name) for name in self.NUMBERS},
            }
        )

    @property
    def digest(self) -> bytes:
        """H of the payload (14.1)."""
        return sha256(self.payload())


@dataclass(frozen=True)
class Acceptance(_Small):
    """The statement of key `provider` that it takes the offer (14.3)."""

    offer: bytes
    provider: PublicKey

    NAME: ClassVar[str] = "acceptance"
    SIGNER: ClassVar[str] = "provider"
    KEYS: ClassVar[tuple[str, ...]] = ("provider",)
    HASHES: ClassVar[tuple[str, ...]] = ("offer",)


@dataclass(frozen=True)
class Withdrawal(_Small):
    """The statement of key `party`, the client's or a provider's, that it withdraws (14.3)."""

    offer: bytes
    party: PublicKey

    NAME: ClassVar[str] = "withdrawal"
    SIGNER: ClassVar[str] = "party"
    KEYS: ClassVar[tuple[str, ...]] = ("party",)
    HASHES: ClassVar[tuple[str, ...]] = ("offer",)


@dataclass(frozen=True)
class Alarm(_Small):
    """The statement of key `auditor` that `claim`, accepted in `session`, is false (14.7)."""

    offer: bytes
    session: bytes
    claim: bytes
    auditor: PublicKey

    NAME: ClassVar[str] = "alarm"
    SIGNER: ClassVar[str] = "auditor"
    KEYS: ClassVar[tuple[str, ...]] = ("auditor",)
    HASHES: ClassVar[tuple[str, ...]] = ("claim", "offer", "session")


@dataclass(frozen=True)
class Receipt(_Small):
    """The word of key `referee` that `document` came at `time`, in milliseconds (14.3.1)."""

    offer: bytes
    document: bytes
    time: int
    referee: PublicKey

    NAME: ClassVar[str] = "receipt"
    SIGNER: ClassVar[str] = "referee"
    KEYS: ClassVar[tuple[str, ...]] = ("referee",)
    HASHES: ClassVar[tuple[str, ...]] = ("document", "offer")
    NUMBERS: ClassVar[tuple[str, ...]] = ("time",)


Document = Offer | Acceptance | Withdrawal | Alarm | Receipt


def _small(kind: type[_Small]) -> Callable[[Members], Document]:
    def read(members: Members) -> Document:
        members.only("kind", *kind.KEYS, *kind.HASHES, *kind.NUMBERS)
        found: Document = kind(
            **{name: key_of(members, name) for name in kind.KEYS},
            **{name: members.hex(name) for name in kind.HASHES},
            **{name: members.of(name, int) for name in kind.NUMBERS},
        )  # type: ignore[assignment]
        return found

    return read


_READERS: dict[str, Callable[[Members], Document]] = {
    f"tallystick/{kind.NAME}/1": _small(kind) for kind in (Acceptance, Withdrawal, Alarm, Receipt)
} | {f"tallystick/{Offer.NAME}/1": Offer.from_members}


def payload_type(name: str) -> str:
    """The payload type of documents of that name (14.1)."""
    return f"application/vnd.tallystick.{name}.v1+json"


def sign_document(key: PrivateKey, document: Document) -> bytes:
    """The document's envelope. Raises UsageError where `key` is not the one that it names."""
    if document.signer != key.public:
        raise UsageError(
            f"The {document.NAME} names another key than the one that is to sign it.",
            "Build it with this key, or sign it with that one.",
        )
    return sign_envelope(key, payload_type(document.NAME), document.payload()).to_bytes()


def open_document(data: bytes) -> Document:
    """The document in an untrusted envelope, signed by exactly the key that it names (14.1).

    Raises CounterpartyError. Whether that key may sign such a document is another question.
    """
    envelope = Envelope.from_bytes(data, LIMITS.commitment_bytes)
    members = Members(
        parse_canonical_json(envelope.payload, "document", LIMITS.commitment_bytes), _malformed
    )
    kind = members.of("kind", str)
    if kind not in _READERS:
        _malformed(f"it is no document of an offer: {kind[:80]!r}")
    try:
        document = _READERS[kind](members)
    except UsageError as error:
        _malformed(error.message)
    if [s.key_id for s in envelope.signatures] != [document.signer.key_id]:
        raise SignatureInvalidError(
            f"The {document.NAME} is not signed by exactly the key that it names.", "Refuse it."
        )
    verify_envelope(envelope, payload_type(document.NAME), [document.signer])
    return document


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The document is malformed: {why}.", "Ask its sender for an intact copy."
    )
