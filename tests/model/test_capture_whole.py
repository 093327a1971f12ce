"""Integer arithmetic in captured programs (NUMERICS 10.8, 10.10, 10.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from calls import check  # noqa: E402
from torch import Tensor  # noqa: E402

from tallystick.errors import UnsupportedOperatorError  # noqa: E402

A = torch.tensor([7, -7, 6, -6, 0, 2**40 + 1, -(2**40) - 1])
B = torch.tensor([2, 2, -3, -3, 5, 3, 7])

Call = tuple[Callable[..., Any], tuple[Tensor, ...]]
CALLS: dict[str, Call] = {
    "floor_divide": (torch.floor_divide, (A, B)),
    "floor_divide by a number": (lambda a: a // -3, (A,)),
    "a number floor-divided": (lambda b: 17 // b, (B,)),
    "remainder": (torch.remainder, (A, B)),
    "remainder of a number": (lambda a: a % 5, (A,)),
    "fmod": (torch.fmod, (A, B)),
    "div, floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (A, B)),
    "div, trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (A, B)),
    "broadcast": (lambda a, b: a.unsqueeze(1) // b, (A, B)),
    "of narrow integers": (lambda a, b: a.long() // b, (A.clamp(-99, 99).int(), B)),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers(name: str) -> None:
    call, operands = CALLS[name]
    assert "aten.floor_divide" in check(call, *operands)


NARROW: dict[str, Call] = {
    "i32": (lambda a: a.int().long(), (torch.tensor([2**31, -(2**31), 2**32 + 7, -1, 5]),)),
    "u8": (lambda a: a.to(torch.uint8).long(), (torch.tensor([256, -1, 255, 7, 2**40 + 3]),)),
    "i32 of f32": (
        lambda x: x.int().long(), (torch.tensor([1.9, -1.9, 3e9, -3e9, float("nan"), 2.0**31]),)),
    "i32 of truth values": (lambda a: (a > 0).int().long(), (A,)),
    "i32 from u8": (lambda a: a.to(torch.uint8).int().long(), (A,)),
    "a range": (lambda a: torch.arange(1, 9, 2, dtype=torch.int32).long() + a.long().sum(), (A,)),
    "signs and products": (
        lambda a: torch.stack([a.int().abs(), -a.int(), a.int() * a.int()]).long(),
        (torch.tensor([5, -7, 0, -(2**31), 2**31 - 1]),)),
    "a power of a range": (
        lambda x: torch.pow(x, torch.arange(4, dtype=torch.int32)),
        (torch.tensor([0.5, 2.0, 3.0, -1.5]),)),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_narrow_integers(name: str) -> None:
    """NUMERICS 10.7: bloom and mpt make their slopes from a range of i32."""
    call, operands = NARROW[name]
    check(call, *operands)


BITS: dict[str, Call] = {
    "and, or, xor": (lambda a, b: torch.stack([a & b, a | b, a ^ b]), (A, B)),
    "and, or, xor with a number": (lambda a: torch.stack([a & 6, a | 6, a ^ -2]), (A,)),
    "not": (lambda a: ~a, (A,)),
    "shifts": (lambda a, b: torch.stack([a << (b * b), a >> (b * b)]), (A, B)),
    "shifts by a number": (lambda a: torch.stack([a << 3, a >> 2]), (A,)),
    "the functions": (
        lambda a, b: torch.bitwise_left_shift(torch.bitwise_xor(a, b), 2)
        + torch.bitwise_right_shift(7, (b * b)), (A, B)),
    "truth values": (lambda a, b: (a > 0) ^ (b > 0) | ~(a > b) & True, (A, B)),
}  # fmt: skip


@pytest.mark.parametrize("name", BITS)
def test_bits(name: str) -> None:
    call, operands = BITS[name]
    check(call, *operands)


def test_bits_of_narrow_integers_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"Bits of i32.*bitwise_and"):
        check(lambda a: a & a, A.clamp(-9, 9).int())
