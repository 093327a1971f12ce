"""Ed25519 keys and signatures that say nothing: small orders, second encodings. COMMITMENTS 9.1.1.

Keys of mixed order are in vectors/commit/ed25519.json (tests/vectors/test_ed25519_vectors.py).

The points are computed here from the curve's equation, -x^2 + y^2 = 1 + d x^2 y^2 modulo p, in
plain Python. Their encodings are the fourteen of the published tables ("Taming the many EdDSAs",
Chalkias, Garillot, Nikolaenko, 2020).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tallystick.commit.encoding import canonical_json, sha256
from tallystick.commit.signing import (
    RUN_COMMITMENT_TYPE,
    Envelope,
    PrivateKey,
    PublicKey,
    RunCommitment,
    Signature,
    sign_envelope,
    sign_run,
    verify_run,
)
from tallystick.disk.keys import load_public_key
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.protocol.forfeit import FORFEIT_TYPE, Forfeit, open_forfeit

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493
Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


def add(a: Point, b: Point) -> Point:
    """The sum of two points of the curve."""
    t = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + t, -1, P) % P
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, P) % P
    return x, y


def times(n: int, a: Point) -> Point:
    """n times a point."""
    out = NEUTRAL
    while n:
        out, a, n = (add(out, a) if n & 1 else out), add(a, a), n >> 1
    return out


def lifted(y: int) -> Point | None:
    """A point with that y, if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    for x in (root, root * pow(2, (P - 1) // 4, P) % P):
        if x * x % P == square:
            return x, y
    return None


def small_order_points() -> set[Point]:
    """All eight: multiples of ORDER times any point."""
    y = 2
    while True:
        found = lifted(y)
        made = times(ORDER, found) if found else NEUTRAL
        if times(4, made) != NEUTRAL:
            return {times(k, made) for k in range(8)}
        y += 1


SMALL = small_order_points()


def encodings(y: int) -> set[bytes]:
    """Every 32 bytes that say this y: both sign bits, and y + p where it fits 255 bits."""
    return {
        (value | sign << 255).to_bytes(32, "little")
        for value in (y, y + P)
        if value < 1 << 255
        for sign in (0, 1)
    }


WEAK = sorted({data for _, y in SMALL for data in encodings(y)})
NOT_CANONICAL = sorted(
    data
    for y in range(19)
    for data in encodings(y)
    if int.from_bytes(data, "little") % (1 << 255) >= P
)
KEY = PrivateKey(bytes(range(32)))
RUN = RunCommitment(b"j" * 32, b"r" * 32, 200, b"s" * 32, 11, KEY.public)


def test_the_points_are_the_published_ones() -> None:
    """Orders 1, 2, 4, 4, 8, 8, 8, 8; fourteen encodings, of which these three are well known."""
    orders = sorted(next(k for k in (1, 2, 4, 8) if times(k, a) == NEUTRAL) for a in SMALL)
    assert orders == [1, 2, 4, 4, 8, 8, 8, 8]
    assert len(WEAK) == 14
    for known in (
        bytes([1]) + bytes(31),
        bytes(32),
        bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    ):
        assert known in WEAK


@pytest.mark.parametrize("raw", [*WEAK, *NOT_CANONICAL], ids=bytes.hex)
def test_a_weak_key_is_no_key(raw: bytes) -> None:
    with pytest.raises(UsageError, match="Ed25519"):
        PublicKey(raw)


def test_without_the_check_one_signature_is_for_every_message() -> None:
    """What the library alone accepts: A = R = the neutral point, S = 0."""
    neutral = bytes([1]) + bytes(31)
    library = Ed25519PublicKey.from_public_bytes(neutral)
    accepted = 0
    for message in (b"I owe nothing", b"I owe everything"):
        try:
            library.verify(neutral + bytes(32), message)
            accepted += 1
        except InvalidSignature:
            pass
    assert accepted in (0, 2)  # a library may refuse it itself; ours does, whatever it does
    with pytest.raises(UsageError):
        PublicKey(neutral)


def test_signatures_have_one_form() -> None:
    """9.1.1: S below the order, R canonical and not of small order."""
    message = b"message"
    good = KEY.sign(message)
    assert KEY.public.verifies(good, message)
    r, s = good[:32], int.from_bytes(good[32:], "little")
    for k in range(1, 16):
        more = s + k * ORDER
        if more < 1 << 256:
            assert not KEY.public.verifies(r + more.to_bytes(32, "little"), message)
    for weak in (*WEAK, *NOT_CANONICAL):
        assert not KEY.public.verifies(weak + good[32:], message)
    for cut in (good[:63], good + b"\0", b"", bytes(64)):
        assert not KEY.public.verifies(cut, message)


def test_a_signature_whose_r_is_of_small_order_is_none() -> None:
    """It satisfies the equation: with the secret a, r = 0, R the neutral point and S = k * a."""
    from hashlib import sha512

    seed, message = bytes(range(32)), b"message"
    digest = bytearray(sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    secret, r = int.from_bytes(digest, "little"), bytes([1]) + bytes(31)
    k = int.from_bytes(sha512(r + KEY.public.raw + message).digest(), "little")
    signature = r + (k * secret % ORDER).to_bytes(32, "little")
    assert not KEY.public.verifies(signature, message)


# --- what parsers of a counterparty's bytes make of it --------------------------------------------
@pytest.mark.parametrize("raw", [WEAK[0], WEAK[-1], NOT_CANONICAL[-1]], ids=bytes.hex)
def test_parsers_refuse_a_weak_signer(raw: bytes) -> None:
    value = json.loads(RUN.payload())
    payload = canonical_json({**value, "signer": raw.hex()})
    with pytest.raises(CorruptFileError, match="Ed25519"):
        RunCommitment.from_payload(payload)
    signature = Signature(sha256(raw).hex(), bytes([1]) + bytes(63))
    forged = Envelope(RUN_COMMITMENT_TYPE, payload, (signature,))
    with pytest.raises(CounterpartyError):
        verify_run(Envelope.from_bytes(forged.to_bytes()))
    word = Forfeit(b"j" * 32, (b"a" * 32, b"b" * 32), 0, b"q", KEY.public)
    weak = canonical_json({**json.loads(word.payload()), "referee": raw.hex()})
    with pytest.raises(CounterpartyError, match="Ed25519"):
        open_forfeit(sign_envelope(KEY, FORFEIT_TYPE, weak).to_bytes())


def test_a_weak_key_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weak.pub"
    pem = Ed25519PublicKey.from_public_bytes(bytes([1]) + bytes(31))
    path.write_bytes(pem.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(UsageError, match="Ed25519"):
        load_public_key(path)


def test_a_key_is_a_point_of_the_subgroup() -> None:
    """The sum of a key and a point of order 2, 4 or 8 is none; nor is what is no point."""
    x, y = lifted(int.from_bytes(KEY.public.raw, "little") % (1 << 255)) or NEUTRAL
    if x & 1 != KEY.public.raw[31] >> 7:
        x = P - x
    for small in SMALL - {NEUTRAL}:
        both = add((x, y), small)
        raw = (both[1] | (both[0] & 1) << 255).to_bytes(32, "little")
        with pytest.raises(UsageError, match="subgroup"):
            PublicKey(raw)
    off = next(y for y in range(2, 99) if lifted(y) is None)
    with pytest.raises(UsageError, match="no point"):
        PublicKey(off.to_bytes(32, "little"))


def test_sound_keys_are_taken() -> None:
    for n in range(64):
        key = PrivateKey(sha256(bytes([n])))
        assert key.public.verifies(key.sign(b"m"), b"m")
    assert verify_run(Envelope.from_bytes(sign_run(KEY, RUN).to_bytes()))[0] == RUN
