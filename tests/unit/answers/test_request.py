"""ANSWERS 5: what is asked for, its digest and its seed."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from unit.answers.toy import SECRET

from tallystick.answers.layout import Settings
from tallystick.answers.request import ModelRequest, part_digest, request_digest
from tallystick.commit.encoding import canonical_json, sha256
from tallystick.commit.signing import PrivateKey
from tallystick.errors import CorruptFileError, TallystickError, UsageError

MODEL = b"m" * 32
SETTINGS = Settings(
    temperature=0.7, top_k=5, top_p=0.9, repetition=1.1, bias=((3, -1.5),), seed=2**64 - 1,
    max_tokens=9, stop=(1, 4),
)  # fmt: skip
BY_TOKENS = ModelRequest(MODEL, SETTINGS, tokens=(3, 1, 4), secret=SECRET)
BY_TEXT = ModelRequest(
    MODEL, Settings(), text="Say häh", nonce=bytes(16), stop_strings=("\n\n",), choices=3,
    secret=SECRET,
)  # fmt: skip
BY_MESSAGES = ModelRequest(
    MODEL, Settings(), messages=({"role": "user", "content": "Hi", "more": [1, None]},),
    date="2026-11-28", server_seed=True, secret=SECRET,
)  # fmt: skip
ALL = (BY_TOKENS, BY_TEXT, BY_MESSAGES)


@pytest.mark.parametrize("request_", ALL)
def test_it_reads_what_it_writes(request_: ModelRequest) -> None:
    again = ModelRequest.from_bytes(request_.to_bytes())
    assert again == request_ and again.digest == request_.digest and again.seed == request_.seed


def test_the_digest_is_by_the_clauses() -> None:
    """5.3 and 5.4, from the file alone."""
    body = json.loads(BY_TEXT.to_bytes())
    secret, digests = bytes.fromhex(body["secret"]), []
    for name in sorted(body["parts"]):
        text = len(name).to_bytes(4, "little") + name.encode()
        salt = sha256(b"tallystick/answer-salt/1\0" + secret + text)
        p = canonical_json(body["parts"][name])
        part = b"tallystick/request-part/1\0" + text + salt + len(p).to_bytes(8, "little") + p
        digests.append(text + sha256(part))
    whole = b"tallystick/request/1\0" + len(digests).to_bytes(8, "little") + b"".join(digests)
    assert BY_TEXT.digest == sha256(whole)


def test_a_part_is_shown_without_the_others() -> None:
    shown, value = "settings", BY_TOKENS.parts["settings"]
    others = {
        name: part_digest(name, BY_TOKENS.salt(name), part)
        for name, part in BY_TOKENS.parts.items()
        if name != shown
    }
    own = part_digest(shown, BY_TOKENS.salt(shown), value)
    assert request_digest({**others, shown: own}) == BY_TOKENS.digest
    changed = part_digest(shown, BY_TOKENS.salt(shown), {**value, "top_k": 6})  # type: ignore[dict-item]
    assert request_digest({**others, shown: changed}) != BY_TOKENS.digest


def test_equal_requests_with_other_secrets_have_nothing_in_common() -> None:
    other = replace(BY_TOKENS, secret=bytes(32))
    assert other.parts == BY_TOKENS.parts and other.digest != BY_TOKENS.digest
    assert (other.record_salt != BY_TOKENS.record_salt).all()
    assert BY_TOKENS.record_salt.dtype == np.int64 and BY_TOKENS.record_salt.shape == (4,)
    assert len({BY_TOKENS.salt(name) for name in (*BY_TOKENS.parts, "record")}) == 8


def test_the_seed() -> None:
    """5.5: the client's, or the nonce's over the whole request; never more than 63 bits of it."""
    assert BY_TOKENS.seed == 2**64 - 1
    found = sha256(b"tallystick/request-seed/1\0" + bytes(16) + BY_TEXT.digest)
    assert BY_TEXT.seed == int.from_bytes(found[:8], "big") % 2**63
    assert replace(BY_TEXT, text="Say hah").seed != BY_TEXT.seed
    assert replace(BY_TEXT, nonce=b"1" * 16).seed != BY_TEXT.seed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tokens": None}, "exactly one of tokens"),
        ({"text": "and"}, "exactly one of tokens"),
        ({"tokens": ()}, "input is empty"),
        ({"choices": 0}, "choices"),
        ({"choices": 1025}, "choices"),
        ({"nonce": b"1"}, "16 bytes"),
        ({"nonce": bytes(16), "server_seed": True}, "server's seed"),
        ({"date": "tomorrow"}, "date is not in the form"),
        ({"date": "2026-02-30"}, "date is not in the form"),
        ({"stop_strings": ("",)}, "empty"),
        ({"stop_strings": ("a",) * 4097}, "too many stop strings"),
        ({"settings": Settings(stop=tuple(range(4097)))}, "too many stop tokens"),
        ({"secret": b""}, "32-byte"),
        ({"model": b"m"}, "32-byte"),
    ],
)
def test_what_is_no_request(change: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        replace(BY_TOKENS, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("input", {"tokens": [1], "text": "a"}, "exactly one of"),
        ("input", {"image": "a"}, "exactly one of"),
        ("input", {"messages": [{"content": "a"}]}, "no role"),
        ("input", {"messages": ["a"]}, "object"),
        ("seed", {"by": "me", "nonce": None, "seed": "1"}, "neither"),
        ("seed", {"by": "client", "nonce": None, "seed": str(2**64)}, "seed"),
        ("seed", {"by": "client", "nonce": None, "seed": 1}, "not a string"),
        ("seed", {"by": "client", "nonce": "00" * 16, "seed": "1"}, "canonical form"),
        ("settings", None, "object"),
        ("choices", True, "not an integer"),
        ("stop_strings", [1], "list of strings"),
        ("model", "zz", "hexadecimal"),
        ("date", 1, "not a string"),
    ],
)
def test_malformed_parts(part: str, value: object, why: str) -> None:
    body = json.loads(BY_TOKENS.to_bytes())
    body["parts"][part] = value
    with pytest.raises(CorruptFileError, match=why):
        ModelRequest.from_bytes(canonical_json(body))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", "inf"), ("temperature", "-0x1.0000000000000p+0"), ("temperature", 1),
        ("top_p", "0x0.0p+0"), ("top_k", -1), ("max_tokens", 0), ("stop", [4, 1]),
        ("bias", [[3]]), ("bias", [[3, 1]]), ("bias", [[4, "0x0.0p+0"], [3, "0x0.0p+0"]]),
    ],
)  # fmt: skip
def test_malformed_settings(setting: str, value: object) -> None:
    body = json.loads(BY_TOKENS.to_bytes())
    body["parts"]["settings"][setting] = value
    with pytest.raises(CorruptFileError):
        ModelRequest.from_bytes(canonical_json(body))


def test_any_bytes_are_a_request_or_a_typed_error() -> None:
    rng = random.Random(2)
    for _ in range(300):
        data = bytearray(rng.choice(ALL).to_bytes())
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b'0a"{}[],:\x00\xff')
        try:
            ModelRequest.from_bytes(bytes(data))
        except TallystickError as error:
            assert error.exit_code == 2 and error.next_action


# -- the client's key (5.1, 6.6) -------------------------------------------------------------------
CLIENT = PrivateKey(bytes([3]) * 32).public


def test_a_request_without_a_client_has_the_digest_that_it_had() -> None:
    """A part that is not there is in no digest: these are of the form before there was one."""
    assert "client" not in BY_TOKENS.parts and len(BY_TOKENS.parts) == 7
    assert [request.digest.hex()[:16] for request in ALL] == [
        "ed9f30a274390ae5", "0583afbd15a4b28e", "65e109923c4d6ef9",
    ]  # fmt: skip


def test_a_client_is_a_part_of_its_own() -> None:
    asked = replace(BY_TOKENS, client=CLIENT)
    again = ModelRequest.from_bytes(asked.to_bytes())
    assert again == asked and again.client == CLIENT
    assert again.parts["client"] == CLIENT.raw.hex() and len(again.parts) == 8
    assert asked.digest != BY_TOKENS.digest
    assert {n: v for n, v in asked.parts.items() if n != "client"} == BY_TOKENS.parts


@pytest.mark.parametrize("client", [None, "", "00" * 32, "zz" * 32, 1, CLIENT.raw.hex().upper()])
def test_a_client_that_is_no_key(client: object) -> None:
    body = json.loads(BY_TOKENS.to_bytes())
    body["parts"]["client"] = client
    with pytest.raises(CorruptFileError):
        ModelRequest.from_bytes(canonical_json(body))
