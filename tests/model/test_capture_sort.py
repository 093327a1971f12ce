"""Sorting, selecting and searching in captured programs, with gradients (NUMERICS 3.9, 9.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from calls import check  # noqa: E402
from torch import Tensor  # noqa: E402

import tallystick  # noqa: E402

G = torch.Generator().manual_seed(2)
NAN, INF = float("nan"), float("inf")


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=G)


def ints(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=G)


Call = tuple[Callable[..., Any], tuple[Tensor, ...]]
ODD = torch.tensor([[2.0, NAN, -INF, 0.0], [1.0, INF, -1.0, 3.0], [NAN, NAN, 0.0, 1.0]])
CALLS: dict[str, Call] = {
    "sort": (lambda x: torch.sort(x), (normal(3, 7),)),
    "sort, descending, another axis": (lambda x: x.sort(0, descending=True), (normal(6, 2, 3),)),
    "a stable sort of ties": (
        lambda x: torch.sort(x, dim=-1, stable=True), (ints(3, 4, 20),)),
    "a stable descending sort of ties": (
        lambda x: torch.sort(x, dim=0, stable=True, descending=True), (ints(3, 20, 4),)),
    "sort of bools": (lambda x: torch.sort(x, stable=True)[1], (ints(2, 9).bool(),)),
    "sort of rank 0": (lambda x: torch.sort(x), (normal(),)),
    "sort of nothing": (lambda x: torch.sort(x), (normal(3, 0),)),
    "sort of NaN and infinities": (lambda x: torch.sort(x.detach(), stable=True), (ODD,)),
    "argsort": (lambda x: x.argsort(1), (normal(3, 7),)),
    "argsort, descending": (lambda x: torch.argsort(x, -1, True), (normal(5, 4),)),
    "msort": (lambda x: torch.msort(x), (normal(5, 4),)),
    "topk": (lambda x: x.topk(3), (normal(4, 9),)),
    "topk, the least, another axis": (lambda x: x.topk(2, 0, largest=False), (normal(7, 3),)),
    "topk of rank 0": (lambda x: x.topk(1), (normal(),)),
    "topk, unsorted": (lambda x: x.topk(3, sorted=False)[0].sum(-1), (normal(4, 9),)),
    "kthvalue": (lambda x: x.kthvalue(2), (normal(4, 5),)),
    "kthvalue, keepdim": (lambda x: x.kthvalue(5, 0, keepdim=True), (normal(5, 2),)),
    "kthvalue of rank 0": (lambda x: x.kthvalue(1), (normal(),)),
    "median": (lambda x: x.median(), (normal(4, 5),)),
    "median of an axis": (lambda x: x.median(1), (normal(3, 6),)),
    "median, keepdim": (lambda x: x.median(0, keepdim=True), (normal(5, 3),)),
    "median of NaN": (lambda x: x.detach().median(1), (ODD,)),
    "median of all with NaN": (lambda x: x.detach().median(), (ODD,)),
    "median of integers": (lambda x: x.median(-1)[0], (ints(50, 3, 7),)),
    "median of rank 0": (lambda x: x.median(0), (normal(),)),
    "searchsorted": (
        lambda b, x: torch.searchsorted(b, x), (torch.tensor([0, 2, 2, 5, 9]), ints(11, 4, 3))),
    "searchsorted, right, of rows": (
        lambda b, x: torch.searchsorted(b, x, right=True),
        (ints(9, 3, 6).sort()[0], ints(11, 3, 4))),
    "searchsorted by a sorter": (
        lambda b, x: torch.searchsorted(b, x, sorter=b.argsort(), side="right"),
        (torch.tensor([5, 0, 9, 2, 2]), ints(11, 6))),
    "bucketize": (
        lambda x, b: torch.bucketize(x.detach(), b), (ODD, torch.tensor([-1, 0, 1, 2]))),
    "bucketize, right": (
        lambda x: torch.bucketize(x, torch.arange(0, 8, 2, device=x.device), right=True),
        (ints(9, 5),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_indices_and_gradients(name: str) -> None:
    call, operands = CALLS[name]
    check(call, *operands)


def test_of_equal_elements_the_first_ones_are_taken() -> None:
    """torch leaves open which it takes; NUMERICS 3.9 does not."""
    x = torch.tensor([[1.0, 3.0, 3.0, 1.0, 3.0]])
    with tallystick.reproducible():
        assert x.topk(2)[1].tolist() == [[1, 2]]
        assert x.sort()[1].tolist() == [[0, 3, 1, 2, 4]]
        assert x.sort(descending=True)[1].tolist() == [[1, 2, 4, 0, 3]]
        assert x.kthvalue(2)[1].tolist() == [3]


def test_a_sort_keeps_the_bits_of_zeros() -> None:
    x = torch.tensor([0.0, -0.0, -1.0, 0.0, -0.0])
    with tallystick.reproducible():
        values = x.sort()[0].numpy()
    np.testing.assert_array_equal(np.signbit(values), [True, False, True, False, True])
