"""Layouts and canonical JSON (COMMITMENTS 1)."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.commit.encoding import (
    Reader,
    Writer,
    canonical_json,
    float_hex,
    parse_canonical_json,
    parse_float_hex,
    tag,
)
from tallystick.errors import CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS

INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_layout_bytes() -> None:  # 1.2, 1.3
    out = Writer(tag("x/1")).u8(1).u32(2).u64(3).text("é").blob(b"ab").f64(1.0)
    assert out.finish() == (
        b"tallystick/x/1\0" + b"\x01" + b"\x02\0\0\0" + b"\x03" + bytes(7)
        + b"\x02\0\0\0\xc3\xa9" + b"\x02" + bytes(7) + b"ab" + bytes(6) + b"\xf0\x3f"
    )  # fmt: skip


@given(st.integers(0, 255), st.integers(0, 2**64 - 1), st.text(max_size=20), st.binary())
def test_reader_inverts_writer(a: int, b: int, c: str, d: bytes) -> None:
    data = Writer(tag("x/1")).u8(a).u64(b).text(c).blob(d).finish()
    source = Reader(data, "thing")
    source.expect(tag("x/1"))
    assert (source.u8(), source.u64(), source.text(), source.blob(1 << 20)) == (a, b, c, d)
    source.end()
    for cut in range(len(data)):
        with pytest.raises(CorruptFileError):
            source = Reader(data[:cut], "thing")
            source.expect(tag("x/1"))
            source.u8(), source.u64(), source.text(), source.blob(1 << 20)


@pytest.mark.parametrize(
    "write",
    [
        lambda w: w.u8(256),
        lambda w: w.u8(-1),
        lambda w: w.u32(2**32),
        lambda w: w.u64(2**64),
        lambda w: w.u64(True),
        lambda w: w.u64(1.0),
        lambda w: w.hash(b"short"),
        lambda w: w.hash("0" * 32),
        lambda w: w.text("\ud800"),
        lambda w: w.text("x" * 1025),
    ],
)
def test_writer_refuses(write: object) -> None:
    with pytest.raises(UsageError):
        write(Writer())  # type: ignore[operator]


def test_reader_refuses_before_it_allocates() -> None:  # 1.6
    huge = (2**63).to_bytes(8, "little")
    for read in (
        lambda r: r.blob(2**62),
        lambda r: r.hashes(2**62),
        lambda r: r.count(10, "leaves"),
    ):
        with pytest.raises(CorruptFileError):
            read(Reader(huge, "thing"))
    with pytest.raises(CorruptFileError, match="too early"):
        Reader((2**40).to_bytes(8, "little"), "thing").hashes(2**41)
    with pytest.raises(CorruptFileError, match="longer than"):
        Reader((2**31).to_bytes(4, "little"), "thing").text()
    with pytest.raises(CorruptFileError, match="UTF-8"):
        Reader(b"\x01\0\0\0\xff", "thing").text()
    with pytest.raises(CorruptFileError, match="follow its end"):
        Reader(b"\0", "thing").end()


@given(VALUES)
def test_canonical_json_round_trip(value: object) -> None:  # 1.8, 1.11
    data = canonical_json(value)  # type: ignore[arg-type]
    assert parse_canonical_json(data) == value
    assert json.loads(data) == value
    assert canonical_json(parse_canonical_json(data)) == data


def test_rfc_8785_strings_and_key_order() -> None:
    # RFC 8785 3.2.2 and 3.2.3, without its numbers.
    text = '\u20ac$\u000f\nA\'B"\\\\"/'
    assert canonical_json(text) == b'"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'
    keys = {
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\U0001f600": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }  # fmt: skip
    order = list(json.loads(canonical_json(dict(keys))).values())
    assert order == [
        "Carriage Return", "One", "Control", "Latin Small Letter O With Diaeresis", "Euro Sign",
        "Emoji: Grinning Face", "Hebrew Letter Dalet With Dagesh",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"", b" 1", b"1 ", b"1\n", b"{}x", b"1.0", b"1e3", b"-0", b"01", b"NaN", b"Infinity",
        b"9007199254740992", b"9" * 5000, b'{"a":1,"a":1}', b'{"b":1,"a":2}', b'{"a": 1}',
        b'"\\u0041"', b'"\\/"', b'"\\ud800"', b'"\xed\xa0\x80"', b"\xff", b'"\t"', b"[1,]",
        b"[" * 65 + b"]" * 65, b"[" * 100_000, b'{"a":' * 100_000, b"\xef\xbb\xbf1", b"'a'",
        b'"a', b"nul", b'"\\x"', b'"\\u000A"',
    ],
)  # fmt: skip
def test_parser_refuses(data: bytes) -> None:  # 1.11
    with pytest.raises(CorruptFileError):
        parse_canonical_json(data)


def test_parser_size_limit_and_depth() -> None:
    with pytest.raises(CorruptFileError, match="exceed the limit"):
        parse_canonical_json(b'"aaaa"', limit=5)
    deep = b"[" * LIMITS.json_depth + b"]" * LIMITS.json_depth
    assert canonical_json(parse_canonical_json(deep)) == deep


@pytest.mark.parametrize(
    "value", [1.5, 2**53, -(2**53), b"x", {1: 2}, "\ud800", {"\udfff": 1}, {"a": object()}]
)
def test_writer_of_json_refuses(value: object) -> None:  # 1.8, 1.9
    with pytest.raises(UsageError):
        canonical_json(value)  # type: ignore[arg-type]


@given(st.floats())
def test_float_hex(value: float) -> None:  # 1.10
    back = parse_float_hex(float_hex(value), "lr")
    assert math.isnan(back) if math.isnan(value) else back.hex() == value.hex()


@pytest.mark.parametrize("text", ["1.0", "0x1p0", "0X1.0p+0", " 0x1.0000000000000p+0", 1, None,
                                  "Infinity", "0x1.00000000000000p+0", "0x1p99999"])  # fmt: skip
def test_float_hex_refuses(text: object) -> None:
    with pytest.raises(TallystickError):
        parse_float_hex(text, "lr")  # type: ignore[arg-type]


def test_every_character_is_quoted_as_rfc_8785_says() -> None:  # COMMITMENTS 1.8
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
    for code in (*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0x10FFFF):
        plain = f"\\u{code:04x}" if code < 32 else chr(code)
        assert canonical_json(chr(code)) == f'"{short.get(code, plain)}"'.encode()


def test_more_values_than_any_manifest_has() -> None:
    """1.11: counted before they are made; a value takes many times its bytes."""
    many = b"[" + b"1," * LIMITS.json_values + b"1]"
    assert len(many) < LIMITS.manifest_bytes
    with pytest.raises(CorruptFileError, match="more than"):
        parse_canonical_json(many)
    fits = b"[" + b"1," * 1000 + b"1]"
    assert parse_canonical_json(fits) == [1] * 1001
