"""The receipt of an answer: one signed statement of at most 1,024 bytes (ANSWERS 7).

It names model, request, job and run by digests, and carries the signature of the run commitment
that follows from it, so that a game can begin with a receipt. Its bytes are another party's: they
are believed as far as they are signed, and no further.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tallystick.answers.layout import ENCODINGS
from tallystick.commit.encoding import canonical_json, check_hash, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signing import (
    RUN_COMMITMENT_TYPE,
    Envelope,
    PrivateKey,
    PublicKey,
    RunCommitment,
    Signature,
    pae,
    sign_envelope,
    sign_run,
    verify_envelope,
)
from tallystick.errors import CorruptFileError, SignatureInvalidError, UsageError
from tallystick.limits import LIMITS

RECEIPT_TYPE = "application/vnd.tallystick.answered.v1+json"
RECEIPT_KIND = "tallystick/answered/1"
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"
# Of an encoding it is the set (ANSWERS 11.8).
FINISHES = (STOP, LENGTH, CANCELLED, *ENCODINGS)
# A run of one step with interval 1 has two checkpoints (ANSWERS 2.1).
STEPS, CHECKPOINTS = 1, 2
_DIGESTS = ("job", "model", "request", "root", "state")
_MEMBERS = (
    "answer", "choice", "finish", "kind", "prompt", "run", "key", "time", "until", *_DIGESTS
)  # fmt: skip
_MOST_TIME = 1 << 52


@dataclass(frozen=True)
class AnswerReceipt:
    """What the signer of an answer states (ANSWERS 7.2). Raises UsageError for parts out of range.

    `model`, `request` and `job` are digests. `root` is the run root and `state` the final state
    root of the answer's run. `prompt` and `answer` are numbers of tokens, of an
    encoding `answer` is one of values. Times are milliseconds
    since 1970; disputes are answered until `until`.
    """

    model: bytes
    request: bytes
    choice: int
    job: bytes
    root: bytes
    state: bytes
    prompt: int
    answer: int
    finish: str
    time: int
    until: int
    signer: PublicKey

    def __post_init__(self) -> None:
        for name in _DIGESTS:
            check_hash(getattr(self, name), f"{name} digest")
        _require(0 <= self.choice < LIMITS.choices, "its choice is out of range")
        _require(1 <= self.prompt <= LIMITS.text_places, "its prompt is out of range")
        _require(1 <= self.answer <= LIMITS.text_places, "its answer is out of range")
        _require(self.finish in FINISHES, f"its finish is none of {', '.join(FINISHES)}")
        _require(0 <= self.time <= self.until <= _MOST_TIME, "its times are out of range")

    @property
    def is_of_encoding(self) -> bool:
        """Whether it says so: then `answer` is a number of values."""
        return self.finish in ENCODINGS

    @property
    def run(self) -> RunCommitment:
        """The run commitment that follows from the receipt (ANSWERS 7.4)."""
        return RunCommitment(self.job, self.root, STEPS, self.state, CHECKPOINTS, self.signer)

    def payload(self, signature: bytes) -> bytes:
        """The signed bytes, with the signature of the run commitment in them."""
        return canonical_json(
            {
                "answer": self.answer,
                "choice": self.choice,
                "finish": self.finish,
                "kind": RECEIPT_KIND,
                "prompt": self.prompt,
                "run": _text(signature),
                "key": _text(self.signer.raw),
                "time": self.time,
                "until": self.until,
                **{name: _text(getattr(self, name)) for name in _DIGESTS},
            }
        )


@dataclass(frozen=True)
class SignedReceipt:
    """A receipt whose two signatures have been verified; `trusted` is as in `Verified`, and `data`
    are its bytes."""

    receipt: AnswerReceipt
    signature: bytes
    trusted: bool | None
    data: bytes

    def commitment(self) -> bytes:
        """The envelope of the run commitment: the first message of a game (COMMITMENTS 9.5)."""
        run = self.receipt.run
        signature = Signature(run.signer.key_id, self.signature)
        return Envelope(RUN_COMMITMENT_TYPE, run.payload(), (signature,)).to_bytes()


def sign_receipt(key: PrivateKey, receipt: AnswerReceipt) -> bytes:
    """The file: an envelope with one signature. Raises UsageError for another signer's key."""
    (own,) = sign_run(key, receipt.run).signatures
    data = sign_envelope(key, RECEIPT_TYPE, receipt.payload(own.signature)).to_bytes()
    assert len(data) <= LIMITS.receipt_bytes, len(data)
    return data


def read_receipt(data: bytes, trust: Sequence[PublicKey] | None = None) -> SignedReceipt:
    """The receipt in untrusted bytes, whose two signatures are the signer's (ANSWERS 8.2).

    Raises CorruptFileError, and SignatureInvalidError for a signature that does not verify or,
    with `trust`, for a signer outside of it."""
    envelope = Envelope.from_bytes(data, LIMITS.receipt_bytes)
    if envelope.payload_type != RECEIPT_TYPE:
        raise SignatureInvalidError(
            f"The envelope contains {envelope.payload_type[:80]!r}, not the receipt of an answer.",
            "Pass a receipt.",
        )
    receipt, signature = parsed_receipt(envelope.payload)
    if [s.key_id for s in envelope.signatures] != [receipt.signer.key_id]:
        raise SignatureInvalidError(
            "The receipt does not have exactly one signature, by the signer that it names.",
            "Reject it.",
        )
    verified = verify_envelope(envelope, RECEIPT_TYPE, [receipt.signer], trust)
    if not receipt.signer.verifies(signature, pae(RUN_COMMITMENT_TYPE, receipt.run.payload())):
        raise SignatureInvalidError(
            "The receipt's signature of its run commitment does not verify. So nobody would "
            "defend it in a dispute.",
            "Reject it.",
        )
    return SignedReceipt(receipt, signature, verified.trusted, data)


def parsed_receipt(payload: bytes) -> tuple[AnswerReceipt, bytes]:
    """The receipt in a payload, and its signature of the run commitment, not yet verified."""
    top = Members(parse_canonical_json(payload, "receipt", LIMITS.receipt_bytes), _malformed)
    top.only(*_MEMBERS)
    if top.of("kind", str) != RECEIPT_KIND:
        _malformed(f"its kind is {top.value['kind']!r}")
    try:
        receipt = AnswerReceipt(
            **{name: _bytes(top, name, 32) for name in _DIGESTS},
            choice=top.of("choice", int),
            prompt=top.of("prompt", int),
            answer=top.of("answer", int),
            finish=top.of("finish", str),
            time=top.of("time", int),
            until=top.of("until", int),
            signer=PublicKey(_bytes(top, "key", 32)),
        )
    except UsageError as error:
        _malformed(error.message.rstrip("."))
    return receipt, _bytes(top, "run", 64)


def _text(data: bytes) -> str:
    """base64url without padding (ANSWERS 7.2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _bytes(top: Members, name: str, length: int) -> bytes:
    """The `length` bytes at member `name`, in their one spelling."""
    text, data = top.of(name, str), None
    if len(text) == -(-length * 4 // 3):
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (ValueError, binascii.Error):
            data = None
    if data is None or _text(data) != text:
        top.fail(f"{name!r} is not {length} bytes in base64url")
    return data


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise UsageError(f"This is not a receipt: {why}.", "Make it from an answer.")


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The receipt is malformed: {why}.", "Ask its sender for an intact copy."
    )
