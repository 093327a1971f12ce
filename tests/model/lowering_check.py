"""One call of a torch function as a captured step, compared with torch in binary64.

The module holds the call's float tensors as parameters; its integer tensors are the batch. The
loss is Σ weight·result, so the gradient of `weight` is the result itself, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tallystick
from tallystick.program.capture import capture
from tallystick.program.capture.api import CapturedStep
from tallystick.program.capture.torch_step import default_dtype
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

Call = Callable[..., Tensor]


@dataclass(frozen=True)
class Op:
    """A call and its operands: a shape stands for a normal tensor that is trained.

    `eager` also compares `reproducible()`, bit for bit. `frozen` names operands by position that
    are not trained.
    """

    call: Call
    operands: Sequence[Any]
    eager: bool = False
    frozen: tuple[int, ...] = ()


def integers(high: int, *shape: int) -> Tensor:
    """Integers of [0, high), the same in every run."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


class OneCall(nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.call, self.batch = op.call, {}
        self.names: list[tuple[bool, str]] = []
        for position, given in enumerate(op.operands):
            made = given
            if not isinstance(given, Tensor):
                made = torch.randn(given, generator=generator, dtype=torch.float32)
            trained = made.is_floating_point() and position not in op.frozen
            name = f"operand{position}"
            self.names.append((trained, name))
            if trained:
                setattr(self, name, nn.Parameter(made.clone()))
            else:
                self.batch[name] = made
        with torch.no_grad():
            shape = self.result(self.batch).shape
        self.weight = nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float32))

    def result(self, batch: dict[str, Tensor]) -> Tensor:
        operands = [getattr(self, n) if trained else batch[n] for trained, n in self.names]
        return self.call(*operands)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return (self.weight * self.result(batch)).sum()


def _loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    result: Tensor = module(batch)
    return result


def captured(module: OneCall) -> CapturedStep:
    return capture(module, _loss, module.batch, SGD(0.1), outputs_grads=True)


def check(op: Op) -> list[str]:
    """Values and gradients are torch's. The names of the program's operators."""
    module = OneCall(op)
    step = captured(module)
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in module.batch.items() if k in step.program.batch_types}
    outputs = Executor(step.program).run_step(step.initial_state, arrays, {"lr": 0.1}).outputs

    wide = OneCall(op).double()
    batch = {k: v.double() if v.is_floating_point() else v for k, v in module.batch.items()}
    with default_dtype(torch.float64):
        _loss(wide, batch).backward()
    for name, parameter in wide.named_parameters():
        got = outputs.get(f"grad.{name}")
        if got is None:
            assert parameter.grad is None or not parameter.grad.any(), f"{name} has a gradient"
            continue
        assert parameter.grad is not None
        exact = parameter.grad.numpy()
        scale = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
        np.testing.assert_allclose(got, exact, rtol=2e-5, atol=4e-6 * scale, err_msg=name)
    if op.eager:
        _same_bits(module, outputs)
    return [node.op for node in step.program.nodes]


def _same_bits(module: OneCall, outputs: dict[str, np.ndarray]) -> None:
    with tallystick.reproducible():
        _loss(module, module.batch).backward()
    for name, parameter in module.named_parameters():
        if f"grad.{name}" in outputs:
            assert parameter.grad is not None
            assert parameter.grad.numpy().tobytes() == outputs[f"grad.{name}"].tobytes(), name
