"""Statements, their subjects and how they are read (CLAIMS 1 and 9)."""

from __future__ import annotations

import hashlib
import json

import pytest
from claim_schemas import NAMES, schema
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tallystick.commit.encoding import JsonValue, canonical_json
from tallystick.commit.signed import (
    PAYLOAD_TYPE,
    RUN_ROOT,
    STATEMENT_TYPE,
    Subject,
    claim_type,
    read_statement,
    sign_statement,
    statement_payload,
)
from tallystick.commit.signing import Envelope, PrivateKey, sign_envelope
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    SignatureInvalidError,
    UsageError,
)

KEY, OTHER = PrivateKey(bytes([1]) * 32), PrivateKey(bytes([2]) * 32)
SUBJECTS = [Subject.of_bytes("a/file", b"content"), Subject("run", {RUN_ROOT: bytes(32)})]
TYPE = claim_type("run")


def made(value: JsonValue, key: PrivateKey = KEY) -> bytes:
    return sign_envelope(key, PAYLOAD_TYPE, canonical_json(value)).to_bytes()


def whole() -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = json.loads(statement_payload(TYPE, SUBJECTS, {"x": 1}))
    return found


def test_the_payload_is_this_text() -> None:
    """Written out, so that no code of the package decides what is right."""
    digest = hashlib.sha256(b"content").hexdigest()
    assert statement_payload(TYPE, SUBJECTS, {"x": 1}).decode() == (
        '{"_type":"https://in-toto.io/Statement/v1","predicate":{"x":1},'
        '"predicateType":"https://tallystick.dev/claims/run/v1","subject":['
        f'{{"digest":{{"sha256":"{digest}"}},"name":"a/file"}},'
        f'{{"digest":{{"tallystickRunRoot":"{"0" * 64}"}},"name":"run"}}]}}'
    )


def test_a_statement_is_read_by_a_key_of_ones_own() -> None:
    data = sign_statement(KEY, statement_payload(TYPE, SUBJECTS, {"x": 1})).to_bytes()
    found = read_statement(data, [OTHER.public, KEY.public])
    assert (found.signer, found.predicate_type, found.predicate) == (KEY.public, TYPE, {"x": 1})
    assert found.names_of(hashlib.sha256(b"content").digest()) == ["a/file"]
    # A root is no digest of a file (1.4, 1.5).
    assert found.names_of(bytes(32)) == []
    for trust in ([], [OTHER.public]):
        with pytest.raises(SignatureInvalidError):
            read_statement(data, trust)


def test_old_statements_are_read() -> None:
    """1.9: roots are `sha256` there, and a reader sees them as they stand."""
    old: JsonValue = {
        "_type": STATEMENT_TYPE,
        "predicate": {"steps": 3},
        "predicateType": "urn:tallystick:training-run:v1",
        "subject": [{"digest": {"sha256": "00" * 32}, "name": "run"}],
    }
    found = read_statement(made(old), [KEY.public])
    assert (found.predicate_type, found.predicate) == (
        "urn:tallystick:training-run:v1",
        {"steps": 3},
    )


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicate": []},
        {"predicateType": 1},
        {"subject": {}},
        {"subject": [{"name": "a"}]},
        {"subject": [{"digest": {"sha256": d * 64}, "name": "a"} for d in "01"]},
        {"subject": [{"digest": {"sha256": 1}, "name": "a"}]},
        {"subject": [{"digest": {}, "name": "a", "uri": "b"}]},
        {"more": 1},
    ],
)
def test_other_forms_are_refused(change: dict[str, JsonValue]) -> None:
    with pytest.raises(CorruptFileError, match="malformed"):
        read_statement(made({**whole(), **change}), [KEY.public])


def test_other_envelopes_are_refused() -> None:
    payload = canonical_json(whole())
    with pytest.raises(SignatureInvalidError):
        read_statement(sign_envelope(KEY, "text/plain", payload).to_bytes(), [KEY.public])
    (one,) = sign_statement(KEY, payload).signatures
    for signatures in ((), (one, one)):
        twice = Envelope(PAYLOAD_TYPE, payload, signatures).to_bytes()
        with pytest.raises(SignatureInvalidError, match="instead of one"):
            read_statement(twice, [KEY.public])
    changed = Envelope(PAYLOAD_TYPE, payload + b" ", (one,)).to_bytes()
    with pytest.raises(SignatureInvalidError, match="does not verify"):
        read_statement(changed, [KEY.public])


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../b", "x" * 1025])
def test_names_that_no_subject_has(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name"):
        Subject.of_bytes(name, b"")


def test_a_name_stands_once_and_a_digest_has_32_bytes() -> None:
    with pytest.raises(UsageError, match="twice"):
        statement_payload(TYPE, [SUBJECTS[0], SUBJECTS[0]], {})
    with pytest.raises(UsageError, match="digest"):
        Subject("a", {"sha256": bytes(31)})


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_schemas_and_name_their_type(name: str) -> None:
    found = schema(name)
    Draft202012Validator.check_schema(found)
    assert found["properties"]["predicateType"]["const"] == claim_type(name)
    assert found["additionalProperties"] is False
    assert found["properties"]["predicate"]["additionalProperties"] is False


WHOLE = sign_statement(KEY, statement_payload(TYPE, SUBJECTS, {"x": 1})).to_bytes()


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.booleans())
def test_changed_bytes_are_refused(at: int, by: int, cut: bool) -> None:
    """Each byte of a claim counts: no change and no cut leaves one that is read."""
    changed = WHOLE[:at] if cut else WHOLE[:at] + bytes([WHOLE[at] ^ by]) + WHOLE[at + 1 :]
    with pytest.raises(CounterpartyError):
        read_statement(changed, [KEY.public])


@given(st.binary(max_size=200))
def test_any_signed_payload_is_read_or_refused(payload: bytes) -> None:
    with pytest.raises(CorruptFileError):
        read_statement(sign_envelope(KEY, PAYLOAD_TYPE, payload).to_bytes(), [KEY.public])
