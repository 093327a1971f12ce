"""What `reproducible` computes without a contract's kernel: nothing in it rounds (PROGRAM 5.24)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor  # noqa: E402

import tallystick  # noqa: E402
from tallystick.errors import UnsupportedOperatorError, UsageError  # noqa: E402

DOUBLES = np.array([0.1, -1e300, 1e-46, np.inf, -np.nan, 1 + 2.0**-24, 3.0, -0.0, 7e-46, 2.5])
WHOLE = np.array([0.0, 1.9, -1.9, 2.0**31, -(2.0**63), 2.0**63, np.nan, -np.inf, 300.0, -129.5])


def in_a_block(function: Callable[[], object]):
    with tallystick.reproducible("ordered/1"):
        return function()


ON_THE_WAY: dict[str, Callable[[], Tensor]] = {
    "float": lambda: torch.from_numpy(DOUBLES).float(),
    "tensor": lambda: torch.tensor(DOUBLES, dtype=torch.float32),
    "Tensor": lambda: torch.Tensor(DOUBLES),
    "as_tensor": lambda: torch.as_tensor(DOUBLES, dtype=torch.float32),
    "assigned": lambda: torch.zeros(10).copy_(torch.from_numpy(DOUBLES)),
    "stacked": lambda: torch.stack([torch.tensor(x) for x in DOUBLES]).float(),
    "in an element": lambda: _in_elements(),
}


def _in_elements() -> Tensor:
    rows = torch.zeros(2, 10)
    rows[1] = torch.from_numpy(DOUBLES)
    return rows[1]


@pytest.mark.parametrize("name", ON_THE_WAY)
def test_a_double_is_rounded_once_on_its_way_to_float32(name: str):
    found = in_a_block(ON_THE_WAY[name]).numpy()
    with np.errstate(over="ignore"):
        wanted = DOUBLES.astype(np.float32)
    wanted[np.isnan(wanted)] = np.float32(np.nan)
    assert found.view(np.uint32).tolist() == wanted.view(np.uint32).tolist()
    assert found.view(np.uint32)[4] == 0x7FC00000, "canonical, whatever sign it had"


def test_other_conversions():
    x = torch.from_numpy(WHOLE)

    def run():
        return {d: x.to(d).tolist() for d in (torch.int64, torch.int32, torch.int16, torch.bool)}

    found, least = in_a_block(run), -(2**63)
    assert found[torch.int64] == [0, 1, -1, 2**31, least, least, least, least, 300, -129]
    low = -(2**31)
    assert found[torch.int32] == [0, 1, -1, low, low, low, low, low, 300, -129]
    assert found[torch.int16] == [0, 1, -1, 0, 0, 0, 0, 0, 300, -129]
    assert found[torch.bool] == [False] + [True] * 9
    for source in (torch.float32, torch.int64, torch.uint8, torch.bool, torch.int8):
        y = torch.tensor([0, 1, 100]).to(source)
        assert in_a_block(lambda y=y: y.double()).tolist() == y.tolist()
    turned = torch.arange(6.0).double().reshape(2, 3).t()
    assert in_a_block(lambda: turned.float()).stride() == turned.stride()


def test_a_number_of_float64_among_float32_tensors_is_converted_first():
    x, number = torch.tensor([1.0, 3.0]), torch.tensor(0.1, dtype=torch.float64)
    found = in_a_block(lambda: x * number)
    assert found.dtype == torch.float32
    assert found.numpy().tobytes() == (x.numpy() * np.float32(0.1)).tobytes()


def test_arithmetic_on_float64_is_refused():
    x = torch.ones(3, dtype=torch.float64)
    with pytest.raises(UsageError, match="got f64"):
        in_a_block(lambda: x + x)
    with pytest.raises(UsageError, match="int16"):
        in_a_block(lambda: x.short() + 1)


def _assigned(x: Tensor, mask: Tensor) -> Tensor:
    y = x.clone()
    y[mask] = x[mask] * 2
    return y


def _columns() -> Tensor:
    y = A.clone()
    y[:, torch.tensor([True, False, True])] = torch.tensor([7.0, 8.0])
    return y


def _places() -> Tensor:
    y = A.clone()
    y[torch.tensor([True, True]), torch.tensor([0, 2])] = torch.tensor([7.0, 8.0])
    return y


A = torch.tensor([[3.0, -1.0, 0.0], [2.5, 3.0, -0.0]])
K = torch.tensor([3, 1, 3, 2, 1])
BY_VALUE: dict[str, Callable[[], Tensor]] = {
    "nonzero": lambda: A.nonzero(),
    "where": lambda: torch.stack(torch.where(A > 0)),
    "argwhere": lambda: torch.argwhere(A),
    "mask": lambda: A[A > 0],
    "mask of rows": lambda: A[torch.tensor([False, True])],
    "mask and positions": lambda: A[:, torch.tensor([True, False, True])],
    "masked_select": lambda: A.masked_select(A > 0),
    "masked_scatter": lambda: A.masked_scatter(A > 0, torch.arange(6.0)),
    "assigned": lambda: _assigned(A, A > 0),
    "nothing assigned": lambda: _assigned(A, A > 9),
    "columns assigned": lambda: _columns(),
    "places assigned": lambda: _places(),
    "unique": lambda: torch.unique(K),
    "unique counts": lambda: torch.stack(torch.unique(K, return_counts=True)),
    "unique rows": lambda: torch.unique(K[:4].reshape(2, 2), dim=0),
    "unique_consecutive": lambda: torch.unique_consecutive(K),
    "repeat_interleave": lambda: A[0].repeat_interleave(torch.tensor([2, 0, 1])),
    "bincount": lambda: torch.bincount(K),
    "equal doubles": lambda: A.double() == A.double().t().t(),
}


@pytest.mark.parametrize("name", BY_VALUE)
def test_positions_and_choices_by_value_are_torchs(name: str):
    wanted = BY_VALUE[name]()
    assert torch.equal(in_a_block(BY_VALUE[name]), wanted)


def test_what_is_chosen_by_a_mask_has_a_gradient():
    x = A.clone().requires_grad_()

    def run():
        (x[x > 0] ** 2).sum().backward()
        first, x.grad = x.grad, None
        x.masked_select(x > 2.6).sum().backward()
        return first, x.grad

    first, second = in_a_block(run)
    assert first.tolist() == torch.where(A > 0, 2 * A, 0.0).tolist()
    assert second.tolist() == (A > 2.6).float().tolist()


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.index"):
        in_a_block(lambda: A[torch.tensor([True, False, True])])


def test_values_that_torch_would_choose_or_add_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="of floats"):
        in_a_block(lambda: torch.unique(A))
    with pytest.raises(UnsupportedOperatorError, match="bincount with weights"):
        in_a_block(lambda: torch.bincount(K, weights=torch.rand(5)))


def test_closeness():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([1.0, 1.0, inf, inf, nan, 0.0, 5.0])
    y = torch.tensor([1.0 + 2**-20, 1.1, inf, -inf, nan, 1e-9, inf])
    for options in ({}, {"equal_nan": True}, {"rtol": 0.2, "atol": 0.0}):
        found = in_a_block(lambda options=options: torch.isclose(x, y, **options))
        assert found.tolist() == torch.isclose(x, y, **options).tolist()
    assert in_a_block(lambda: torch.allclose(x[:1], y[:1]))
    assert not in_a_block(lambda: torch.allclose(x, y))
    assert in_a_block(lambda: torch.allclose(K, K.clone()))


def test_inference_mode_takes_the_contracts_kernels():
    """There autograd takes no operator apart, so the block does."""
    torch.manual_seed(1)
    layer, x = torch.nn.Linear(5, 3), torch.randn(2, 4, 5)

    def run(mode: Callable[[], object]):
        with tallystick.reproducible("ordered/1") as block, mode():
            return torch.matmul(layer(x), x[0, :3]).numpy().tobytes(), block.operators

    wanted, operators = run(torch.no_grad)
    assert run(torch.inference_mode) == (wanted, operators)
    assert operators["aten.addmm"] == 1


def test_a_gradient_that_a_program_knows_stays_whole():
    """torch has a composite of it, which autograd does not take in a backward pass."""
    x = torch.linspace(-2, 2, 9, requires_grad=True)
    with tallystick.reproducible("ordered/1") as block:
        torch.nn.functional.silu(x).sum().backward()
    assert block.operators["aten.silu_backward"] == 1
    assert block.operators["aten.sigmoid"] == 0


def test_qr_has_lapacks_signs_and_as_many_columns_as_a_layer_has():
    a = torch.randn(100, 70, generator=torch.Generator().manual_seed(2))
    q, r = in_a_block(lambda: torch.linalg.qr(a))
    wanted = torch.linalg.qr(a.double())
    torch.testing.assert_close(q.double(), wanted.Q, rtol=0, atol=1e-5)
    torch.testing.assert_close(r.double(), wanted.R, rtol=0, atol=1e-4)
    triangle = torch.tensor([[2.0, 1.0], [0.0, -3.0]])
    assert in_a_block(lambda: torch.linalg.qr(triangle).R).tolist() == triangle.tolist()
    weight = in_a_block(lambda: torch.nn.init.orthogonal_(torch.empty(6, 80)))
    torch.testing.assert_close(weight @ weight.T, torch.eye(6), rtol=0, atol=1e-5)
