"""Kernels of batch normalisation (NUMERICS 6.12 - 6.14)."""

from __future__ import annotations

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand, optional, padded, wanted
from tallystick.numerics.operators.batch_norm import statistics_at
from tallystick.numerics.operators.common import flag, number, output_mask, rn32
from tallystick.numerics.types import Attrs


@kernel("aten._native_batch_norm_legit_functional", inplace=((0, 0),))
def _training(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, weight, bias, mean, var = padded(inputs, 5)
    momentum, eps = float(rn32(number(attrs, "momentum"))), number(attrs, "eps")
    _core.batch_norm(x, weight, bias, mean, var, momentum, eps, *padded(outputs, 5))


@kernel("aten.native_batch_norm_backward", inplace=((0, 0), (1, 0)))
def _backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, x, weight = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
    mean, spread = (operand(inputs, i) for i in statistics_at(attrs))
    train, eps = flag(attrs, "train"), float(rn32(number(attrs, "eps")))
    gradients = wanted(outputs, output_mask("aten.native_batch_norm_backward", attrs))
    _core.batch_norm_backward(grad, x, weight, mean, spread, train, eps, *gradients)


@kernel("aten._native_batch_norm_legit_no_training", inplace=((0, 0),))
def _by_running(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, weight, bias, mean, var = padded(inputs, 5)
    eps = float(rn32(number(attrs, "eps")))
    _core.batch_norm_eval(x, weight, bias, mean, var, eps, outputs[0])
