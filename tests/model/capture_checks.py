"""Shared by tests of capture: one module around a function, and its step against float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.program.capture import CapturedStep, capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

Function = Callable[..., Tensor]


class Around(nn.Module):
    """`function(self, x * weight)`; attributes are its own, modules among them are registered."""

    def __init__(self, function: Function, shape: tuple[int, ...] = (3, 4), **held: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.function = [function]
        self.shape = shape
        self.weight = nn.Parameter(torch.rand(shape) + 0.5)
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.function[0](self, x * self.weight)


def squares(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    y: Tensor = module(batch["x"])
    return (y * y).sum()


def example(module: Around) -> Tensor:
    return torch.rand(module.shape, generator=torch.Generator().manual_seed(9)) + 0.1


def step_of(module: Around, **more: Any) -> CapturedStep:
    return capture(module, squares, {"x": (module.shape, "f32")}, SGD(0.1), **more)


def results(step: CapturedStep, x: Tensor, rng: tuple[int, int] = (5, 0)) -> dict[str, Any]:
    """Outputs of one step without change of the weights, `loss` and next buffers among them."""
    assert step.initial_state is not None
    state = {k: v.copy() for k, v in step.initial_state.items()}
    used = rng if step.program.uses_rng else None
    done = Executor(step.program).run_step(state, {"x": x.numpy()}, {"lr": 0.0}, used)
    return {"loss": done.loss, **done.outputs, **state}


def agrees(module: Around, rtol: float = 2e-5) -> CapturedStep:
    """Loss, gradients and buffers of the captured step against the module in float64."""
    step, x = step_of(module, outputs_grads=True), example(module)
    found = results(step, x)
    module.double()
    for name, value in list(vars(module).items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            setattr(module, name, value.double())
    loss = squares(module, {"x": x.double()})
    loss.backward()
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=rtol)
    for name, parameter in module.named_parameters():
        mine = found.get(f"grad.{name}")
        assert (mine is None) == (parameter.grad is None), name
        if mine is not None:
            size = float(parameter.grad.abs().max())
            np.testing.assert_allclose(
                mine, parameter.grad.numpy(), rtol=rtol, atol=rtol * size, err_msg=name
            )
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(found[f"buffer.{name}"], buffer.numpy(), rtol=rtol, atol=rtol)
    return step


def first_step_agrees(step: CapturedStep, x: Tensor, where: Path) -> None:
    """As `save_job` compares it (PROGRAM 5.9)."""
    from tallystick.job.save import save_job

    job = save_job(step, where / "job", {"x": x.repeat(2, *[1] * (x.dim() - 1))}, steps=2, seed=5)
    assert "first step" not in job.about
