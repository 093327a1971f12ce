"""Writing by index in captured programs, with its gradients (NUMERICS 4.3, 9.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from calls import check  # noqa: E402
from torch import Tensor  # noqa: E402

G = torch.Generator().manual_seed(1)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=G)


def ints(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=G)


def places(dim: int, *shape: int) -> Tensor:
    """Different places along dim: torch leaves open which of several sources stays."""
    return torch.rand(shape, generator=G).argsort(dim)


Call = tuple[Callable[..., Any], tuple[Tensor, ...]]
SCATTERS: dict[str, Call] = {
    "src": (lambda x, i, s: x.scatter(1, i, s), (normal(4, 6), places(1, 4, 6), normal(4, 6))),
    "src, another axis": (
        lambda x, i, s: torch.scatter(x, -2, i, s), (normal(5, 3), places(0, 5, 3), normal(5, 3))),
    "src longer than the index": (  # torch has no gradient of such a source
        lambda x, i, s: x.scatter(0, i, s.detach()),
        (normal(5, 4), places(0, 5, 4)[:3, :2].contiguous(), normal(6, 4))),
    "value": (lambda x, i: x.scatter(1, i, -2.5), (normal(4, 6), ints(6, 4, 3))),
    "integers": (lambda x, i: x.scatter(0, i, 7), (ints(9, 5), ints(5, 3))),
    "a one-hot": (
        lambda x, i: x * torch.zeros(4, 7).scatter_(1, i.unsqueeze(1), 1.0),
        (normal(4, 7), ints(7, 4))),
    "no indices": (lambda x, i, s: x.scatter(0, i, s), (normal(4), ints(4, 0), normal(0))),
    "of rank 0": (lambda x, i, s: x.scatter(0, i, s), (normal(), ints(1), normal())),
    "a scalar index": (lambda x, i: x.scatter(0, i, 1.0), (normal(3), torch.tensor(2))),
}  # fmt: skip


@pytest.mark.parametrize("name", SCATTERS)
def test_scatter(name: str) -> None:
    call, operands = SCATTERS[name]
    used = check(call, *operands)
    assert ("aten.scatter.src" in used) == (name != "no indices")
