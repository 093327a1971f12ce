"""Integer arithmetic in captured programs (NUMERICS 10.8, 10.10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from calls import check  # noqa: E402
from torch import Tensor  # noqa: E402

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
