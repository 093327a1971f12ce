"""A call of torch's as a captured step and under `reproducible()`, against torch in binary64.

Floating operands are parameters, the others the batch. The loss is Σ weight·result over the call's
results, so the gradient of a weight is a result, element by element; integers count as floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tallystick
from tallystick.program.capture import capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

Call = Callable[..., Any]


class Called(nn.Module):
    def __init__(self, call: Call, operands: tuple[Any, ...]) -> None:
        super().__init__()
        self.call, self.batch, self.names = call, {}, []  # type: ignore[var-annotated]
        for k, x in enumerate(operands):
            if x.is_floating_point():
                setattr(self, f"p{k}", nn.Parameter(x.clone()))
            else:
                self.batch[f"p{k}"] = x
            self.names.append(f"p{k}")
        with torch.no_grad():
            made = self.results(self.batch)
        g = torch.Generator().manual_seed(3)
        self.weights = nn.ParameterList([torch.randn(y.shape, generator=g) for y in made])

    def results(self, batch: dict[str, Tensor]) -> list[Tensor]:
        made = self.call(*(batch[n] if n in batch else getattr(self, n) for n in self.names))
        return [made] if isinstance(made, Tensor) else list(made)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        made = zip(self.weights, self.results(batch), strict=True)
        terms = [(w * y.to(w.dtype)).sum() for w, y in made]
        return torch.stack(terms).sum()


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    result: Tensor = module(batch)
    return result


def check(call: Call, *operands: Tensor, eager: bool = True) -> list[str]:
    """Compare results and gradients; the names of the program's operators, in order."""
    module = Called(call, operands)
    step = capture(module, loss, module.batch, SGD(0.1), outputs_grads=True)
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in module.batch.items() if k in step.program.batch_types}
    found = Executor(step.program).run_step(step.initial_state, arrays, {"lr": 0.1}).outputs
    wide = Called(call, operands).double()
    wide.load_state_dict(module.state_dict())
    loss(wide, module.batch).backward()
    for name, parameter in wide.named_parameters():
        got, exact = found.get(f"grad.{name}"), parameter.grad
        if got is None:
            assert exact is None or not exact.any(), f"{name} has a gradient"
            continue
        wanted = np.zeros(got.shape) if exact is None else exact.numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=name)
    if eager:
        with tallystick.reproducible():
            loss(module, module.batch).backward()
        for name, parameter in module.named_parameters():
            if f"grad.{name}" in found and parameter.grad is not None:
                own = parameter.grad.numpy()
                assert own.tobytes() == found[f"grad.{name}"].tobytes(), name
    return [node.op for node in step.program.nodes]
