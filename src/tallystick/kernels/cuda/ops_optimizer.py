"""Calls of native/cuda/optimizer.cu (NUMERICS 11.1 to 11.4)."""

from __future__ import annotations

from functools import cache

from tallystick.kernels.cuda.launch import f64, launch_over, pointer, whole
from tallystick.kernels.cuda.point import FOUR, aligned
from tallystick.kernels.cuda.table import Outputs, Tensors, cuda_kernel, operand
from tallystick.numerics.operators.common import number
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.steps import Step, step_of


@cuda_kernel("tallystick.beta_power")
def _beta_power(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    params = pointer(operand(inputs, 0), out) + f64(number(attrs, "beta"))
    out.device.launch("optimizer_beta_power", (1, 1, 1), 32, params)


@cache
def _steps(op: str) -> list[tuple[Form, Step]]:
    return [(form, step_of(lookup(op), form)) for form in lookup(op).forms]


def _step(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    pairs = zip(lookup(op).operands, inputs, strict=False)
    given = {name.rstrip("?"): x for name, x in pairs if x is not None}
    own = lookup(op).form(attrs, [None if x is None else x.dtype for x in inputs])
    step = next(step for form, step in _steps(op) if form is own)
    kernel = step.kernel([condition.holds(attrs, given) for condition in step.conditions])
    elements, p = [given[x.name] for x in step.elements], given["p"]
    params = whole(p.size, aligned(*elements, *outputs)) + pointer(*elements, *outputs)
    params += pointer(*(given.get(x.name) for x in step.scalars))
    params += f64(*(number(attrs, x.name) for x in step.attributes))
    launch_over(p, f"optimizer_{kernel}", p.size, params, each=FOUR)


_OWN = ((0, 0), (2, 1), (3, 2))
cuda_kernel("tallystick.adamw_step", "tallystick.adam_step", named=True, inplace=_OWN)(_step)
cuda_kernel("tallystick.sgd_step", named=True, inplace=_OWN[:2])(_step)
