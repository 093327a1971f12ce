"""What the PTX of a kernel may hold (NUMERICS 1.2 to 1.5, 1.7, 1.11).

Instructions that name a floating-point type are few and listed here; every other one is a finding.
Those on integers are free, but for calls of functions that the text does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from device_code.allowed import Allowances
from device_code.ptx import Instruction, Module

# No rounding. A NaN may lose its payload: `put1` stores the canonical one.
EXACT = frozenset("ld ldu st mov neg abs setp set selp slct copysign testp".split())
ROUNDED = frozenset("add sub mul fma div rcp sqrt".split())
# Their memory would depend on an order that is not known (DESIGN: no atomics in floats).
_UNORDERED = ("red", "atom", "multimem")
_INTEGERS = frozenset(f"{sign}{width}" for sign in "us" for width in (8, 16, 32, 64))
_TO_WHOLE = ("rni", "rzi", "rmi", "rpi")


@dataclass(frozen=True)
class Finding:
    """An instruction that a kernel may not use."""

    file: str
    function: str
    line: int
    opcode: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}, line {self.line}: `{self.opcode}`: {self.why}"


def _rounded(i: Instruction) -> str:
    if any(t not in ("f32", "f64", "f32x2") for t in i.floats):
        return "no operator computes in this type"
    extra = [m for m in i.modifiers if m not in (*i.floats, "rn")]
    if extra:
        return f"'.{extra[0]}' changes what is rounded, or how"
    if "rn" not in i.modifiers:
        return "without '.rn' the assembler may fuse it with another"
    if i.base == "fma" and not i.written:
        return "the compiler made it of a product and a sum: no kernel calls fma1 here"
    return ""


def _converted(i: Instruction) -> str:
    extra = [m for m in i.modifiers if m in ("sat", "ftz", "relu", "satfinite")]
    if extra:
        return f"'.{extra[0]}' changes values"
    types = [m for m in i.modifiers if m in _INTEGERS or m in i.floats]
    rounding = [m for m in i.modifiers if m not in types]
    if len(types) != 2 or any(t not in ("f32", "f64") for t in i.floats):
        return "no operator computes in this type"
    target, source = types
    if target in _INTEGERS:
        return "its range and its NaN must be decided before"  # where a source may not: allowed.py
    if source in _INTEGERS or (target, source) == ("f32", "f64"):
        return "" if rounding == ["rn"] else "it must round to nearest"
    if target == source:  # floor, round and the like give a value of the type
        return "" if len(rounding) == 1 and rounding[0] in _TO_WHOLE else "an unknown conversion"
    return "" if not rounding else "widening rounds nothing"


def _judge(i: Instruction) -> str:
    """Why the instruction is refused; "" where it is not. Allowances come later."""
    if "approx" in i.modifiers or "ftz" in i.modifiers or "full" in i.modifiers:
        return "approximate, or without subnormals"
    if not i.floats:
        return ""
    if i.base in _UNORDERED:
        return "an atomic operation adds floats in no fixed order"
    if i.base in ROUNDED:
        return _rounded(i)
    if i.base == "cvt":
        return _converted(i)
    if i.base in ("max", "min"):
        return "" if "NaN" in i.modifiers else "it drops a NaN"
    if i.base in EXACT:
        return ""
    return "not among the instructions that a kernel may use on floats"


def findings(file: str, module: Module, allowances: Allowances) -> Iterator[Finding]:
    """Every instruction of `file` (a source's name without its ending) that is refused."""
    for name in module.foreign:
        yield Finding(file, name, 0, "call", "a function of a library, not of these sources")
    for function in module.functions.values():
        for i in function.instructions:
            why = _judge(i)
            if i.base == "call" and i.callee not in module.functions:
                why = f"{i.callee} is no function of these sources"
            if why and not allowances.take(file, f"{i.opcode} {i.operands}"):
                yield Finding(file, function.name, i.line, i.opcode, why)


def uses(instructions: list[Instruction], wanted: Callable[[Instruction], bool]) -> int:
    """How many of the instructions are wanted."""
    return sum(1 for i in instructions if wanted(i))
