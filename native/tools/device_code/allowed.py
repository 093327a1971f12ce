"""The instructions that a kernel may use although the rules refuse them, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """`opcode` is a pattern (fnmatch); `files` are names of sources without their ending."""

    opcode: str
    files: tuple[str, ...]
    reason: str


ALLOWED: tuple[Allowed, ...] = ()


@dataclass
class Allowances:
    """The allowances, and which of them were needed."""

    rows: tuple[Allowed, ...] = ALLOWED
    taken: set[tuple[str, str]] = field(default_factory=set)

    def take(self, file: str, opcode: str) -> bool:
        """True if the file may use the instruction."""
        for row in self.rows:
            if file in row.files and fnmatchcase(opcode, row.opcode):
                self.taken.add((row.opcode, file))
                return True
        return False

    def unused(self) -> list[str]:
        """Allowances that no source needs: each hides what a later change brings."""
        given = [(row.opcode, file) for row in self.rows for file in row.files]
        return [f"{file}: `{opcode}`" for opcode, file in given if (opcode, file) not in self.taken]
