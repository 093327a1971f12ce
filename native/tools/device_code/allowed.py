"""The instructions that a kernel may use although the rules refuse them, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """`instruction` is a pattern (fnmatch) of the opcode, a space and the operands; `files` are
    names of sources without their ending, "*" for all."""

    instruction: str
    files: tuple[str, ...]
    reason: str


_CLAMP = (
    "A number is compared with a constant that is neither NaN nor zero, and the smaller or larger "
    "one is chosen; for a NaN both readings give the constant. Callers overwrite that result "
    "(d_min and d_max of simd_f64_scalar.hpp, in the elementary functions)."
)
_IDENTITY = (
    "A maximum begins with minus infinity, a minimum with infinity. NaN and equality are decided "
    "before (max1 and min1)."
)
ALLOWED: tuple[Allowed, ...] = (
    Allowed("min.f64 *, 0d[!07F8]*", ("*",), _CLAMP),
    Allowed("max.f64 *, 0d[!7F]*", ("*",), _CLAMP),
    Allowed("max.f32 *, 0fFF800000", ("attention", "loss", "reduce", "softmax"), _IDENTITY),
    Allowed("min.f32 *, 0f7F800000", ("reduce",), _IDENTITY),
    Allowed(
        "cvt.rzi.s64.f32 *",
        ("integer",),
        "The kernel compares with both ends of the range, which a NaN fails, and refuses the rest.",
    ),
)


@dataclass
class Allowances:
    """The allowances, and which of them were needed."""

    rows: tuple[Allowed, ...] = ALLOWED
    taken: set[tuple[str, str]] = field(default_factory=set)

    def take(self, file: str, instruction: str) -> bool:
        """True if the file may use the instruction."""
        for row in self.rows:
            for of in row.files:
                if of in ("*", file) and fnmatchcase(instruction, row.instruction):
                    self.taken.add((row.instruction, of))
                    return True
        return False

    def unused(self) -> list[str]:
        """Allowances that no source needs: each hides what a later change brings."""
        given = [(row.instruction, file) for row in self.rows for file in row.files]
        return [f"{file}: `{text}`" for text, file in given if (text, file) not in self.taken]
