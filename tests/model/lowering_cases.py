"""One way to check a lowered function: captured, eager under the contract, and in binary64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tallystick
from tallystick.program.capture import capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

# PyTorch's own tolerance for binary32 operators (torch.testing._internal, op_db).
RTOL, ATOL = 1.3e-6, 1e-5


@dataclass(frozen=True)
class Case:
    """`function(*trained, *fixed)` is differentiated for `trained`, float32 tensors."""

    function: Callable[..., Any]
    trained: tuple[Tensor, ...]
    fixed: tuple[Tensor, ...] = ()
    rtol: float = RTOL


class _Calls(nn.Module):
    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        super().__init__()
        self.trained = nn.ParameterList(nn.Parameter(t.to(dtype)) for t in case.trained)
        self.function = case.function

    def forward(self, fixed: Sequence[Tensor]) -> list[Tensor]:
        made = self.function(*self.trained, *fixed)
        return list(made) if isinstance(made, (list, tuple)) else [made]


def _total(outputs: list[Tensor]) -> Tensor:
    """A scalar whose gradient for each output differs from element to element."""
    parts = []
    for y in outputs:
        slope = torch.arange(y.numel(), dtype=torch.float32).to(y.dtype).reshape(y.shape)
        parts.append((y * (slope * 0.25 + 0.5)).sum())
    return torch.stack(parts).sum()


def _floats(outputs: list[Tensor]) -> list[Tensor]:
    return [y for y in outputs if y.is_floating_point()]


def _loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return _total(_floats(module([batch[k] for k in sorted(batch)])))


def _in_binary64(case: Case) -> tuple[Tensor, list[Tensor]]:
    module = _Calls(case, torch.float64)
    fixed = [t.double() if t.is_floating_point() else t for t in case.fixed]
    total = _total(_floats(module(fixed)))
    grads = torch.autograd.grad(total, list(module.trained), allow_unused=True)
    return total.detach(), [
        torch.zeros_like(p) if g is None else g for p, g in zip(module.trained, grads, strict=True)
    ]


def _close(what: str, got: np.ndarray, wanted: Tensor, rtol: float) -> None:
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.numpy(), rtol=rtol, atol=ATOL, err_msg=what
    )


def check(case: Case, program: Callable[[Any], None] | None = None) -> None:
    """Captured loss and gradients are binary64's within op_db's tolerance, and eager's in bits.

    `program` gets the captured program.
    """
    module = _Calls(case, torch.float32)
    batch = {f"fixed{i}": t for i, t in enumerate(case.fixed)} or {"unused": torch.zeros(1)}
    run = (lambda m, b: _loss(m, b)) if case.fixed else (lambda m, b: _loss(m, {}))
    step = capture(module, run, batch, SGD(0.0), outputs_grads=True)
    if program is not None:
        program(step.program)
    assert step.initial_state is not None
    result = Executor(step.program).run_step(
        step.initial_state, {k: v.numpy() for k, v in batch.items()}, {"lr": 0.0}
    )
    with tallystick.reproducible("ordered/1"):
        loss = run(module, batch)
        eager = torch.autograd.grad(loss, list(module.trained), allow_unused=True)
    total, wanted = _in_binary64(case)
    assert result.loss is not None
    scale = max(1.0, float(total.abs()))
    np.testing.assert_allclose(
        float(result.loss), float(total), rtol=case.rtol, atol=ATOL * scale, err_msg="loss"
    )
    assert np.asarray(result.loss).tobytes() == loss.detach().numpy().tobytes()
    for i, (exact, other) in enumerate(zip(wanted, eager, strict=True)):
        name = f"grad.trained.{i}"
        if other is None:
            assert name not in result.outputs or not result.outputs[name].any()
            continue
        _close(name, result.outputs[name], exact, case.rtol)
        assert result.outputs[name].tobytes() == other.contiguous().numpy().tobytes(), name


def values(function: Callable[..., Any], *operands: Any) -> tuple[Any, Any]:
    """`function` under the contract, and by torch's own kernels on the same operands."""
    with tallystick.reproducible("ordered/1"):
        ours = function(*operands)
    return ours, function(*operands)


def assert_same_values(
    function: Callable[..., Any], *operands: Any, rtol: float = RTOL, atol: float = 0.0
) -> None:
    """torch's values, NaN where it has NaN, and the signs of zeros."""
    ours, torchs = values(function, *operands)
    pairs = zip(ours, torchs, strict=True) if isinstance(torchs, tuple) else [(ours, torchs)]
    for got, wanted in pairs:
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)
        if got.is_floating_point():
            zeros = wanted == 0
            assert torch.equal(torch.signbit(got)[zeros], torch.signbit(wanted)[zeros])
