"""A cancellation: the client's signed word that an answer ends after N tokens (ANSWERS 6.6).

It is a file beside the receipt. Its bytes are another party's, and its signer is the key that the
request names: without one in the request there is nothing to sign with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from tallystick.answers.receipt import CANCELLED, AnswerReceipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.words import Said
from tallystick.commit.encoding import canonical_json, check_hash, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signing import (
    Envelope,
    PrivateKey,
    PublicKey,
    sign_envelope,
    verify_envelope,
)
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    SignatureInvalidError,
    UsageError,
)
from tallystick.limits import LIMITS

CANCELLATION_TYPE = "application/vnd.tallystick.cancelled.v1+json"
CANCELLATION_KIND = "tallystick/cancelled/1"
_MEMBERS = ("answer", "choice", "kind", "request")


@dataclass(frozen=True)
class Cancellation:
    """What the client says: answer number `choice` to the request of this digest ends after
    `answer` tokens. Raises UsageError for parts out of range."""

    request: bytes
    choice: int
    answer: int

    def __post_init__(self) -> None:
        check_hash(self.request, "request digest")
        _require(0 <= self.choice < LIMITS.choices, "its choice is out of range")
        _require(1 <= self.answer <= LIMITS.text_places, "its number of tokens is out of range")

    def payload(self) -> bytes:
        return canonical_json(
            {
                "answer": self.answer,
                "choice": self.choice,
                "kind": CANCELLATION_KIND,
                "request": self.request.hex(),
            }
        )


def sign_cancellation(
    key: PrivateKey, request: ModelRequest, answer: int, choice: int = 0
) -> bytes:
    """The file: an envelope with one signature. Raises UsageError for a key that the request does
    not name, and for an answer that it does not ask for."""
    if request.client is None:
        raise UsageError(
            "The request names no client, so its answers cannot be cancelled.",
            "Make the request with the public key of the person who may cancel (--client).",
        )
    if request.client != key.public:
        raise UsageError(
            "This key is not the one that the request names as its client's.",
            "Sign with the client's key.",
        )
    if choice >= request.choices or answer > request.settings.max_tokens:
        raise UsageError(
            f"The request asks for {request.choices} answers of at most "
            f"{request.settings.max_tokens} tokens.",
            "Choose one of these answers, and at most this number of tokens.",
        )
    said = Cancellation(request.digest, choice, answer)
    return sign_envelope(key, CANCELLATION_TYPE, said.payload()).to_bytes()


def read_cancellation(data: bytes, client: PublicKey | None = None) -> Cancellation:
    """The cancellation in untrusted bytes. With `client` its one signature is that key's; without,
    nothing is verified. Raises CorruptFileError, SignatureInvalidError."""
    envelope = Envelope.from_bytes(data, LIMITS.cancellation_bytes)
    if envelope.payload_type != CANCELLATION_TYPE:
        raise SignatureInvalidError(
            f"The envelope contains {envelope.payload_type[:80]!r}, not a cancellation.",
            "Pass a cancellation.",
        )
    said = _parsed(envelope.payload)
    if client is not None:
        if [s.key_id for s in envelope.signatures] != [client.key_id]:
            raise SignatureInvalidError(
                "The cancellation does not have exactly one signature, by the request's client.",
                "Reject the cancellation.",
            )
        verify_envelope(envelope, CANCELLATION_TYPE, [client])
    return said


def cancellation_of(data: bytes, request: ModelRequest) -> Cancellation:
    """The cancellation in `data` of an answer to `request`, signed by its client (ANSWERS 6.6).

    Raises SignatureInvalidError where the request names no client, or another one has signed;
    CorruptFileError where it is of another request."""
    if request.client is None:
        raise SignatureInvalidError(
            "The request names no client, so nobody can have signed a cancellation.",
            "Reject the cancellation.",
        )
    said = read_cancellation(data, request.client)
    if said.request != request.digest:
        raise CorruptFileError(
            "The cancellation is for another request.", "Reject the cancellation."
        )
    return said


def finding_of(data: bytes, receipt: AnswerReceipt, request: ModelRequest) -> Iterator[Said]:
    """Why the cancellation beside a receipt is none of its answer (ANSWERS 6.6.3)."""
    try:
        said = cancellation_of(data, request)
    except CounterpartyError as error:
        yield Said("6.6.3", f"The cancellation beside the receipt does not hold. {error.message}")
        return
    if receipt.finish != CANCELLED:
        yield Said(
            "6.6.3",
            f"A cancellation stands beside a receipt whose finish is `{receipt.finish}`.",
        )
    if said.choice != receipt.choice:
        yield Said(
            "6.6.3",
            f"The client has cancelled choice {said.choice}, the receipt is of {receipt.choice}.",
        )
    if said.answer != receipt.answer:
        yield Said(
            "6.6.3",
            f"The client has cancelled after {said.answer} tokens, and the receipt counts "
            f"{receipt.answer}.",
        )


def _parsed(payload: bytes) -> Cancellation:
    value = parse_canonical_json(payload, "cancellation", LIMITS.cancellation_bytes)
    top = Members(value, _malformed)
    top.only(*_MEMBERS)
    if top.of("kind", str) != CANCELLATION_KIND:
        _malformed(f"its kind is {top.value['kind']!r}")
    try:
        return Cancellation(top.hex("request"), top.of("choice", int), top.of("answer", int))
    except UsageError as error:
        _malformed(error.message.rstrip("."))


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise UsageError(f"This is not a cancellation: {why}.", "Correct what the message names.")


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The cancellation is malformed: {why}.", "Ask its sender for an intact copy."
    )
