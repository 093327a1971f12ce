"""Exact torch kernel of dropout's mask (NUMERICS 8.4)."""

from __future__ import annotations

import torch

from tallystick.contracts.ordered.torch import philox
from tallystick.contracts.ordered.torch.table import exact
from tallystick.devices.kernel import operand
from tallystick.devices.torch_operands import Tensor, Tensors
from tallystick.numerics.operators.common import integer, number
from tallystick.numerics.types import Attrs


@exact("tallystick.dropout_mask", named=True)
def _dropout(op: str, attrs: Attrs, inputs: Tensors, outputs: list[Tensor]) -> None:
    key, out = operand(inputs, 0), outputs[0]
    philox.check_key(op, key)
    # Scaling by a power of two is exact, and round() is to even (8.4).
    threshold = round(number(attrs, "p") * philox.WORD)
    drawn = philox.words(key, integer(attrs, "draw"), out.numel())
    torch.ge(drawn, threshold, out=out.view(-1))
