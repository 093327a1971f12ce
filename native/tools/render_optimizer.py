"""The text of the optimizers' steps, from their forms (numerics.values.steps).

- native/include/tallystick/optimizer.hpp: what an element becomes, expressions of the vector layer
  for every instruction set and the GPU. A condition is a template's parameter.
- native/cuda/steps.hpp: the GPU's kernels' parameters and factors, and the list of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

from render_pointwise import NATIVE, TAIL, statements

from tallystick.numerics.registry import all_ops
from tallystick.numerics.values.graph import Value, interpreted
from tallystick.numerics.values.steps import Step, condition_name, step_of

_MADE = "// Made by native/tools/render_pointwise.py; do not edit.\n#pragma once\n"
_SPACE = "namespace tallystick {\nnamespace TS_ISA {\n\n"
_HEAD = (
    "// What an optimizer's step makes of a register of each operand, from the operators' forms.\n"
    f'{_MADE}#include "tallystick/simd_f32.hpp"\n\n{_SPACE}'
)
_CUDA_HEAD = (
    "// The optimizers' kernels: parameters, factors and list, from the operators' forms.\n"
    f'{_MADE}#include "device.hpp"\n#include "tallystick/optimizer.hpp"\n\n{_SPACE}'
    "TS_INLINE float rn32(double x) { return static_cast<float>(x); }\n\n"
)
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_TYPES = {"f32": "float", "f64": "double"}


def _steps() -> list[tuple[str, Step]]:
    return [
        (f"// {spec.name}, NUMERICS {spec.clause}\n", step_of(spec, form))
        for spec in sorted(all_ops().values(), key=lambda spec: spec.name)
        for form in spec.forms
        if spec.op_class == "optimizer" and "f32" in form.dtypes
    ]


def _number(value: Value, name: Callable[[Value], str]) -> str:
    """A factor as an expression of C++, each operation rounded where it stands."""

    def meaning(x: Value, parts: tuple[str, ...]) -> str:
        if not parts:
            return repr(x.number) if x.kind == "constant" else name(x)
        if x.kind in _SIGNS:
            return f"({parts[0]} {_SIGNS[x.kind]} {parts[1]})"
        if x.kind == "neg":
            return f"-{parts[0]}"
        inside = parts[0][1:-1] if x.of[0].kind in _SIGNS else parts[0]
        return f"{'sqrt1' if x.kind == 'sqrt' else 'rn32'}({inside})"

    return interpreted([value], meaning)[0]


def _on_device(leaf: Value) -> str:
    if leaf.kind == "attribute":
        return f"p.{leaf.name}.value"
    return f"p.{leaf.name} ? *p.{leaf.name} : 0.0f" if leaf.dtype == "f32" else f"*p.{leaf.name}"


def _body(comment: str, step: Step) -> str:
    names = {id(x): x.name for x in step.elements}
    names |= {id(x): f"k.k{at}" for at, x in enumerate(step.factors)}
    lines, made = statements(step.outputs, names)
    arguments = ", ".join(f"f32v {x.name}" for x in step.elements)
    conditions = ", ".join(f"bool {condition_name(x)}" for x in step.conditions)
    factors = [f"  f32v k{k};  // {_number(x, lambda leaf: leaf.name)}\n"
               for k, x in enumerate(step.factors)]  # fmt: skip
    return (
        f"{comment}struct {step.name}_factors {{\n{''.join(factors)}}};\n"
        f"template <{conditions}>\nstruct {step.name}_op {{\n"
        f"  struct Results {{ f32v of[{len(made)}]; }};\n"
        f"  TS_INLINE static Results f(const {step.name}_factors& k, {arguments}) {{\n"
        + "".join(f"    {x}\n" for x in (*lines, f"return {{{{{', '.join(made)}}}}};"))
        + "  }\n};\n"
    )


def _parameters(comment: str, step: Step) -> str:
    made = ",\n          ".join(_number(x, _on_device) for x in step.factors)
    return (
        f"{comment}struct {step.name} {{\n  int64_t count, fours;\n"
        f"  const float* in[{len(step.elements)}];\n  float* out[{len(step.outputs)}];\n"
        + "".join(f"  const {_TYPES[x.dtype]}* {x.name};\n" for x in step.scalars)
        + f"  F64 {', '.join(x.name for x in step.attributes)};\n}};\n"
        f"TS_INLINE {step.name}_factors factors_of(const {step.name}& p) {{\n"
        f"  return {{{made}}};\n}}\n"
    )


def _list(steps: list[Step]) -> str:
    rows = ["#define TS_STEPS(X)"]
    for step in steps:
        for way in product((False, True), repeat=len(step.conditions)):
            holds = ", ".join(str(x).lower() for x in way)
            rows.append(f"  X({step.kernel(way)}, {step.name}, {holds})")
    width = max(map(len, rows)) + 1
    return (
        "// Kernel, step, and which of its conditions hold.\n"
        + "\n".join(f"{row:<{width}}\\" for row in rows[:-1])
        + f"\n{rows[-1]}\n"
    )


def texts() -> dict[Path, str]:
    """The rendered files."""
    steps = _steps()
    bodies = "\n".join(_body(*x) for x in steps)
    parameters = [_parameters(*x) for x in steps] + [_list([step for _, step in steps])]
    return {
        NATIVE / "include" / "tallystick" / "optimizer.hpp": f"{_HEAD}{bodies}\n{TAIL}",
        NATIVE / "cuda" / "steps.hpp": _CUDA_HEAD + "\n".join(parameters) + f"\n{TAIL}",
    }
