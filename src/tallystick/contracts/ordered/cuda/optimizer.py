"""Calls of native/cuda/optimizer.cu (NUMERICS 11.1 to 11.4)."""

from __future__ import annotations

from functools import cache

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import f64, launch_over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.point import FOUR, aligned
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import number
from tallystick.numerics.registry import all_ops, lookup
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.variants import Step, steps


@cuda_kernel("tallystick.beta_power")
def _beta_power(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    params = pointer(operand(inputs, 0), out) + f64(number(attrs, "beta"))
    out.device.launch("optimizer_beta_power", (1, 1, 1), 32, params)


@cache
def _steps() -> dict[Form, Step]:
    return {step.form: step for step in steps(all_ops().values())}


def _step(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    pairs = zip(lookup(op).operands, inputs, strict=False)
    given = {name.rstrip("?"): x for name, x in pairs if x is not None}
    form = lookup(op).form(attrs, [None if x is None else x.dtype for x in inputs])
    assert form is not None  # the declaration has checked the call
    step = _steps()[form]
    kernel = step.kernel(condition.holds(attrs, given) for condition in step.conditions)
    elements, p = [given[x.name] for x in step.elements], given["p"]
    params = whole(p.size, aligned(*elements, *outputs)) + pointer(*elements, *outputs)
    for x in step.numbers:
        is_operand = x.kind == "operand"
        params += pointer(given.get(x.name)) if is_operand else f64(number(attrs, x.name))
    launch_over(p, f"optimizer_{kernel}", p.size, params, each=FOUR)


_OWN = ((0, 0), (2, 1), (3, 2))
cuda_kernel("tallystick.adamw_step", "tallystick.adam_step", named=True, inplace=_OWN)(_step)
cuda_kernel("tallystick.sgd_step", named=True, inplace=_OWN[:2])(_step)
