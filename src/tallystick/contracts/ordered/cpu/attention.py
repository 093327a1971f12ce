"""Kernels of attention over whole tensors (NUMERICS 18)."""

from __future__ import annotations

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand, optional
from tallystick.numerics.operators.common import flag, integer, number
from tallystick.numerics.types import Attrs


def _seen(attrs: Attrs) -> tuple[bool, int, int]:
    """Which keys there are (18.2), as the core asks for it."""
    return flag(attrs, "causal"), integer(attrs, "first"), integer(attrs, "window")


@kernel("tallystick.attention_scores")
def _scores(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    q, k, slopes = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
    scale, softcap = number(attrs, "scale"), number(attrs, "softcap")
    _core.attention_scores(q, k, slopes, outputs[0], scale, softcap, *_seen(attrs))


@kernel("tallystick.attention_weights", inplace=((0, 0),))
def _weights(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    s, sinks = operand(inputs, 0), optional(inputs, 1)
    _core.attention_weights(s, sinks, outputs[0], *_seen(attrs))


def _attend(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    q, k, v = (operand(inputs, i) for i in range(3))
    slopes, sinks = optional(inputs, 3), optional(inputs, 4)
    scale, softcap = number(attrs, "scale"), number(attrs, "softcap")
    _core.attention(q, k, v, slopes, sinks, outputs[0], scale, softcap, *_seen(attrs))


@kernel("tallystick.attention_values", attends=_attend)
def _values(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    p, v = operand(inputs, 0), operand(inputs, 1)
    _core.attention_values(p, v, outputs[0], *_seen(attrs))
