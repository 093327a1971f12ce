"""Exact kernels on a torch device: what has no stock form, and integer operands of what has one.

Their results have no freedom: the bits are those of the clause, on every device (NUMERICS 1.8). So
they are made of torch's integer operations, selections, comparisons and conversions, none of which
depends on an order of execution; a float is compared through its bits where torch leaves open what
a NaN or a zero's sign does. The families of this room attach theirs by `exact`.
"""

from __future__ import annotations

from functools import partial

import torch

from tallystick.devices.device import Kernel, entry
from tallystick.numerics.attachments import Attachments

Tensor = torch.Tensor
# The one NaN of each width (1.5).
NAN32, NAN64 = 0x7FC00000, 0x7FF8 << 48
_MAGNITUDE = (1 << 31) - 1


exact: Attachments[Kernel] = Attachments(
    "exact torch kernel", "tallystick.contracts.ordered.torch.*", partial(entry, strided=True)
)


def bits(x: Tensor) -> Tensor:
    """The same memory, floats seen as integers of their size: what is moved keeps its bits."""
    if x.dtype == torch.float32:
        return x.view(torch.int32)
    return x.view(torch.int64) if x.dtype == torch.float64 else x


def write(made: Tensor, out: Tensor) -> None:
    """`made`, of out's dtype and size, into `out`; every NaN becomes the canonical one (1.5)."""
    out.copy_(made.reshape(out.shape))
    if out.is_floating_point():
        nan = NAN32 if out.dtype == torch.float32 else NAN64
        bits(out).masked_fill_(out.isnan(), nan)


def keys(x: Tensor, least: bool = False) -> Tensor:
    """i32: f32 numbers in the order of max, +0 above -0 and NaN above all (1.11).

    With `least` in that of min, turned round: the greatest key is the least number's, or a NaN's.
    """
    seen = x.view(torch.int32)
    ascending = seen ^ ((seen >> 31) & _MAGNITUDE)
    return torch.where(x.isnan(), NAN32, ~ascending if least else ascending)


def of_keys(made: Tensor, least: bool = False) -> Tensor:
    """f32: the numbers that have these keys."""
    ascending = ~made if least else made
    seen = ascending ^ ((ascending >> 31) & _MAGNITUDE)
    return torch.where(made == NAN32, NAN32, seen).view(torch.float32)
