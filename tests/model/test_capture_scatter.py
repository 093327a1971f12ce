"""Writing by index in captured programs, with its gradients (NUMERICS 4.3, 9.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from calls import check  # noqa: E402
from torch import Tensor  # noqa: E402

import tallystick  # noqa: E402
from tallystick.errors import TallystickError, UnsupportedOperatorError  # noqa: E402

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


def assigned(x: Tensor, where: Any, values: Any) -> Tensor:
    x = x.clone()
    x[where] = values
    return x


MASK = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)
ROWS = torch.tensor([2, 0, 3])
ASSIGNMENTS: dict[str, Call] = {
    "one index": (lambda x, i, v: assigned(x, i, v), (normal(5, 3), ROWS, normal(3, 3))),
    "an index of a later axis": (
        lambda x, i, v: assigned(x, (slice(None), i), v), (normal(2, 5, 3), ROWS, normal(3))),
    "two indices": (
        lambda x, i, j, v: assigned(x, (i, j), v),
        (normal(5, 3), ROWS, ROWS.flip(0) % 3, normal(3))),
    "two indices with an axis between": (
        lambda x, i, j, v: assigned(x, (i, slice(None), j), v),
        (normal(4, 2, 4), ROWS, ROWS.flip(0), normal(3, 2))),
    "broadcast indices": (
        lambda x, i, j: assigned(x, (i.unsqueeze(1), j), 2.0), (normal(4, 4), ROWS, ROWS[:2])),
    "a negative index": (lambda x, i: assigned(x, i - 4, -1.0), (normal(4, 2), ROWS)),
    "integers": (lambda x, i: assigned(x, i, 5), (ints(9, 4), ROWS)),
    # The gradient of these values is read by the mask: torch has no shape for it on meta tensors.
    "a mask and its values": (
        lambda x, m, v: assigned(x, m, v.detach()), (normal(3, 4), MASK, normal(6))),
    "a mask of rows": (
        lambda x, m, v: assigned(x, m[:, 0], v.detach()), (normal(3, 4), MASK, normal(2, 4))),
    "index_copy": (
        lambda x, i, s: x.index_copy(1, i, s), (normal(2, 5, 3), ROWS, normal(2, 3, 3))),
    "index_copy of rank 0": (
        lambda x, i, s: x.index_copy(0, i, s), (normal(), ints(1, 1), normal(1))),
    "put": (lambda x, i, s: x.put(i - 2, s), (normal(2, 3), ROWS, normal(3))),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m, s), (normal(3, 4), MASK, normal(2, 4))),
    "masked_scatter, broadcast": (
        lambda x, m, s: x.masked_scatter(m[:, :1], s), (normal(3, 4), MASK, normal(11))),
}  # fmt: skip


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_assignment(name: str) -> None:
    call, operands = ASSIGNMENTS[name]
    assert {"aten.scatter.src", "tallystick.rank"} & set(check(call, *operands))


def test_the_last_of_several_values_for_one_place_stays() -> None:
    """torch leaves open which; NUMERICS 9.3 does not."""
    where = torch.tensor([1, 0, 1, 1])
    with tallystick.reproducible():
        x = assigned(torch.zeros(2), where, torch.tensor([4.0, 5.0, 6.0, 7.0]))
        copied = torch.zeros(2).index_copy(0, where, torch.tensor([4.0, 5.0, 6.0, 7.0]))
    assert x.tolist() == copied.tolist() == [5, 7]


def test_a_mask_with_another_number_of_values_is_refused() -> None:
    """As torch refuses it; a step whose operands are refused has no result (NUMERICS 1.13)."""
    x, few = torch.zeros(3, 4), torch.ones(5)
    for values in (few, torch.ones(7)):
        with pytest.raises(TallystickError, match="outside"), tallystick.reproducible():
            assigned(x, MASK, values)
    with pytest.raises(TallystickError, match="outside"), tallystick.reproducible():
        x.masked_scatter(MASK, few)


I = ints(4, 6, 3)  # noqa: E741
REDUCTIONS: dict[str, Call] = {
    f"{reduce}, {'with' if own else 'without'} self": (
        lambda x, i, s, reduce=reduce, own=own: x.scatter_reduce(0, i, s, reduce, include_self=own),
        (normal(4, 3), I, normal(6, 3)))
    for reduce in ("sum", "mean", "amax", "amin") for own in (True, False)
}  # fmt: skip
REDUCTIONS |= {
    "amin of integers": (
        lambda x, i, s: x.scatter_reduce(1, i, s, "amin"), (ints(90, 6, 4), I, ints(90, 6, 3))),
    "amax of NaN": (
        lambda x, i, s: x.detach().scatter_reduce(0, i, s.detach(), "amax"),
        (normal(4), I[:, 0].contiguous(), torch.tensor([1, float("nan"), 2, -1, 5, 3]))),
    "add": (lambda x, i, s: x.detach().scatter(0, i, s.detach(), reduce="add"),
            (normal(4, 3), I, normal(6, 3))),
    "index_reduce, amax": (
        lambda x, i, s: x.index_reduce(0, i, s, "amax"),
        (normal(4, 3), I[:, 0].contiguous(), normal(6, 3))),
    "index_reduce, mean": (
        lambda x, i, s: x.index_reduce(1, i, s, "mean", include_self=False),
        (normal(2, 4), I[:, 1].contiguous(), normal(2, 6))),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    call, operands = REDUCTIONS[name]
    check(call, *operands)


def test_a_product_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match="reduce='prod'"):
        check(lambda x, i, s: x.scatter_reduce(0, i, s, "prod"), normal(4, 3), I, normal(6, 3))
