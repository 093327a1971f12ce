"""PROGRAM 2 to 4: one text per program, and nothing else is read as one."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import LINEAR_TEXT, linear_step

from tallystick.errors import CorruptFileError, CounterpartyError, UnsupportedVersionError
from tallystick.limits import LIMITS
from tallystick.program.text import attribute_text, parse_text, program_digest, to_text


def test_text_of_a_known_program() -> None:
    assert to_text(linear_step()) == LINEAR_TEXT


def test_reading_gives_the_program_back() -> None:
    assert parse_text(LINEAR_TEXT.encode()) == linear_step()


def test_digest_is_the_tagged_hash_of_the_text() -> None:
    """PROGRAM 4.1."""
    expected = hashlib.sha256(b"tallystick/program/1\0" + LINEAR_TEXT.encode()).digest()
    assert program_digest(linear_step()) == expected


def test_attribute_bytes_are_what_stands_between_the_braces() -> None:
    """PROGRAM 2.6."""
    node = linear_step().nodes[0]
    assert attribute_text(node.attrs) == "draw=0, p=0x1.0000000000000p-2, shape=[5,4]"
    assert attribute_text({}) == ""


REPLACEMENTS = {
    "trailing space": ("contract ordered/1-draft.1\n", "contract ordered/1-draft.1 \n"),
    "carriage returns": ("\n", "\r\n"),
    "text after the end": ("end\n", "end\nend\n"),
    "no end": ("end\n", ""),
    "leading zero": ("draw=0", "draw=00"),
    "plus sign": ("draw=0", "draw=+0"),
    "underscore digits": ("shape=[5,4]", "shape=[5,0_4]"),
    "minus zero integer": ("draw=0", "draw=-0"),
    "short float": ("p=0x1.0000000000000p-2", "p=0x1p-2"),
    "decimal float": ("p=0x1.0000000000000p-2", "p=0.25"),
    "upper case float": ("0x1.5555555555555p+0", "0X1.5555555555555P+0"),
    "missing attribute": ("draw=0, ", ""),
    "repeated attribute": ("draw=0, ", "draw=0, draw=0, "),
    "attributes out of order": ("draw=0, p=0x1.0000000000000p-2", "p=0x1.0000000000000p-2, draw=0"),
    "unknown attribute": ("draw=0", "drawn=0"),
    "wrong attribute kind": ("nesterov=false", "nesterov=0"),
    "space inside a list": ("shape=[5,4]", "shape=[5, 4]"),
    "empty braces": ("aten.mm(%1, @param.w)", "aten.mm(%1, @param.w){}"),
    "unknown operator": ("aten.sum(", "aten.some("),
    "wrong type": ("aten.sum(%2) : f32[]", "aten.sum(%2) : f32[1]"),
    "wrong dtype": ("aten.sum(%2) : f32[]", "aten.sum(%2) : f64[]"),
    "unknown dtype": ("input state param.w f32", "input state param.w f8"),
    "operand of the wrong shape": ("aten.mm(%1, @param.w)", "aten.mm(@param.w, %1)"),
    "forward reference": ("aten.mm(%1, @param.w)", "aten.mm(%6, @param.w)"),
    "self reference": ("aten.mm(%1, @param.w)", "aten.mm(%2, @param.w)"),
    "needless output number": ("aten.mm(%1, @param.w)", "aten.mm(%1.0, @param.w)"),
    "output that is not there": ("aten.mm(%1, @param.w)", "aten.mm(%1.1, @param.w)"),
    "unknown input": ("aten.mm(%1, @param.w)", "aten.mm(%1, @param.v)"),
    "renumbered node": ("%3 = aten.sum", "%4 = aten.sum"),
    "absent required operand": ("aten.mm(%1, @param.w)", "aten.mm(%1, none)"),
    "inputs out of order": ("input state param.w f32[4,3]\n", ""),
    "output twice": ("output loss %3\n", "output loss %3\noutput loss %3\n"),
    "output none": ("output loss %3\n", "output loss none\n"),
    "slot without next state": ("output buffer.frozen @buffer.frozen\n", ""),
    "commit leaves a slot out": ("commit(@buffer.frozen, %7)", "commit(%7)"),
    "commit in another order": ("commit(@buffer.frozen, %7)", "commit(%7, @buffer.frozen)"),
    "commit of the old state": ("commit(@buffer.frozen, %7)", "commit(@buffer.frozen, @param.w)"),
    "no commit": ("%8 = tallystick.commit(@buffer.frozen, %7) : none\n", ""),
    "scalar that is not f64": ("scalar.lr f64[]", "scalar.lr f32[]"),
    "key of another type": ("rng i64[2]", "rng i64[3]"),
    "state with a batch name": ("input batch batch.x", "input state batch.x"),
    "unknown kind": ("input batch", "input other"),
    "negative size": ("f32[2]", "f32[-2]"),
    "size beyond 64 bits": ("f32[2]", "f32[99999999999999999999999]"),
    "rank beyond the limit": ("f32[2]", "f32[" + ",".join(["1"] * 40) + "]"),
    "tensor beyond the limit": ("f32[2]", "f32[4611686018427387904,4]"),
    "size beyond the limit, no elements": ("f32[2]", "f32[0,1099511627777]"),  # COMMITMENTS 11.1
    "not ASCII": ("loss", "l\u00f6ss"),
    "name with a bracket": ("output loss", "output lo(ss"),
}


@pytest.mark.parametrize("what", sorted(REPLACEMENTS))
def test_anything_else_is_refused(what: str) -> None:
    """PROGRAM 3.1 to 3.4."""
    old, new = REPLACEMENTS[what]
    assert old in LINEAR_TEXT
    with pytest.raises(CorruptFileError):
        parse_text(LINEAR_TEXT.replace(old, new).encode("utf-8"))


@pytest.mark.parametrize(
    ("old", "new"), [("program 1", "program 3"), ("ordered/1-draft.1", "ordered/9")]
)
def test_versions_of_the_future_are_named(old: str, new: str) -> None:
    with pytest.raises(UnsupportedVersionError):
        parse_text(LINEAR_TEXT.replace(old, new).encode())


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"end\n", b"{}", b"\x80\x04", b"tallystick program 1"]
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        parse_text(data)


def test_size_is_checked_before_reading() -> None:
    with pytest.raises(CorruptFileError, match="bytes, more than"):
        parse_text(b"x" * (LIMITS.program_bytes + 1))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_is_refused_or_is_the_same_text(data: st.DataObject) -> None:
    """Whatever is read is written back byte for byte, so no damage goes unnoticed."""
    text = bytearray(LINEAR_TEXT.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        kind = data.draw(st.sampled_from(["change", "delete", "insert", "move"]))
        if kind == "change":
            text[at] = data.draw(st.integers(0, 255))
        elif kind == "delete":
            del text[at : at + data.draw(st.integers(1, 30))]
        elif kind == "insert":
            text[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        else:
            start = data.draw(st.integers(0, len(text) - 1))
            text[at:at] = text[start : start + data.draw(st.integers(1, 60))]
        if not text:
            return
    try:
        program = parse_text(bytes(text))
    except CounterpartyError:
        return
    except UnsupportedVersionError:
        return
    assert to_text(program).encode() == bytes(text)


def test_reading_and_executing_need_no_torch() -> None:
    code = (
        "import sys\n"
        "from tallystick.program.text import parse_text\n"
        "import tallystick.program.executor\n"
        "parse_text(sys.stdin.buffer.read())\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=LINEAR_TEXT.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
