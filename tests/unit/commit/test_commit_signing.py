"""Keys, DSSE envelopes and run commitments (COMMITMENTS 9)."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest

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
    verify_run,
)
from tallystick.disk.keys import load_private_key, load_public_key, save_private_key
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    CounterpartyError,
    SignatureInvalidError,
    StorageError,
    UsageError,
)

KEY = PrivateKey(bytes(range(32)))
OTHER = PrivateKey(bytes(range(1, 33)))
RUN = RunCommitment(b"j" * 32, b"r" * 32, 200, b"s" * 32, 11, KEY.public)


def test_published_pae() -> None:
    # The DSSE protocol document's own example.
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected


def test_published_signature() -> None:
    # RFC 8032 7.1, tests 1 and 2.
    for seed, public, message, signature in (
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac"
            "c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e"
            "458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ):
        key = PrivateKey(bytes.fromhex(seed))
        assert key.public.raw.hex() == public
        assert key.sign(bytes.fromhex(message)).hex() == signature
        assert key.public.verifies(bytes.fromhex(signature), bytes.fromhex(message))


def test_keys_on_disk(tmp_path: Path) -> None:  # 9.1
    path = tmp_path / "key.pem"
    save_private_key(KEY, path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert load_private_key(path).public == KEY.public
    assert load_public_key(path) == KEY.public
    (tmp_path / "public.pem").write_bytes(KEY.public.pem())
    assert load_public_key(tmp_path / "public.pem") == KEY.public
    with pytest.raises(StorageError, match="not overwritten"):
        save_private_key(OTHER, path)
    assert load_private_key(path).public == KEY.public
    assert PrivateKey.generate().public != PrivateKey.generate().public


def test_key_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CannotCheckError, match="is missing"):
        load_private_key(tmp_path / "absent")
    # The last one is a seed of 32 bytes under the name of X448: OpenSSL calls it an internal error.
    other = KEY.pem().replace(b"MC4CAQAwBQYDK2Vw", b"MC4CAQAwBQYDK2Vv")
    assert other != KEY.pem()
    broken = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END"
    for content in (b"", b"not a key", broken, bytes(99), other):
        (tmp_path / "bad").write_bytes(content)
        for load in (load_private_key, load_public_key):
            with pytest.raises(CannotCheckError, match="no unencrypted Ed25519"):
                load(tmp_path / "bad")
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    with pytest.raises(CannotCheckError, match="more than the limit"):
        load_public_key(tmp_path / "big")
    (tmp_path / "public.pem").write_bytes(KEY.public.pem())
    with pytest.raises(CannotCheckError):
        load_private_key(tmp_path / "public.pem")
    with pytest.raises(StorageError, match="cannot be written"):
        save_private_key(KEY, tmp_path / "no" / "such" / "key")


def test_the_secret_is_not_shown() -> None:
    assert bytes(range(32)).hex() not in repr(KEY) + repr(vars(KEY)) + str(KEY)


def test_run_commitment_round_trip() -> None:  # 9.5
    envelope = sign_run(KEY, RUN)
    back, verified = verify_run(Envelope.from_bytes(envelope.to_bytes()))
    assert (back, verified.signer, verified.trusted) == (RUN, KEY.public, None)
    assert verify_run(envelope, [OTHER.public, KEY.public])[1].trusted is True
    assert json.loads(envelope.to_bytes())["payloadType"] == RUN_COMMITMENT_TYPE
    with pytest.raises(UsageError, match="another signer"):
        sign_run(OTHER, RUN)


def test_trust() -> None:  # 9.4
    envelope = sign_run(KEY, RUN)
    for trust in ([], [OTHER.public]):
        with pytest.raises(SignatureInvalidError, match="trust list"):
            verify_run(envelope, trust)
    with pytest.raises(SignatureInvalidError, match="No key is at hand"):
        verify_envelope(envelope, RUN_COMMITMENT_TYPE, [])
    with pytest.raises(SignatureInvalidError, match="carries"):
        verify_envelope(envelope, "text/plain", [KEY.public])


def test_a_signature_does_not_move() -> None:
    """To another payload, payload type, signer, or run commitment."""
    envelope = sign_run(KEY, RUN)
    stolen = dataclasses.replace(RUN, signer=OTHER.public).payload()
    moved = [
        dataclasses.replace(envelope, payload=envelope.payload.replace(b"200", b"201")),
        dataclasses.replace(envelope, payload_type="application/json"),
        dataclasses.replace(envelope, payload=stolen),
        dataclasses.replace(envelope, signatures=()),
        dataclasses.replace(envelope, signatures=envelope.signatures * 2),
        dataclasses.replace(envelope, signatures=(Signature(KEY.public.key_id, bytes(64)),)),
        dataclasses.replace(envelope, signatures=(Signature(KEY.public.key_id, b""),)),
        dataclasses.replace(
            sign_envelope(OTHER, RUN_COMMITMENT_TYPE, RUN.payload()),
        ),
        sign_envelope(KEY, RUN_COMMITMENT_TYPE, stolen),
    ]
    for bad in moved:
        with pytest.raises(CounterpartyError):
            verify_run(bad)
    two = sign_envelope(OTHER, "t", b"x").signatures + sign_envelope(KEY, "t", b"y").signatures
    with pytest.raises(SignatureInvalidError, match="does not verify"):
        verify_envelope(Envelope("t", b"x", two), "t", [KEY.public, OTHER.public])


def test_every_byte_of_an_envelope_is_bound() -> None:
    data = sign_run(KEY, RUN).to_bytes()
    for i in range(len(data)):
        for bit in (1, 2, 32):
            bad = data[:i] + bytes([data[i] ^ bit]) + data[i + 1 :]
            with pytest.raises(CounterpartyError):
                verify_run(Envelope.from_bytes(bad))


@pytest.mark.parametrize(
    "data",
    [
        b"{}", b"[]", b"1", b"null",
        b'{"payload":"","payloadType":"t"}',
        b'{"payload":"","payloadType":1,"signatures":[]}',
        b'{"payload":"","payloadType":"t","signatures":{}}',
        b'{"payload":"","payloadType":"t","signatures":[1]}',
        b'{"payload":"","payloadType":"t","signatures":[{"keyid":1,"sig":""}]}',
        b'{"payload":"","payloadType":"t","signatures":[{"keyid":"a","sig":null}]}',
        b'{"payload":"AB==","payloadType":"t","signatures":[]}',
        b'{"payload":"QQ","payloadType":"t","signatures":[]}',
        b'{"payload":"Q Q=","payloadType":"t","signatures":[]}',
        b'{"payload":"\xc3\xa9","payloadType":"t","signatures":[]}',
        b'{"payload":"","payloadType":"t","signatures":['
        + b",".join([b'{"keyid":"a","sig":""}'] * 65) + b"]}",
        b'{"extra":1,"payload":"","payloadType":"t","signatures":[]}',
    ],
)  # fmt: skip
def test_malformed_envelopes(data: bytes) -> None:  # 9.3
    with pytest.raises(CorruptFileError):
        Envelope.from_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tallystick/run-commitment/2"}, {"job_digest": "AB" * 32}, {"run_root": "00"},
        {"final_step": "200"}, {"final_step": -1}, {"checkpoints": 0}, {"checkpoints": True},
        {"signer": "zz" * 32}, {"final_step": 2**50}, {"more": 1},
    ],
)  # fmt: skip
def test_malformed_statements(change: dict[str, object]) -> None:  # 9.5
    members = {**json.loads(RUN.payload()), **change}
    payload = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(CorruptFileError):
        verify_run(sign_envelope(KEY, RUN_COMMITMENT_TYPE, payload))


def test_payload_must_be_canonical() -> None:
    payload = json.dumps(json.loads(RUN.payload()), sort_keys=True).encode()
    with pytest.raises(CorruptFileError, match="canonical"):
        verify_run(sign_envelope(KEY, RUN_COMMITMENT_TYPE, payload))


def test_public_keys_have_32_bytes() -> None:
    with pytest.raises(UsageError):
        PublicKey(bytes(31))
    with pytest.raises(UsageError):
        PrivateKey(bytes(33))
    with pytest.raises(UsageError):
        PublicKey(b"\xff" * 32)
    assert not KEY.public.verifies(bytes(64), b"")
    assert base64.b64decode(json.loads(sign_run(KEY, RUN).to_bytes())["payload"]) == RUN.payload()
