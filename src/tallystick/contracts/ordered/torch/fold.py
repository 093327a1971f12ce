"""The exact torch kernel of the fold over micro-batches (NUMERICS 10.12)."""

from __future__ import annotations

import torch

from tallystick.contracts.ordered.torch.table import exact, write
from tallystick.devices.kernel import operand
from tallystick.devices.torch_operands import Tensor, Tensors
from tallystick.numerics.operators.common import flag
from tallystick.numerics.operators.fold import FOLD, fold_count, split
from tallystick.numerics.types import Attrs


@exact(FOLD)
def _fold(attrs: Attrs, inputs: Tensors, outputs: list[Tensor]) -> None:
    """Each operation is one of binary64, then a conversion to binary32.

    Of a sum or quotient of two binary32 numbers that is RN32 of the true one, since 53 digits are
    at least 2·24 + 2. No kernel of torch's for binary32, which may flush, has a part in it.
    """
    found = _sum([operand(inputs, i) for i in range(len(inputs))])
    if flag(attrs, "mean"):
        found = (found.double() / float(fold_count(attrs, len(inputs)))).float()
    write(found, outputs[0])


def _sum(xs: list[Tensor]) -> Tensor:
    if len(xs) == 1:
        return xs[0]
    half = split(len(xs))
    left, right = _sum(xs[:half]), _sum(xs[half:])
    return (left.double() + right.double()).to(torch.float32)
