"""The machine code beside its PTX.

A division and a root are sequences of approximations, products and corrections there, so much is
allowed in a kernel that divides. In any other one nothing is: ptxas must not have made an fma of a
product and a sum that the PTX keeps apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from device_code.ptx import Instruction, Module
from device_code.rules import Finding

# Of every kernel: the address, name and operands of its instructions.
Code = dict[str, list[tuple[int, str, str]]]
_SECTION = re.compile(r"^\.text\.([\w$]+):")
_CODE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
_ROUNDING = ("RM", "RP", "RZ")
_ARITHMETIC = frozenset("FADD FMUL FFMA DADD DMUL DFMA FADD2 FMUL2 FFMA2".split())
_ATOMIC = ("ATOM", "RED", "UTMARED", "UBLKRED")
_FLOATS = ("F16", "F32", "F64", "BF16")
# The same operations on values that all threads of a warp share.
_UNIFORM = {f"U{base}": base for base in _ARITHMETIC}
_STEPS = frozenset("MUFU.RCP MUFU.RSQ MUFU.RCP64H MUFU.RSQ64H".split())


def parse(text: str) -> Code:
    """The instructions in the text of a disassembler.

    Raises ValueError where a section of code has none.
    """
    found: Code = {}
    name = ""
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            name = section[1]
            found[name] = []
        code = _CODE.match(line)
        if code and name:
            found[name].append((int(code[1], 16), code[2], code[3]))
    empty = [name for name, code in found.items() if not code]
    if empty:
        raise ValueError(f"no instruction was read in {', '.join(empty)}")
    return found


class _Source:
    """What the PTX of one kernel holds."""

    def __init__(self, code: list[Instruction]) -> None:
        def of(bases: tuple[str, ...], *types: str) -> bool:
            return any(
                i.base in bases and (not types or set(types) & set(i.modifiers)) for i in code
            )

        steps = ("div", "rcp", "sqrt")
        self.expands = of(steps, "f32", "f64")
        self.whole = any(i.base in ("div", "rem") and not i.floats for i in code)
        self.fma32 = of(("fma",), "f32", "f32x2") or self.expands
        self.fma64 = of(("fma",), "f64") or of(steps, "f64")
        self.clamps = of(("max", "min"), "f32", "f64")
        self.matrix = of(("mma", "wmma", "wgmma", "tcgen05"))


def _judge(opcode: str, operands: str, ptx: _Source) -> str:
    base, *modifiers = opcode.split(".")
    base = _UNIFORM.get(base, base)
    if base == "MUFU":
        if opcode not in _STEPS:
            return "an approximate function"
        return "" if ptx.expands or ptx.whole else "an approximation without a division in the PTX"
    if base in ("FFMA", "FFMA2", "FFMA32I") and not ptx.fma32:
        return "an fma that the PTX does not have"
    if base == "DFMA" and not ptx.fma64:
        return "an fma that the PTX does not have"
    if "FTZ" in modifiers and not (ptx.expands or (base == "F2I" and ptx.whole)):
        return "without subnormals"
    if base in _ARITHMETIC and set(modifiers) & set(_ROUNDING) and not ptx.expands:
        return "a directed rounding"
    # ptxas makes one of a comparison and a choice. It may, where the NaN stays one.
    if base in ("FMNMX", "FMNMX3", "DMNMX") and "NAN" not in modifiers and not ptx.clamps:
        return "it drops a NaN, and the PTX has no minimum or maximum"
    # A constant is made so: 0 * 0 + (c, c).
    if base in ("HADD2", "HMUL2", "HFMA2"):
        zeros = [part.strip() for part in operands.split(",")[1:3]]
        return "" if zeros == ["-RZ", "RZ"] else "arithmetic of 16 bits"
    if base.endswith("MMA") and not ptx.matrix:
        return "a matrix product that the PTX does not have"
    if base.startswith(_ATOMIC) and any(m.startswith(_FLOATS) for m in modifiers):
        return "an atomic operation on floats"
    return ""


def findings(file: str, module: Module, code: Code) -> Iterator[Finding]:
    """Instructions of the machine code that the PTX does not explain; kernels that it lacks."""
    for name, function in module.functions.items():
        if not function.is_kernel:
            continue  # in the sections of the kernels that call it
        if name not in code:
            yield Finding(file, name, 0, "", "the machine code lacks this kernel")
            continue
        source = _Source(module.reachable(name))
        for at, opcode, operands in code[name]:
            why = _judge(opcode, operands, source)
            if why:
                yield Finding(file, name, at, opcode, why)
