"""Members of an untrusted JSON object, each by name and type (COMMITMENTS 1.11, docs/adr/0009)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tallystick.commit.encoding import JsonValue
from tallystick.commit.members import Members
from tallystick.errors import CorruptFileError


def fail(why: str) -> NoReturn:
    raise CorruptFileError(f"It is malformed: {why}.", "Ask for another.")


def of(**members: JsonValue) -> Members:
    return Members(members, fail)


def test_members_of_their_types() -> None:
    given = of(a="x", b=-1, c=False, d=[1, "y"], e={"f": 2}, g="00ff", h="18446744073709551616")
    given.only(*"abcdegh")
    assert given.of("a", str) == "x" and given.of("b", int) == -1
    assert given.of("c", bool) is False and given.of("d", list) == [1, "y"]
    assert given.child("e").of("f", int) == 2
    assert given.hex("g", 2) == given.hex("g", None) == given.hex_of("00ff", "one", 2) == b"\0\xff"
    assert given.decimal("h", 20) == 2**64 and of(z="0").decimal("z", 1) == 0
    assert of(d="ab" * 32).hex("d") == b"\xab" * 32 and of(q="").hex("q", None) == b""


@pytest.mark.parametrize("value", [None, True, 0, "", [], [["a", 1]]])
def test_what_is_no_object(value: JsonValue) -> None:
    with pytest.raises(CorruptFileError, match=r"should be an object .*Ask for another\."):
        Members(value, fail)
    with pytest.raises(CorruptFileError, match=r"should be an object"):
        of(inner=value).child("inner")


@pytest.mark.parametrize("names", ["a", "abc", "ac", ""])
def test_one_member_more_or_less(names: str) -> None:
    with pytest.raises(CorruptFileError, match=r"member '[abc]' is missing or unknown"):
        of(a=1, b=2).only(*names)


def test_an_unknown_name_is_cut_and_escaped() -> None:
    with pytest.raises(CorruptFileError) as caught:
        of(**{"\x1b" + "y" * 500: 1}).only()
    assert (
        caught.value.message == f"It is malformed: member '\\x1b{'y' * 79}' is missing or unknown."
    )


@pytest.mark.parametrize(
    ("take", "words"),
    [
        (lambda m: m.of("m", str), "a string"), (lambda m: m.of("m", int), "an integer"),
        (lambda m: m.of("m", bool), "true or false"), (lambda m: m.of("m", list), "a list"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, True, 1, "1", ["1"], {"1": 1}])
def test_members_of_another_type(
    take: Callable[[Members], object], words: str, value: JsonValue
) -> None:
    """`true` is no 1, a digit in quotes no number, and null is nothing but null."""
    kind = {str: "a string", int: "an integer", bool: "true or false", list: "a list"}
    if kind.get(type(value)) == words:
        assert take(of(m=value)) is value
        return
    for given in (of(m=value), of()):
        with pytest.raises(CorruptFileError, match=f"'m' is not {words}"):
            take(given)


@pytest.mark.parametrize(
    "text",
    [None, 0, [], "0", "", "0" * 63, "0" * 62, "0" * 66, "A" * 64, "g" * 64, "0" * 64 + "\n",
     "0" * 63 + "\n", "0x" + "0" * 62, " " * 64, "٠" * 64],
)  # fmt: skip
def test_what_is_no_digest(text: JsonValue) -> None:
    with pytest.raises(CorruptFileError, match=r"'m' (is not lower-case|has \d+) hex"):
        of(m=text).hex("m")


@pytest.mark.parametrize(
    "text", [None, 1, "", "-1", "+1", "01", "00", "1_0", "1.0", "1e3", " 1", "1\n", "١", "1" * 21]
)
def test_what_is_no_decimal_number(text: JsonValue) -> None:
    with pytest.raises(CorruptFileError, match=r"'m' is not (a decimal number|a string)"):
        of(m=text).decimal("m", 20)


@pytest.mark.parametrize("text", ["abc", "A0", "zz", 0, None])
def test_what_is_no_bytes_of_any_number(text: JsonValue) -> None:
    with pytest.raises(CorruptFileError, match="'m' is not lower-case hexadecimal digits"):
        of(m=text).hex("m", None)
