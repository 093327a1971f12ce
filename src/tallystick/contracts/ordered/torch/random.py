"""Philox4x32-10 in integer operations of torch, on any device (NUMERICS 8.1, 8.3), and the exact
kernel of dropout's mask (8.4)."""

from __future__ import annotations

import torch

from tallystick.contracts.ordered.torch.table import exact
from tallystick.devices.kernel import operand
from tallystick.devices.torch import Tensor, Tensors
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import integer, number
from tallystick.numerics.operators.random import WORD
from tallystick.numerics.types import Attrs

_LOW = WORD - 1
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def check_key(op: str, key: Tensor) -> None:
    """A seed and a step that 8.3 has. Raises RefusedOperandsError; one flag is read."""
    if bool((key < 0).any() | (key[1] >= WORD)):
        raise RefusedOperandsError(
            op, "the seed of its key must not be negative, the step must be below 2^32."
        )


def check_places(op: str, place: Tensor) -> None:
    """Places that 8.8 has. Raises RefusedOperandsError; one flag is read."""
    if bool(((place < 0) | (place >= WORD)).any()):
        raise RefusedOperandsError(op, "a place is outside [0, 2^32).")


def _product(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The high and the low word of x·factor; i64 products wrap, which leaves both intact."""
    wide = x * factor
    return (wide >> 32) & _LOW, wide & _LOW


def words(key: Tensor, draw: int, count: int) -> Tensor:
    """i64[count]: the words of elements 0 .. count - 1 of a draw (8.1). `key`, i64[2], is read
    where it lies."""
    block = torch.arange(-(-count // 4), dtype=torch.int64, device=key.device)
    return of_blocks(key, draw, block).reshape(-1)[:count]


def of_blocks(key: Tensor, draw: int, block: Tensor) -> Tensor:
    """i64[n, 4]: the words of the blocks numbered by `block`, i64[n]."""
    seed, step = key[0], key[1]
    c0, c1 = block & _LOW, block >> 32
    c2, c3 = torch.full_like(block, draw), step.expand_as(block)
    k0, k1 = seed & _LOW, seed >> 32
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return torch.stack((c0, c1, c2, c3), 1)


# --- dropout's mask (8.4) -------------------------------------------------------------------------
@exact("tallystick.dropout_mask", named=True)
def _dropout(op: str, attrs: Attrs, inputs: Tensors, outputs: list[Tensor]) -> None:
    key, out = operand(inputs, 0), outputs[0]
    check_key(op, key)
    # Scaling by a power of two is exact, and round() is to even (8.4).
    threshold = round(number(attrs, "p") * WORD)
    drawn = words(key, integer(attrs, "draw"), out.numel())
    torch.ge(drawn, threshold, out=out.view(-1))
