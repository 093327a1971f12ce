"""Writes what an element becomes, from the operators' forms.

`python native/tools/render_pointwise.py` rewrites the files; `--check` says which are stale.

- native/include/tallystick/pointwise.hpp and optimizer.hpp, on binary32: expressions of the vector
  layer (simd_f32.hpp). An intermediate that is used twice, or is long, has a name. The same text
  serves every instruction set and the GPU. A condition that is open is a template's parameter.
- native/include/tallystick/pointwise_loops.hpp: the list of the pointwise loops.
- native/cuda/integer.cu: the whole loops, an expression of C++ each.
- native/cuda/steps.hpp: the parameters and factors of the optimizers' kernels, and their list.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path

from tallystick.numerics.registry import all_ops
from tallystick.numerics.values.graph import FUNCTIONS, Expr, interpreted, values_below
from tallystick.numerics.values.variants import Loop, OptimizerForm, condition_name, loops, steps

_NATIVE = Path(__file__).resolve().parents[1]
_CALLS = {name: f"v_{name}" for name in
          ("add", "sub", "mul", "div", "sqrt", "fma", "neg", "abs", "max", "min",
           "eq", "ne", "lt", "le", "gt", "ge")}  # fmt: skip
_CALLS |= {name: f"cr_{name}" for name in FUNCTIONS}
_CALLS |= {"select": "v_blend", "and": "m_and", "or": "m_or", "not": "m_not"}
_TYPES = {"f32": "f32v", "bool": "f32m"}
_PARAMETERS = {1: 2, 2: 1, 3: 1}  # that every loop of so many operands has
_FUNCTION_WORK = 4  # of a function, beside an addition's 1, when threads share a loop
_LONG = 60  # characters; a longer part of an expression gets a name

# Plain C++.
_STORED = {"f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "u8": "uint8_t",
           "bool": "uint8_t"}  # fmt: skip
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
             "and": "&", "or": "|", "xor": "^"}  # fmt: skip
_COUNTED = {"add": "+", "sub": "-", "mul": "*", "div": "/"}  # of floats
_WHOLE_CALLS = {name: f"w_{name}" for name in
                ("add", "sub", "mul", "floor_divide", "left_shift", "right_shift")}  # fmt: skip
_WHOLE_CALLS |= {"max": "ts_max", "min": "ts_min", "sqrt": "sqrt1"}
_WIDE = 92  # characters of a line

_MADE = "Made by native/tools/render_pointwise.py; do not edit."


def _file(what: str, includes: str, parts: Iterable[str]) -> str:
    listed = "".join(f'#include "{name}"\n' for name in includes.split())
    return (
        f"// {what}, from the operators' forms.\n// {_MADE}\n#pragma once\n{listed}\n"
        "namespace tallystick::TS_ISA {\n\n"
        + "\n".join(parts)
        + "\n}  // namespace tallystick::TS_ISA\n"
    )


def _listed(name: str, rows: Iterable[str]) -> str:
    """A macro that calls X with each of the rows."""
    lines = [f"#define {name}(X)", *(f"  X({row})" for row in rows)]
    width = max(map(len, lines)) + 1
    return "".join(f"{line:<{width}}\\\n" for line in lines[:-1]) + f"{lines[-1]}\n"


def _constant(number: float) -> str:
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    if bits & 0x7FFFFFFF == 0 or number != round(number, 3):
        return f"v_bits(0x{bits:08x}u)" if bits else "v_zero()"
    return f"v_set1({number!r}f)"


def _statements(roots: Sequence[Expr], known: dict[int, str]) -> tuple[list[str], list[str]]:
    """What names intermediates, and the expressions of the roots. `known`: leaves' names, by id."""
    names, below = dict(known), values_below(roots, known)
    uses = Counter(id(part) for value in below if id(value) not in known for part in value.of)
    lines: list[str] = []

    def text(value: Expr) -> str:
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


def _name(leaf: Expr) -> str:
    return f"size_of_{leaf.name}" if leaf.kind == "size" else leaf.name


def _struct(loop: Loop) -> str:
    variant = loop.variant
    arguments = [f"{_TYPES[x.dtype]} {_name(x)}" for x in (*variant.operands, *variant.parameters)]
    spare = _PARAMETERS[len(variant.operands)] - len(variant.parameters)
    arguments += ["f32v"] * spare
    names = {id(leaf): _name(leaf) for leaf in (*variant.operands, *variant.parameters)}
    lines, (made,) = _statements([variant.value], names)
    body = "".join(f"    {line}\n" for line in (*lines, f"return {made};"))
    return (
        f"struct {loop.name}_op {{  // {loop.operator}, NUMERICS {loop.clause}\n"
        f"  TS_INLINE static {_TYPES[variant.value.dtype]} f({', '.join(arguments)}) {{\n"
        f"{body}  }}\n}};\n"
    )


def _row(loop: Loop) -> str:
    variant = loop.variant
    calls = any(value.kind in FUNCTIONS for value in values_below([variant.value]))
    work = _FUNCTION_WORK if calls else 1
    return f"{loop.name}, {len(variant.operands)}, {variant.kind}, {work}"


# --- plain C++ ------------------------------------------------------------------------------------
def _plain(value: Expr, name: Callable[[Expr], str] = _name) -> str:
    """An expression of C++. Integers of 64 bits, bools and binary64 are all that is computed with;
    other dtypes are compared, converted and negated."""

    def meaning(x: Expr, parts: tuple[str, ...]) -> str:
        dtypes = {x.dtype, *(part.dtype for part in x.of)}
        if x.kind == "constant":
            return f"{x.number!r}f" if x.dtype == "f32" else f"{x.number!r}"
        if not parts:
            return name(x)
        sign = _COMPARED.get(x.kind) or (dtypes == {"f64"} and _COUNTED.get(x.kind))
        if sign:
            return f"({parts[0]} {sign} {parts[1]})"
        if x.kind in ("not", "neg"):
            return f"{'-' if x.kind == 'neg' else '!' if x.dtype == 'bool' else '~'}{parts[0]}"
        if x.kind == "convert":
            number = f"{parts[0]} != 0" if "bool" in dtypes else _bare(parts[0])
            to = "" if x.dtype == "bool" else f"static_cast<{_STORED[x.dtype]}>"
            return f"{to}({number})"
        assert dtypes <= {"i64", "f64"}
        return f"{_WHOLE_CALLS[x.kind]}({', '.join(map(_bare, parts))})"

    return _bare(interpreted([value], meaning)[0])


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(") else text


def _whole_kernel(loop: Loop) -> str:
    variant = loop.variant
    count, made = len(variant.operands), f"return {_plain(variant.value)};"
    types = [_STORED[x.dtype] for x in (variant.value, *variant.operands)]
    arguments = "".join(f", {_STORED[x.dtype]} {x.name}" for x in variant.operands)
    params, call = f"Point<{count}>", f"each<{', '.join(types)}>(p, [](int64_t{arguments}) {{"
    if variant.refused is not None:
        params = f"Refusing<{count}>"
        call = f"each<{', '.join(types)}>(p.point, [&](int64_t i{arguments}) -> {types[0]} {{"
        bad = f"if ({_plain(variant.refused)}) "
        made = f"{bad}{{\n      refuse(p.refusal, i);\n      return 0;\n    }}\n    {made}"
    fits = "\n" not in made and len(call + made) < _WIDE
    inside = f" {made} " if fits else f"\n    {made}\n  "
    return (
        f"// {loop.operator}, NUMERICS {loop.clause}\n"
        f"TS_KERNEL(integer_{loop.name}, {params}, 256) {{\n  {call}{inside}}});\n}}\n"
    )


# --- optimizers -----------------------------------------------------------------------------------
def _step_struct(step: OptimizerForm) -> str:
    names = {id(x): x.name for x in step.elements}
    names |= {id(x): f"k.k{at}" for at, x in enumerate(step.factors)}
    lines, made = _statements(step.form.outputs, names)
    arguments = ", ".join(f"f32v {x.name}" for x in step.elements)
    conditions = ", ".join(f"bool {condition_name(x)}" for x in step.conditions)
    factors = "".join(f"  f32v k{k};  // {_plain(x)}\n" for k, x in enumerate(step.factors))
    body = "".join(f"    {x}\n" for x in (*lines, f"return {{{{{', '.join(made)}}}}};"))
    return (
        f"// {step.operator}, NUMERICS {step.clause}\n"
        f"struct {step.name}_factors {{\n{factors}}};\n"
        f"template <{conditions}>\nstruct {step.name}_op {{\n"
        f"  struct Results {{ f32v of[{len(made)}]; }};\n"
        f"  TS_INLINE static Results f(const {step.name}_factors& k, {arguments}) {{\n"
        f"{body}  }}\n}};\n"
    )


def _on_device(leaf: Expr) -> str:
    if leaf.kind == "attribute":
        return f"p.{leaf.name}.value"
    return f"(p.{leaf.name} ? *p.{leaf.name} : 0)" if leaf.dtype == "f32" else f"*p.{leaf.name}"


def _step_parameters(step: OptimizerForm) -> str:
    slots = [f"const {_STORED[x.dtype]}* {x.name}" if x.kind == "operand" else f"F64 {x.name}"
             for x in step.numbers]  # fmt: skip
    factors = ",\n          ".join(_plain(x, _on_device) for x in step.factors)
    return (
        f"struct {step.name} {{\n  int64_t count, fours;\n"
        f"  const float* in[{len(step.elements)}];\n  float* out[{len(step.form.outputs)}];\n"
        + "".join(f"  {slot};\n" for slot in slots)
        + f"}};\nTS_INLINE {step.name}_factors factors_of(const {step.name}& p) {{\n"
        f"  return {{{factors}}};\n}}\n"
    )


def _step_rows(step: OptimizerForm) -> list[str]:
    ways = product((False, True), repeat=len(step.conditions))
    return [", ".join([step.kernel(x), step.name, *(str(y).lower() for y in x)]) for x in ways]


# --- files ----------------------------------------------------------------------------------------
def texts() -> dict[Path, str]:
    """The rendered files."""
    every = sorted(loops(all_ops().values()).values(), key=lambda loop: loop.name)
    whole = [loop for loop in every if loop.variant.is_whole]
    ours = [loop for loop in every if not loop.variant.is_whole]
    optimizers = steps(all_ops().values())
    rows = [row for step in optimizers for row in _step_rows(step)]
    include, cuda = _NATIVE / "include" / "tallystick", _NATIVE / "cuda"
    return {
        include / "pointwise.hpp": _file(
            "What the pointwise operators compute on a register of elements",
            "tallystick/elementary.hpp tallystick/pointwise_loops.hpp tallystick/simd_f32.hpp",
            map(_struct, ours),
        ),
        include / "pointwise_loops.hpp": "// The pointwise loops: name, number of operands, kind, "
        "work of an element.\n// Kinds: f is binary32 in and out, c binary32 to bool, m binary32 "
        f"and bool to binary32.\n// {_MADE}\n#pragma once\n\n"
        + _listed("TS_POINTWISE", map(_row, ours)),
        include / "optimizer.hpp": _file(
            "What an optimizer's step makes of a register of elements",
            "tallystick/simd_f32.hpp",
            map(_step_struct, optimizers),
        ),
        cuda / "integer.cu": _file(
            "Operators on integers and bools, and conversions",
            "point.hpp whole.hpp",
            map(_whole_kernel, whole),
        ).replace("#pragma once\n", ""),
        cuda / "steps.hpp": _file(
            "The optimizers' kernels: parameters, factors and list",
            "device.hpp tallystick/optimizer.hpp",
            [*map(_step_parameters, optimizers), _listed("TS_STEPS", rows)],
        ),
    }


def main(arguments: list[str]) -> int:
    made = texts()
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
