"""ANSWERS 7: a receipt's bytes, its two signatures, and the game's first message in it."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace

import pytest
from unit.answers.toy import KEY, Toy, receipt_of

from tallystick.answers.receipt import (
    CANCELLED,
    RECEIPT_TYPE,
    AnswerReceipt,
    parsed_receipt,
    read_receipt,
    sign_receipt,
)
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import Envelope, PrivateKey, sign_envelope, verify_run
from tallystick.errors import CorruptFileError, SignatureInvalidError, TallystickError, UsageError
from tallystick.limits import LIMITS

FULL = b"\xff" * 32
LONGEST = AnswerReceipt(
    FULL, FULL, LIMITS.choices - 1, FULL, FULL, FULL, LIMITS.text_places, LIMITS.text_places,
    CANCELLED, 1 << 52, 1 << 52, KEY.public,
)  # fmt: skip
OTHER = PrivateKey(bytes([8]) * 32)


def payload_of(data: bytes) -> dict[str, object]:
    return dict(json.loads(Envelope.from_bytes(data).payload))


def signed_anew(data: bytes, **changed: object) -> bytes:
    """A receipt with other members, signed by its key."""
    body = canonical_json({**payload_of(data), **changed})  # type: ignore[dict-item]
    return sign_envelope(KEY, RECEIPT_TYPE, body).to_bytes()


def test_the_longest_receipt_is_within_the_limit() -> None:
    data = sign_receipt(KEY, LONGEST)
    assert len(data) == 1019 <= LIMITS.receipt_bytes == 1024
    assert read_receipt(data).receipt == LONGEST


def test_the_first_message_of_a_game_follows_from_it() -> None:
    signed = read_receipt(sign_receipt(KEY, LONGEST))
    run, verified = verify_run(Envelope.from_bytes(signed.commitment()))
    assert run == LONGEST.run and verified.signer == KEY.public
    assert (run.job_digest, run.run_root, run.final_state_root) == (FULL, FULL, FULL)
    assert (run.final_step, run.checkpoints) == (1, 2)


def test_trust() -> None:
    data = sign_receipt(KEY, LONGEST)
    assert read_receipt(data).trusted is None and read_receipt(data, [KEY.public]).trusted
    with pytest.raises(SignatureInvalidError, match="trust list"):
        read_receipt(data, [OTHER.public])


def test_the_key_in_it_signs_both() -> None:
    data = sign_receipt(KEY, LONGEST)
    with pytest.raises(UsageError, match="another signer"):
        sign_receipt(OTHER, LONGEST)
    # Another key around it.
    stolen = sign_envelope(OTHER, RECEIPT_TYPE, Envelope.from_bytes(data).payload).to_bytes()
    with pytest.raises(SignatureInvalidError, match="one signature, by the signer that it names"):
        read_receipt(stolen)
    # Every member is in the commitment, or signed by the envelope: no other one has this `run`.
    for name, value in (("job", "A" * 43), ("root", "A" * 43), ("state", "A" * 43)):
        with pytest.raises(SignatureInvalidError, match="of its run commitment"):
            read_receipt(signed_anew(data, **{name: value}))
    other = payload_of(sign_receipt(KEY, replace(LONGEST, job=bytes(32))))
    with pytest.raises(SignatureInvalidError, match="of its run commitment"):
        read_receipt(signed_anew(data, run=other["run"]))
    assert read_receipt(signed_anew(data, model="A" * 43)).receipt.model == bytes(32)


def test_another_kind_of_envelope_is_none() -> None:
    signed = read_receipt(sign_receipt(KEY, LONGEST))
    with pytest.raises(SignatureInvalidError, match="not the receipt of an answer"):
        read_receipt(signed.commitment())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "tallystick/answered/2"}, "kind"),
        ({"finish": "done"}, "finish"),
        ({"choice": 1024}, "choice"),
        ({"choice": True}, "not an integer"),
        ({"prompt": 0}, "prompt"),
        ({"answer": 0}, "answer"),
        ({"answer": (1 << 20) + 1}, "answer"),
        ({"until": 5, "time": 6}, "times"),
        ({"time": -1}, "times"),
        ({"until": (1 << 52) + 1}, "times"),
        ({"job": "A" * 42}, "base64url"),
        ({"job": "A" * 42 + "B"}, "base64url"),  # unused bits
        ({"job": "A" * 42 + "+"}, "base64url"),
        ({"job": "A" * 43 + "="}, "base64url"),
        ({"key": "A" * 43}, "key"),  # of small order (COMMITMENTS 9.1.1)
        ({"more": 1}, "missing or unknown"),
    ],
)
def test_malformed_members(changed: dict[str, object], why: str) -> None:
    # A short one, so that no change meets the limit of bytes first.
    data = signed_anew(receipt_of(Toy.make().answered(Toy.make().request())), **changed)
    with pytest.raises(CorruptFileError, match=why):
        read_receipt(data)


def test_sizes_come_first() -> None:
    data = sign_receipt(KEY, LONGEST)
    with pytest.raises(CorruptFileError, match="exceed the limit"):
        read_receipt(data + b" " * 6)
    with pytest.raises(CorruptFileError, match="exceed the limit"):
        read_receipt(b"[" * (1 << 20))


def test_every_flipped_bit_is_noticed() -> None:
    data, rng = sign_receipt(KEY, LONGEST), random.Random(3)
    for _ in range(400):
        broken = bytearray(data)
        broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(TallystickError) as caught:
            read_receipt(bytes(broken))
        assert caught.value.exit_code in (1, 2) and caught.value.next_action


def test_any_payload_is_a_receipt_or_a_typed_error() -> None:
    """As its own signer sees it: the parser stands behind no signature."""
    payload, rng = Envelope.from_bytes(sign_receipt(KEY, LONGEST)).payload, random.Random(4)
    for _ in range(400):
        broken = bytearray(payload)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.choice(b'0a"{}[],:-_\x00\xff')
        try:
            parsed_receipt(bytes(broken))
        except TallystickError as error:
            assert error.exit_code == 2


def test_members_are_base64url_of_the_bytes() -> None:
    body = payload_of(sign_receipt(KEY, replace(LONGEST, job=bytes(range(224, 256)))))
    text = str(body["job"])
    assert base64.urlsafe_b64decode(text + "=") == bytes(range(224, 256)) and "=" not in text
