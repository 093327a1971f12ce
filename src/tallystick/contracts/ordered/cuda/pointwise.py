"""Every element by itself: calls of native/cuda/pointwise.cu and elementary.cu on binary32, of
integer.cu on the rest (NUMERICS 5 to 7, 8.5, 10), of optimizer.cu (11.1 to 11.4), random.cu (8)."""

from __future__ import annotations

from functools import cache

import numpy as np

from tallystick.contracts.ordered.cuda import cuda_kernel
from tallystick.devices.cuda.launch import (
    FOUR,
    Outputs,
    Tensors,
    aligned,
    check_indices,
    constant_bits,
    f32,
    f64,
    launch_over,
    point,
    pointer,
    whole,
)
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.device import operand
from tallystick.kernels.loops import (
    FUNCTION,
    POINTWISE,
    POWER,
    WHOLE,
    LoopCall,
    call_of,
    pointwise_operators,
    storage_shared,
)
from tallystick.numerics.operators.common import integer, number
from tallystick.numerics.operators.random import WORD
from tallystick.numerics.registry import OpSpec, all_ops, lookup
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.variants import OptimizerForm, steps

_FILES = {POINTWISE: "pointwise", FUNCTION: "elementary", POWER: "elementary", WHOLE: "integer"}


def point2(name: str, a: DeviceTensor, b: DeviceTensor | int, out: DeviceTensor) -> None:
    """out = name(a, b), elementwise; operands of any strides, broadcast; f32, out f32 or bool.

    `b` may be the bits of a constant."""
    point(f"pointwise_{name}", out, [a, b])


def _run(
    call: LoopCall, op: str, attrs: Attrs, inputs: list[DeviceTensor], out: DeviceTensor
) -> None:
    kernel = f"{_FILES[call.family]}_{call.name}"
    operands: list[DeviceTensor | int] = [
        constant_bits(x) if isinstance(x, np.ndarray) else x
        for x in call.gathered(op, attrs, inputs)
    ]
    if not call.why:
        p0, p1, *_ = (*call.numbers(op, attrs, inputs), 0.0, 0.0)
        point(kernel, out, operands, p0, p1)
    elif out.size:
        refusals = out.device.refusals
        point(kernel, out, operands, more=refusals.slots(op, call.why))
        refusals.after(op, call.why)


def _attach(spec: OpSpec) -> None:
    name, count = spec.name, len(spec.operands)

    @cuda_kernel(name, strided=True, inplace=storage_shared(spec))
    def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        tensors = [operand(inputs, i) for i in range(count)]
        call = call_of(name, attrs, [x.dtype for x in tensors])
        assert call is not None  # every form on these dtypes has a loop
        _run(call, name, attrs, tensors, outputs[0])


for _spec in pointwise_operators():
    if _spec.op_class != "optimizer":
        _attach(_spec)


# --- the optimizers' steps (NUMERICS 11.1 - 11.4) -------------------------------------------------
@cuda_kernel("tallystick.beta_power")
def _beta_power(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    params = pointer(operand(inputs, 0), out) + f64(number(attrs, "beta"))
    out.device.launch("optimizer_beta_power", (1, 1, 1), 32, params)


@cache
def _steps() -> dict[Form, OptimizerForm]:
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


# --- random tensors (NUMERICS 8) ------------------------------------------------------------------
_WHY = "the seed must not be negative, and the step must be below 2^32"


def _draw(
    op: str,
    attrs: Attrs,
    key: DeviceTensor,
    out: DeviceTensor,
    threshold: int = 0,
    p0: float = 0,
    p1: float = 0,
) -> None:
    if not out.size:
        return
    refusals = out.device.refusals
    params = whole(out.size, aligned(out)) + pointer(key, out)
    params += whole(integer(attrs, "draw"), threshold) + f32(p0, p1) + refusals.slots(op, _WHY)
    launch_over(out, op.replace("tallystick.", "random_"), out.size, params, each=FOUR)
    refusals.after(op, _WHY)


@cuda_kernel("tallystick.dropout_mask", named=True)
def _dropout(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    # Scaling by a power of two is exact, and round() is to even (NUMERICS 8.4).
    threshold = round(number(attrs, "p") * WORD)
    _draw(op, attrs, operand(inputs, 0), outputs[0], threshold)


def _numbers(name: str, first: str, second: str) -> None:
    @cuda_kernel(name, named=True)
    def run(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        p0, p1 = number(attrs, first), number(attrs, second)
        _draw(op, attrs, operand(inputs, 0), outputs[0], p0=p0, p1=p1)


_numbers("tallystick.uniform", "low", "high")
_numbers("tallystick.normal", "mean", "std")


@cuda_kernel("tallystick.gumbel", named=True)
def _gumbel(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    key, place, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    check_indices(op, place, WORD)
    if not out.size:
        return
    rows, classes = out.shape
    each = -(-classes // FOUR)
    refusals = out.device.refusals
    params = whole(rows * each, each, classes, aligned(out) and classes % FOUR == 0)
    params += pointer(key, place, out) + whole(integer(attrs, "draw")) + refusals.slots(op, _WHY)
    launch_over(out, "random_gumbel", rows * each, params)
    refusals.after(op, _WHY)
