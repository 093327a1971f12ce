"""Calls of native/cuda/optimizer.cu (NUMERICS 11.1 to 11.4)."""

from __future__ import annotations

from tallystick.kernels.cuda.launch import f64, launch_over, pointer, whole
from tallystick.kernels.cuda.point import FOUR, aligned
from tallystick.kernels.cuda.table import Outputs, Tensors, cuda_kernel, operand, optional
from tallystick.numerics.operators.common import flag, number
from tallystick.numerics.types import Attrs

_OWN = ((0, 0), (2, 1), (3, 2))


@cuda_kernel("tallystick.beta_power")
def _beta_power(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    params = pointer(operand(inputs, 0), out) + f64(number(attrs, "beta"))
    out.device.launch("optimizer_beta_power", (1, 1, 1), 32, params)


@cuda_kernel("tallystick.adamw_step", "tallystick.adam_step", named=True, inplace=_OWN)
def _adam(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    p, g, m, v, lr, beta1_power, beta2_power = (operand(inputs, i) for i in range(7))
    c = optional(inputs, 7)
    decoupled = op == "tallystick.adamw_step"
    kernel = "optimizer_adamw" if decoupled else "optimizer_adam"
    if not decoupled and number(attrs, "weight_decay") != 0:
        kernel += "_decays"
    params = whole(p.size, aligned(p, g, m, v, *outputs))
    params += pointer(p, g, m, v, c, *outputs, lr, beta1_power, beta2_power)
    params += f64(*(number(attrs, name) for name in ("beta1", "beta2", "eps", "weight_decay")))
    launch_over(p, kernel + ("_scaled" if c else ""), p.size, params, each=FOUR)


@cuda_kernel("tallystick.sgd_step", inplace=((0, 0), (2, 1)))
def _sgd(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    p, g, lr = (operand(inputs, i) for i in (0, 1, 3))
    buf, c = inputs[2], optional(inputs, 4)
    kernel = "optimizer_sgd"
    if buf is not None:
        kernel += "_nesterov" if flag(attrs, "nesterov") else "_momentum"
    if number(attrs, "weight_decay") != 0:
        kernel += "_decays"
    buf_out = outputs[1] if len(outputs) > 1 else None
    params = whole(p.size, aligned(p, g, buf, *outputs))
    params += pointer(p, g, buf, c, outputs[0], buf_out, lr)
    params += f64(*(number(attrs, name) for name in ("momentum", "dampening", "weight_decay")))
    launch_over(p, kernel + ("_scaled" if c else ""), p.size, params, each=FOUR)
