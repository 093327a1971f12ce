"""ANSWERS 6.6: a client's word that an answer ends there, beside the receipt."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from unit.answers.toy import KEY, Toy, receipt_of

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.cancellation import (
    CANCELLATION_TYPE,
    Cancellation,
    read_cancellation,
    sign_cancellation,
)
from tallystick.answers.check import AnswerReport, bound, check_words
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP
from tallystick.answers.request import ModelRequest
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import Envelope, PrivateKey, sign_envelope
from tallystick.errors import CorruptFileError, SignatureInvalidError, TallystickError, UsageError
from tallystick.limits import LIMITS

CLIENT, OTHER = PrivateKey(bytes([3]) * 32), PrivateKey(bytes([4]) * 32)
TOY = Toy.make(stop=(5,))
ASKED = replace(TOY.request(max_tokens=4), client=CLIENT.public, choices=2)


def reported(
    cancellation: bytes | None,
    finish: str = CANCELLED,
    request: ModelRequest = ASKED,
    last: int = 2,
) -> AnswerReport:
    """What the words say of an answer of two tokens."""
    spoken = Spoken((3, 1, 4), (1, last), np.full(2, -1, np.float32))
    said = AnswerJob(TOY.statement, request, spoken)
    signed, answer = bound(receipt_of(said, finish), said.statement, request, spoken)
    return check_words(signed, answer, cancellation)


def signed(key: PrivateKey = CLIENT, **odd: object) -> bytes:
    told: dict[str, object] = {
        "kind": "tallystick/cancelled/1", "request": ASKED.digest.hex(), "choice": 0, "answer": 2,
    }  # fmt: skip
    body = canonical_json({**told, **odd})  # type: ignore[dict-item]
    return sign_envelope(key, CANCELLATION_TYPE, body).to_bytes()


def test_the_clients_word_proves_it() -> None:
    data = sign_cancellation(CLIENT, ASKED, 2)
    assert data == signed() and len(data) <= LIMITS.cancellation_bytes
    assert read_cancellation(data, CLIENT.public) == Cancellation(ASKED.digest, 0, 2)
    report = reported(data)
    assert report.accepted and report.notes == () and report.findings == ()


def test_without_it_a_note_stays() -> None:
    report = reported(None)
    assert report.accepted and [one.clause for one in report.notes] == ["6.6"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (signed(OTHER), "one signature, by the request's client"),
        (signed(KEY), "one signature, by the request's client"),
        (signed(answer=1), "after 1 tokens, and the receipt counts 2"),
        (signed(answer=3), "after 3 tokens"),
        (signed(choice=1), "choice 1"),
        (signed(request=bytes(32).hex()), "another request"),
        (signed(answer=0), "malformed"),
        (signed(answer=LIMITS.text_places + 1), "malformed"),
        (signed(choice=LIMITS.choices), "malformed"),
        (signed(kind="tallystick/cancelled/2"), "malformed"),
        (signed(more=1), "malformed"),
        (b"", ""),
        (b"{}", ""),
        (signed() + b" " * LIMITS.cancellation_bytes, "exceed"),
    ],
)
def test_one_that_does_not_hold_is_a_finding(data: bytes, why: str) -> None:
    report = reported(data)
    assert not report.accepted and {one.clause for one in report.findings} == {"6.6.3"}
    assert why in report.findings[0].sentence and report.contradictions == ()


def test_every_other_signature_is_a_finding() -> None:
    envelope, rng = Envelope.from_bytes(signed()), random.Random(5)
    for _ in range(32):
        broken = bytearray(envelope.signatures[0].signature)
        broken[rng.randrange(64)] ^= 1 << rng.randrange(8)
        one = replace(envelope.signatures[0], signature=bytes(broken))
        report = reported(replace(envelope, signatures=(one,)).to_bytes())
        assert [found.clause for found in report.findings] == ["6.6.3"]


def test_beside_a_receipt_that_is_not_cancelled() -> None:
    assert [one.clause for one in reported(signed(), STOP, last=5).findings] == ["6.6.3"]
    asked = replace(ASKED, settings=replace(ASKED.settings, max_tokens=2))
    data = sign_cancellation(CLIENT, asked, 2)
    report = reported(data, LENGTH, asked)
    assert "whose finish is `length`" in report.findings[0].sentence


def test_a_request_without_a_client() -> None:
    asked = replace(ASKED, client=None)
    with pytest.raises(UsageError, match="names no client"):
        sign_cancellation(CLIENT, asked, 2)
    report = reported(signed(request=asked.digest.hex()), request=asked)
    assert "names no client" in report.findings[0].sentence


def test_what_cannot_be_signed() -> None:
    for key, answer, choice, why in (
        (OTHER, 2, 0, "not the one that the request names"),
        (CLIENT, 5, 0, "at most 4"),
        (CLIENT, 2, 2, "asks for 2"),
        (CLIENT, 0, 0, "number of tokens"),
        (CLIENT, 2, -1, "choice"),
    ):
        with pytest.raises(UsageError, match=why):
            sign_cancellation(key, ASKED, answer, choice)


def test_another_envelope_is_none() -> None:
    said = AnswerJob(TOY.statement, ASKED, Spoken((3, 1, 4), (1, 2), np.zeros(2, np.float32)))
    with pytest.raises(SignatureInvalidError, match="not a cancellation"):
        read_cancellation(receipt_of(said), CLIENT.public)
    twice = Envelope.from_bytes(signed())
    with pytest.raises((SignatureInvalidError, CorruptFileError)):
        read_cancellation(replace(twice, signatures=twice.signatures * 2).to_bytes(), CLIENT.public)


def test_any_bytes_are_a_cancellation_or_a_typed_error() -> None:
    rng = random.Random(6)
    payload = Envelope.from_bytes(signed()).payload
    for _ in range(300):
        broken = bytearray(payload)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.choice(b'0a"{}[],:-\x00\xff')
        data = sign_envelope(CLIENT, CANCELLATION_TYPE, bytes(broken)).to_bytes()
        try:
            read_cancellation(data, CLIENT.public)
        except TallystickError as error:
            assert error.exit_code in (1, 2) and error.next_action
