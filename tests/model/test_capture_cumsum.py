"""Cumulative sums in captured programs, with their gradient: flip, cumsum, flip (NUMERICS 3.8)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

from tallystick.program.capture import capture  # noqa: E402
from tallystick.program.executor import Executor  # noqa: E402
from tallystick.program.optimizers import SGD  # noqa: E402


class Running(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 7, 3))
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(self.weight * x, self.dim) ** 2


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    summed: Tensor = module(batch["x"]).sum()
    return summed


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_values_and_gradient_are_torchs_in_binary64(dim: int) -> None:
    torch.manual_seed(8)
    module, x = Running(dim), torch.randn(5, 7, 3)
    step = capture(module, loss, {"x": x}, SGD(0.1), outputs_grads=True)
    assert step.initial_state is not None
    used = [node.op for node in step.program.nodes]
    assert used.count("aten.cumsum") == 2 and "aten.index_select" in used
    result = Executor(step.program).run_step(step.initial_state, {"x": x.numpy()}, {"lr": 0.1})

    wide = Running(dim).double()
    wide.load_state_dict(module.state_dict())
    wanted = loss(wide, {"x": x.double()})
    wanted.backward()
    assert wide.weight.grad is not None and result.loss is not None
    np.testing.assert_allclose(result.loss, wanted.item(), rtol=1e-5)
    got = result.outputs["grad.weight"]
    np.testing.assert_allclose(got, wide.weight.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_a_cumulative_sum_of_integers_is_made_of_sums_of_slices() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(7))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * (x > 0).cumsum(-1)

    x = torch.tensor([1.0, -1, 2, 3, -1, 1, 0])
    step = capture(Positions(), loss, {"x": x}, SGD(0.1), outputs_grads=True)
    assert "aten.cumsum" not in [node.op for node in step.program.nodes]
    assert step.initial_state is not None
    result = Executor(step.program).run_step(step.initial_state, {"x": x.numpy()}, {"lr": 0.1})
    np.testing.assert_array_equal(result.outputs["grad.weight"], (x > 0).cumsum(-1).numpy())
