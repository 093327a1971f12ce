"""One call of a torch function as a captured step, compared with torch in binary64.

The module holds the call's float tensors as parameters; its integer tensors are the batch. The
loss is Σ weight·result, so the gradient of `weight` is the result itself, element by element.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tallystick
from tallystick.program.capture import capture
from tallystick.program.capture.api import CapturedStep
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

Call = Callable[..., Tensor]


@dataclass(frozen=True)
class Op:
    """A call and the makers of its operands. An operand is a shape (a normal float tensor) or a
    tensor as it is. `eager` also compares `reproducible()` bit for bit."""

    call: Call
    operands: Sequence[Any]
    eager: bool = True
    frozen: tuple[int, ...] = ()


class OneCall(nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.op, self.batch = op, {}
        self.names: list[tuple[bool, str]] = []
        for position, given in enumerate(op.operands):
            made = given
            if not isinstance(given, Tensor):
                made = torch.randn(given, generator=generator, dtype=torch.float32)
            trained = made.is_floating_point() and position not in op.frozen
            self.names.append((trained, f"p{position}"))
            if trained:
                setattr(self, f"p{position}", nn.Parameter(made.clone()))
            else:
                self.batch[f"p{position}"] = made
        with torch.no_grad():
            shape = self.result(self.batch).shape
        self.weight = nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float32))

    def result(self, batch: dict[str, Tensor]) -> Tensor:
        operands = [getattr(self, n) if trained else batch[n] for trained, n in self.names]
        result: Tensor = self.op.call(*operands)
        return result

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return (self.weight * self.result(batch)).sum()


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    result: Tensor = module(batch)
    return result


def captured(op: Op) -> CapturedStep:
    module = OneCall(op)
    return capture(module, loss, module.batch, SGD(0.1), outputs_grads=True)


def check(op: Op) -> list[str]:
    """Compare values and gradients; the names of the program's operators."""
    module = OneCall(op)
    step = capture(module, loss, module.batch, SGD(0.1), outputs_grads=True)
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in module.batch.items()}
    result = Executor(step.program).run_step(
        step.initial_state,
        {k: v for k, v in arrays.items() if k in step.program.batch_types},
        {"lr": 0.1},
    )
    wide = OneCall(op).double()
    batch = {k: v.double() if v.is_floating_point() else v for k, v in module.batch.items()}
    with _default_dtype(torch.float64):
        loss(wide, batch).backward()
    for name, parameter in wide.named_parameters():
        got = result.outputs.get(f"grad.{name}")
        if got is None:
            assert parameter.grad is None or not parameter.grad.any(), f"{name} has a gradient"
            continue
        assert parameter.grad is not None
        exact = parameter.grad.numpy()
        scale = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
        np.testing.assert_allclose(
            got, exact, rtol=2e-5, atol=4e-6 * scale + 1e-12, err_msg=name
        )
    if op.eager:
        with tallystick.reproducible():
            loss(module, module.batch).backward()
        for name, parameter in module.named_parameters():
            if f"grad.{name}" in result.outputs:
                assert parameter.grad is not None
                got = parameter.grad.numpy()
                assert got.tobytes() == result.outputs[f"grad.{name}"].tobytes(), name
    return [node.op for node in step.program.nodes]
