"""Writes the loops' bodies, from the operators' forms.

`python native/tools/render_pointwise.py` rewrites the files; `--check` says which are stale.

- native/include/tallystick/pointwise.hpp, on binary32: an expression of the vector layer
  (simd_f32.hpp). An intermediate that is used twice, or is long, has a name. The same text serves
  every instruction set and the GPU.
- native/include/tallystick/pointwise_loops.hpp: the list of these loops.
- native/cuda/integer.cu: the whole loops, an expression of C++ each.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tallystick.numerics.registry import all_ops
from tallystick.numerics.values.graph import Value, interpreted, values_below
from tallystick.numerics.values.primitives import FUNCTIONS
from tallystick.numerics.values.steps import condition_name
from tallystick.numerics.values.variants import Loop, loops

NATIVE = Path(__file__).resolve().parents[1]
FILE = NATIVE / "include" / "tallystick" / "pointwise.hpp"
_CALLS = {name: f"v_{name}" for name in
          ("add", "sub", "mul", "div", "sqrt", "fma", "neg", "abs", "max", "min",
           "eq", "ne", "lt", "le", "gt", "ge")}  # fmt: skip
_CALLS |= {name: f"cr_{name}" for name in FUNCTIONS}
_CALLS |= {"select": "v_blend", "and": "m_and", "or": "m_or", "not": "m_not"}
_TYPES = {"f32": "f32v", "bool": "f32m"}
_PARAMETERS = {1: 2, 2: 1, 3: 1}  # that every loop of so many operands has
_FUNCTION_WORK = 4  # of a function, beside an addition's 1, when threads share a loop
_LONG = 60  # characters; a longer part of an expression gets a name

_HEAD = """\
// What the pointwise operators compute on a register of elements, from their forms.
// Made by native/tools/render_pointwise.py; do not edit.
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/pointwise_loops.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick {
namespace TS_ISA {

"""
TAIL = """\
}  // namespace TS_ISA
}  // namespace tallystick
"""
_LIST_FILE = FILE.with_name("pointwise_loops.hpp")

# Of whole loops.
_WHOLE_FILE = NATIVE / "cuda" / "integer.cu"
_WHOLE_HEAD = """\
// Operators on integers and bools, and conversions, from their forms.
// Made by native/tools/render_pointwise.py; do not edit.
#include "point.hpp"
#include "whole.hpp"

namespace tallystick {
namespace TS_ISA {

"""
_STORED = {"f32": "float", "i64": "int64_t", "i32": "int32_t", "u8": "uint8_t", "bool": "uint8_t"}
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "and": "&", "or": "|", "xor": "^"}  # fmt: skip
_WHOLE_CALLS = {name: f"w_{name}" for name in
                ("add", "sub", "mul", "floor_divide", "left_shift", "right_shift")}  # fmt: skip
_WIDE = 92
_WHOLE_CALLS |= {"max": "ts_max", "min": "ts_min"}


def _constant(number: float) -> str:
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    if bits & 0x7FFFFFFF == 0 or number != round(number, 3):
        return f"v_bits(0x{bits:08x}u)" if bits else "v_zero()"
    return f"v_set1({number!r}f)"


def statements(roots: Sequence[Value], known: dict[int, str]) -> tuple[list[str], list[str]]:
    """What names intermediates, and the expressions of the roots. `known`: leaves' names, by id."""
    names, below = dict(known), values_below(roots, known)
    uses = Counter(id(part) for value in below if id(value) not in known for part in value.of)
    lines: list[str] = []

    def text(value: Value) -> str:
        if id(value) in names:
            return names[id(value)]
        if value.kind == "constant":
            assert isinstance(value.number, float)
            return _constant(value.number)
        parts = list(map(text, value.of))
        if value.condition is not None:
            return f"{condition_name(value.condition)} ? {parts[0]} : {parts[1]}"
        return f"{_CALLS[value.kind]}({', '.join(parts)})"

    for value in below:
        if id(value) in names or not value.of or not uses[id(value)]:
            continue
        times = uses[id(value)] + (value in roots)
        if times > 1 or value.condition is not None or len(text(value)) > _LONG:
            made, names[id(value)] = text(value), f"v{len(lines)}"
            lines.append(f"const {_TYPES[value.dtype]} {names[id(value)]} = {made};")
    return lines, [text(root) for root in roots]


def body(loop: Loop) -> str:
    """The statements of a loop's function."""
    variant = loop.variant
    names = {id(leaf): _name(leaf) for leaf in (*variant.operands, *variant.parameters)}
    lines, (made,) = statements([variant.value], names)
    return "\n".join(f"    {line}" for line in (*lines, f"return {made};"))


def _name(leaf: Value) -> str:
    return f"size_of_{leaf.name}" if leaf.kind == "size" else leaf.name


def _struct(loop: Loop) -> str:
    variant = loop.variant
    arguments = [f"{_TYPES[x.dtype]} {_name(x)}" for x in (*variant.operands, *variant.parameters)]
    spare = _PARAMETERS[len(variant.operands)] - len(variant.parameters)
    arguments += ["f32v"] * spare
    return (
        f"struct {loop.name}_op {{  // {loop.operator}, NUMERICS {loop.clause}\n"
        f"  TS_INLINE static {_TYPES[variant.value.dtype]} f({', '.join(arguments)}) {{\n"
        f"{body(loop)}\n  }}\n}};\n"
    )


def _work(loop: Loop) -> int:
    functions = sum(value.kind in FUNCTIONS for value in values_below([loop.variant.value]))
    return _FUNCTION_WORK if functions else 1


def _sorted(whole: bool) -> list[Loop]:
    found = loops(all_ops().values()).values()
    return sorted((x for x in found if x.variant.is_whole == whole), key=lambda loop: loop.name)


def text() -> str:
    """The header of the bodies."""
    return _HEAD + "\n".join(map(_struct, _sorted(False))) + "\n" + TAIL


def list_text() -> str:
    """The header that lists the loops."""
    rows = [
        f"  X({loop.name}, {len(loop.variant.operands)}, {loop.variant.kind}, {_work(loop)})"
        for loop in _sorted(False)
    ]
    width = max(map(len, rows)) + 1
    return (
        "// The pointwise loops: name, number of operands, kind, work of an element.\n"
        "// Kinds: f is binary32 in and out, c binary32 to bool, m binary32 and bool to binary32.\n"
        "// Made by native/tools/render_pointwise.py; do not edit.\n#pragma once\n\n"
        + f"{'#define TS_POINTWISE(X)':<{width}}\\\n"
        + "\n".join(f"{row:<{width}}\\" for row in rows[:-1])
        + f"\n{rows[-1]}\n"
    )


# --- whole loops ----------------------------------------------------------------------------------
def _whole_meaning(value: Value, parts: tuple[str, ...]) -> str:
    """An expression of C++, in parentheses where it needs them. Integers of 64 bits, and bools, are
    all that is computed with; other dtypes are compared and converted."""
    kind, dtypes = value.kind, {value.dtype, *(part.dtype for part in value.of)}
    if kind in ("operand", "attribute"):
        return value.name
    if kind == "constant":
        return f"{value.number!r}f" if value.dtype == "f32" else f"{value.number!r}"
    if kind in _SIGNS:
        return f"({parts[0]} {_SIGNS[kind]} {parts[1]})"
    if kind == "not":
        return f"{'!' if value.dtype == 'bool' else '~'}{parts[0]}"
    if kind == "convert":
        number = f"{parts[0]} != 0" if "bool" in dtypes else parts[0]
        to = "" if value.dtype == "bool" else f"static_cast<{_STORED[value.dtype]}>"
        return f"{to}({number})"
    assert dtypes == {"i64"}
    return f"{_WHOLE_CALLS[kind]}({', '.join(parts)})"


def _whole_text(value: Value) -> str:
    made = interpreted([value], _whole_meaning)[0]
    return made[1:-1] if made.startswith("(") else made


def _whole_kernel(loop: Loop) -> str:
    variant = loop.variant
    count, made = len(variant.operands), f"return {_whole_text(variant.value)};"
    types = [_STORED[x.dtype] for x in (variant.value, *variant.operands)]
    arguments = "".join(f", {_STORED[x.dtype]} {x.name}" for x in variant.operands)
    params, call = f"Point<{count}>", f"each<{', '.join(types)}>(p, [](int64_t{arguments}) {{"
    if variant.refused is not None:
        params = f"Refusing<{count}>"
        call = f"each<{', '.join(types)}>(p.point, [&](int64_t i{arguments}) -> {types[0]} {{"
        bad = f"if ({_whole_text(variant.refused)}) "
        made = f"{bad}{{\n      refuse(p.refusal, i);\n      return 0;\n    }}\n    {made}"
    fits = "\n" not in made and len(call + made) < _WIDE
    inside = f" {made} " if fits else f"\n    {made}\n  "
    return (
        f"// {loop.operator}, NUMERICS {loop.clause}\n"
        f"TS_KERNEL(integer_{loop.name}, {params}, 256) {{\n  {call}{inside}}});\n}}\n"
    )


def whole_text() -> str:
    """The whole loops' kernels."""
    return _WHOLE_HEAD + "\n".join(map(_whole_kernel, _sorted(True))) + "\n" + TAIL


def main(arguments: list[str]) -> int:
    import render_optimizer  # which imports this module

    made = {FILE: text(), _LIST_FILE: list_text(), _WHOLE_FILE: whole_text()}
    made |= render_optimizer.texts()
    stale = [path.name for path, wanted in made.items()
             if not path.exists() or path.read_text() != wanted]  # fmt: skip
    if "--check" in arguments:
        print(f"stale: {', '.join(stale)}" if stale else "as rendered")
        return bool(stale)
    for path, wanted in made.items():
        path.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
