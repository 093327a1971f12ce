"""The canonical text of a program, its strict parser, and its digest (PROGRAM 2, 4).

The parser reads leniently. Then it writes the result again and demands the same bytes. So each
program has one text, and each part has one spelling.
"""

from __future__ import annotations

import hashlib
import re

from tallystick.errors import CorruptFileError, TallystickError, UnsupportedVersionError
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import is_contract
from tallystick.numerics.types import Attrs, AttrValue, TensorType
from tallystick.program.check import check_program
from tallystick.program.ir import Input, Node, Program, Value, input_value, op_spec

HEADER = "tallystick program 1"
HEADER_2 = "tallystick program 2"  # with micro-batches (PROGRAM 6)
DIGEST_TAG = b"tallystick/program/1\0"
DIGEST_TAG_2 = b"tallystick/program/2\0"

# NUMERICS 13.1, 14.1: the numbers of a contract follow its name.
_CONTRACT = re.compile(
    r"contract ([a-z]{1,20}/[a-z0-9.\-]{1,20}(?:;[A-Za-z0-9_.]{1,80}=[a-z0-9]{1,20}){0,100})",
    re.ASCII,
)
_TYPE = re.compile(r"([a-z0-9]+)\[([0-9,]*)\]", re.ASCII)
_NODE = re.compile(
    r"%(?P<index>[0-9]+) = (?P<op>[A-Za-z0-9_.]+)\((?P<args>[^(){}=]*)\)"
    r"(?:\{(?P<attrs>[^{}]*)\})? : (?P<types>[a-z0-9\[\], ]+)",
    re.ASCII,
)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_VALUE = re.compile(r"%([0-9]{1,9})(?:\.([0-9]{1,9}))?", re.ASCII)
_ATTR = re.compile(r"([A-Za-z0-9_]+)=(\[[^\]]*\]|\"[^\"]*\"|[^,\[\]\" ]+)(?:, |$)", re.ASCII)


def _format_attr(value: AttrValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ",".join(_format_attr(v) for v in value) + "]"
    return str(value)


def attribute_text(attrs: Attrs) -> str:
    """The text between the braces of a node line (PROGRAM 2.6); node digests cover it."""
    return ", ".join(f"{name}={_format_attr(attrs[name])}" for name in sorted(attrs))


def _format_value(program: Program, value: Value | None) -> str:
    if value is None:
        return "none"
    if value.is_input:
        return "@" + program.inputs[value.out].name
    if len(program.nodes[value.node].out_types) == 1:
        return f"%{value.node}"
    return f"%{value.node}.{value.out}"


def _format_node(program: Program, index: int, node: Node) -> str:
    args = ", ".join(_format_value(program, v) for v in node.inputs)
    attrs = attribute_text(node.attrs)
    types = ", ".join(map(str, node.out_types)) or "none"
    return f"%{index} = {node.op}({args}){'{' + attrs + '}' if attrs else ''} : {types}"


def to_text(program: Program) -> str:
    """The canonical text (PROGRAM 2): ASCII, one line per input, node and output."""
    lines = [HEADER_2 if program.section else HEADER, f"contract {program.contract}"]
    lines += [f"input {spec.kind} {spec.name} {spec.type}" for spec in program.inputs]
    if program.section:
        lines += [f"micro {program.section}"]
        lines += [f"carry {name} {_format_value(program, v)}" for name, v in program.carried]
    lines += [_format_node(program, i, node) for i, node in enumerate(program.nodes)]
    lines += [f"output {name} {_format_value(program, v)}" for name, v in program.outputs]
    return "\n".join(lines) + "\nend\n"


def text_digest(text: bytes) -> bytes:
    """32 bytes: SHA-256 of the domain tag and the canonical text (PROGRAM 4.1)."""
    is_second = text.startswith(HEADER_2.encode() + b"\n")
    return hashlib.sha256((DIGEST_TAG_2 if is_second else DIGEST_TAG) + text).digest()


def program_digest(program: Program) -> bytes:
    """The digest that names `program` (PROGRAM 4.1)."""
    return text_digest(to_text(program).encode("ascii"))


class _MalformedError(Exception):
    """A line that does not follow the grammar; carries the fault."""


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise _MalformedError(f"{text[:40]!r} is not an integer")
    return int(text)


def _parse_type(text: str) -> TensorType:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise _MalformedError(f"{text[:80]!r} is not a type")
    dims = match[2].split(",") if match[2] else []
    if len(dims) > LIMITS.tensor_rank:
        raise _MalformedError(f"rank {len(dims)} exceeds {LIMITS.tensor_rank}")
    return TensorType(match[1], tuple(_integer(d) for d in dims))


def _parse_scalar(kind: str, text: str) -> AttrValue:
    if kind == "int":
        return _integer(text)
    if kind == "float":
        try:
            return float.fromhex(text)
        except (ValueError, OverflowError):
            raise _MalformedError(f"{text[:40]!r} is not a hexadecimal float") from None
    if kind == "bool":
        if text not in ("true", "false"):
            raise _MalformedError(f"{text[:40]!r} is not a boolean")
        return text == "true"
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        raise _MalformedError(f"{text[:40]!r} is not a quoted string")
    return text[1:-1]


def _parse_attr(kind: str, text: str) -> AttrValue:
    if kind not in ("ints", "bools"):
        return _parse_scalar(kind, text)
    if not (text.startswith("[") and text.endswith("]")):
        raise _MalformedError(f"{text[:40]!r} is not a list")
    items = text[1:-1].split(",") if len(text) > 2 else []
    if kind == "ints":
        return tuple(_integer(item) for item in items)
    return tuple(bool(_parse_scalar("bool", item)) for item in items)


def _parse_attrs(op: str, text: str) -> dict[str, AttrValue]:
    spec = op_spec(op)
    attrs: dict[str, AttrValue] = {}
    end = 0
    while end < len(text):
        match = _ATTR.match(text, end)
        if match is None or match[1] in attrs:
            raise _MalformedError("attributes are not `name=value, name=value`")
        if match[1] not in spec.attrs:
            raise _MalformedError(f"{op} has no attribute {match[1][:40]!r}")
        attrs[match[1]] = _parse_attr(spec.attrs[match[1]].kind, match[2])
        end = match.end()
    return attrs


class _Parser:
    """Line by line; the order input, micro, carry, node, output is checked by the final
    comparison. Equal layers repeat types and attributes: one spelling is read once, and nodes share
    what it says."""

    def __init__(self, has_section: bool) -> None:
        self.has_section = has_section
        self.section = 0
        self.carries: list[tuple[int, str, str]] = []  # with the number of the line
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.outputs: list[tuple[str, Value]] = []
        self.by_name: dict[str, int] = {}
        self._types: dict[str, tuple[TensorType, ...]] = {}
        self._attrs: dict[tuple[str, str], Attrs] = {}

    def types(self, text: str) -> tuple[TensorType, ...]:
        """The types after the colon of a node line."""
        if text not in self._types:
            parts = [] if text == "none" else text.split(", ")
            self._types[text] = tuple(map(_parse_type, parts))
        return self._types[text]

    def attrs(self, op: str, text: str) -> Attrs:
        """What stands between the braces of a node line."""
        if (op, text) not in self._attrs:
            self._attrs[op, text] = _parse_attrs(op, text)
        return self._attrs[op, text]

    def value(self, text: str) -> Value | None:
        if text == "none":
            return None
        if text.startswith("@"):
            if text[1:] not in self.by_name:
                raise _MalformedError(f"there is no input {text[1:80]!r}")
            return input_value(self.by_name[text[1:]])
        match = _VALUE.fullmatch(text)
        if match is None or int(match[1]) >= len(self.nodes):
            raise _MalformedError(f"{text[:40]!r} is not an earlier value")
        value = Value(int(match[1]), int(match[2] or 0))
        if value.out >= len(self.nodes[value.node].out_types):
            raise _MalformedError(f"{text[:40]!r} is not an output of its node")
        return value

    def input(self, line: str) -> None:
        parts = line.split(" ")
        if len(parts) != 4:
            raise _MalformedError("an input line is `input KIND NAME TYPE`")
        if parts[2] in self.by_name:
            raise _MalformedError(f"input {parts[2][:80]!r} appears twice")
        if len(self.inputs) >= LIMITS.slots:
            raise _MalformedError(f"more than {LIMITS.slots} inputs")
        self.by_name[parts[2]] = len(self.inputs)
        self.inputs.append(Input(parts[1], parts[2], _parse_type(parts[3])))

    def micro(self, line: str) -> None:
        if not self.has_section or self.section:
            raise _MalformedError("a line `micro` stands once in a program 2, and in no other")
        self.section = _integer(line[6:])
        if not 1 <= self.section <= LIMITS.nodes:
            raise _MalformedError("a section has at least one node")

    def carry(self, line: str, number: int) -> None:
        parts = line.split(" ")
        if len(parts) != 3:
            raise _MalformedError("a carry line is `carry NAME VALUE`")
        if len(self.carries) >= LIMITS.slots:
            raise _MalformedError(f"more than {LIMITS.slots} carried slots")
        self.carries.append((number, parts[1], parts[2]))

    def carried(self) -> tuple[tuple[str, Value], ...]:
        """The carried slots, whose values are nodes that come after their lines."""
        found = []
        for number, name, text in self.carries:
            try:
                value = self.value(text)
            except _MalformedError as error:
                raise _corrupt(number, str(error)) from None
            if value is None or value.is_input:
                raise _corrupt(number, "a carried value is an output of a node")
            found.append((name, value))
        return tuple(found)

    def node(self, line: str) -> None:
        if len(self.nodes) >= LIMITS.nodes:
            raise _MalformedError(f"more than {LIMITS.nodes} nodes")
        match = _NODE.fullmatch(line)
        if match is None:
            raise _MalformedError("a node line is `%N = operator(values){attributes} : types`")
        if len(match["attrs"] or "") > LIMITS.attribute_bytes:
            raise _MalformedError(f"attributes exceed {LIMITS.attribute_bytes} bytes")
        args = match["args"].split(", ") if match["args"] else []
        types = self.types(match["types"])
        if len(types) > LIMITS.node_outputs:
            raise _MalformedError(f"more than {LIMITS.node_outputs} outputs")
        self.nodes.append(
            Node(
                match["op"],
                tuple(self.value(a) for a in args),
                self.attrs(match["op"], match["attrs"] or ""),
                types,
            )
        )

    def output(self, line: str) -> None:
        parts = line.split(" ")
        if len(parts) != 3:
            raise _MalformedError("an output line is `output NAME VALUE`")
        value = self.value(parts[2])
        if value is None:
            raise _MalformedError("an output cannot be none")
        self.outputs.append((parts[1], value))


_AUTHOR = "The file does not follow spec/PROGRAM.md; ask its author for the original."


def _corrupt(number: int, what: str) -> CorruptFileError:
    return CorruptFileError(f"Program text, line {number}: {what}.", _AUTHOR)


def parse_text(data: bytes) -> Program:
    """The program whose canonical text `data` is (PROGRAM 2, 3).

    Raises CorruptFileError for anything that is not exactly one canonical text, or exceeds
    `limits`; UnsupportedVersionError for a format or contract version this build lacks.
    """
    if len(data) > LIMITS.program_bytes:
        raise CorruptFileError(
            f"The program text has {len(data)} bytes, more than {LIMITS.program_bytes}.", _AUTHOR
        )
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise CorruptFileError("The program text is not ASCII.", _AUTHOR) from None
    if lines[0] not in (HEADER, HEADER_2):
        if re.fullmatch(r"tallystick program [0-9]{1,9}", lines[0]):
            raise UnsupportedVersionError(
                f"Program format {lines[0][19:]!r} is not known to this build.",
                "Upgrade Tallystick.",
            )
        raise _corrupt(1, "not a tallystick program")
    if len(lines) < 4 or lines[-1] != "" or lines[-2] != "end":
        raise _corrupt(len(lines), "the text does not end with `end`")
    named = _CONTRACT.fullmatch(lines[1])
    if named is None:
        raise _corrupt(2, "not `contract NAME/VERSION`")
    contract = named[1]
    if not is_contract(contract):
        raise UnsupportedVersionError(
            f"Contract {contract!r} is not known to this build.", "Upgrade Tallystick."
        )
    parser = _Parser(lines[0] == HEADER_2)
    handlers = {"input": parser.input, "output": parser.output, "micro": parser.micro}
    for number, line in enumerate(lines[2:-2], start=3):
        try:
            word = line.split(" ", 1)[0]
            if word == "carry" and parser.section:
                parser.carry(line, number)
            else:
                handlers.get(word, parser.node)(line)
        except _MalformedError as error:
            raise _corrupt(number, str(error)) from None
        except TallystickError as error:
            raise _corrupt(number, error.message.rstrip(".")) from error
    if parser.has_section and not parser.section:
        raise _corrupt(len(lines), "a program 2 has a line `micro N`")
    program = Program(
        contract,
        tuple(parser.inputs),
        tuple(parser.nodes),
        tuple(parser.outputs),
        parser.section,
        parser.carried(),
    )
    try:
        check_program(program)
    except TallystickError as error:
        raise CorruptFileError(f"The program is not valid. {error.message}", _AUTHOR) from error
    if to_text(program).encode("ascii") != data:
        raise CorruptFileError(
            "The program text is not in canonical form: it reads as a program, but spec/PROGRAM.md "
            "writes it otherwise.",
            "Ask its author for the original.",
        )
    return program
