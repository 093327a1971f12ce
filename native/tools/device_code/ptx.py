"""PTX as functions and their instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BEGIN, _END = "// begin inline asm", "// end inline asm"
_HEAD = re.compile(r"\.(entry|func)\b")
_GUARD = re.compile(r"^@!?%\w+\s+")
_LABEL = re.compile(r"^[$\w]+:\s*")
_RESULT = re.compile(r"^\([^)]*\)\s*,?\s*")
_FLOAT = re.compile(r"(b?f|tf)\d+(x2)?|u?e\d+m\d+(x\d)?")


@dataclass(frozen=True)
class Instruction:
    """`opcode` such as "add.rn.f32". `written`: a kernel's author wrote it as inline assembly."""

    opcode: str
    operands: str
    line: int
    written: bool

    @property
    def base(self) -> str:
        """The part before the first period."""
        return self.opcode.split(".", 1)[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The other parts, types among them."""
        return tuple(part for part in re.split(r"[.:]+", self.opcode)[1:] if part)

    @property
    def floats(self) -> tuple[str, ...]:
        """The floating-point types that it names."""
        return tuple(part for part in self.modifiers if _FLOAT.fullmatch(part))

    @property
    def callee(self) -> str:
        """The name of the function that a call calls; the register, for a call through one."""
        rest = _RESULT.sub("", self.operands)
        return re.split(r"[,\s(]", rest, maxsplit=1)[0]


@dataclass
class Function:
    """A function with a body. `is_kernel`: the host can start it."""

    name: str
    is_kernel: bool
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class Module:
    """One PTX text: its functions by name, and the names of those that it has no body of."""

    functions: dict[str, Function]
    foreign: list[str]

    def reachable(self, name: str) -> list[Instruction]:
        """The instructions of a function and of all that it calls."""
        seen, todo = {name}, [name]
        found: list[Instruction] = []
        while todo:
            for instruction in self.functions[todo.pop()].instructions:
                found.append(instruction)
                callee = instruction.callee if instruction.base == "call" else ""
                if callee in self.functions and callee not in seen:
                    seen.add(callee)
                    todo.append(callee)
        return found


def _bare(piece: str) -> str:
    """A statement without its labels and its guard."""
    piece = piece.strip()
    while label := _LABEL.match(piece):
        piece = piece[label.end() :]
    return _GUARD.sub("", piece)


def _pieces(text: str) -> Iterator[tuple[str, int, bool]]:
    """Statements, heads of functions, and the braces around blocks, each with its line and whether
    it is inline. Braces around an operand or a table belong to their statement."""
    written, piece, start, depth = False, "", 0, 0
    for number, raw in enumerate(text.splitlines(), 1):
        if _BEGIN in raw or _END in raw:
            written = _BEGIN in raw
            continue
        for part in re.split(r"([;{}])", raw.split("//", 1)[0]):
            inside = _bare(piece) if depth else "=" in piece
            if part in ("{", "}") and not inside:
                depth += 1 if part == "{" else -1
                yield piece.strip(), start, written
                yield part, number, written
                piece = ""
            elif part == ";":
                yield piece.strip(), start, written
                piece = ""
            else:
                if not piece.strip():
                    start = number
                piece += part + " "
    if depth or piece.strip():
        raise ValueError("the text ends inside of a function or a statement")


def parse(text: str) -> Module:
    """The functions of a PTX text.

    Raises ValueError where the text is not understood: an instruction that is not read is not
    checked.
    """
    module, depth, head = Module({}, []), 0, ""
    body: Function | None = None
    for piece, line, written in _pieces(text):
        if piece in ("{", "}"):
            depth += 1 if piece == "{" else -1
            if depth == 1 and piece == "{":
                body = _open(head, line)
                module.functions[body.name] = body
            if depth == 0:
                body = None
        elif body is None:
            head = piece
            if _HEAD.search(piece) and ".extern" in piece:
                module.foreign.append(_name(piece))
        else:
            statement = _bare(piece)
            if _HEAD.match(statement) or statement.count("{") != statement.count("}"):
                raise ValueError(f"line {line}: no statement: {statement[:80]!r}")
            if statement and not statement.startswith("."):  # no declaration
                opcode, *operands = statement.split(None, 1)
                body.instructions.append(Instruction(opcode, "".join(operands), line, written))
    return module


def _name(head: str) -> str:
    rest = _HEAD.split(head, maxsplit=1)[2].strip()
    return re.split(r"[\s(,;]", _RESULT.sub("", rest), maxsplit=1)[0]


def _open(head: str, line: int) -> Function:
    found = _HEAD.search(head)
    if found is None:
        raise ValueError(f"line {line}: a block that belongs to no function: {head!r}")
    return Function(_name(head), found[1] == "entry")
