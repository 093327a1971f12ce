"""Fifty steps of a small net: the captured program beside torch in float64 and in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tallystick.job.scalars import scalar_tables
from tallystick.program.capture import CapturedStep
from tallystick.program.executor import Executor

STEPS = 50
BATCH = {"x": ((16, 12), "f32"), "y": ((16,), "i64")}


def net() -> nn.Module:
    """Matrices with more rows than columns and fewer, a convolution's weight of three axes, a
    scale of no axis; smooth, so that a rounding stays small."""
    torch.manual_seed(41)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 8)
            self.conv = nn.Conv1d(1, 3, 3, padding=1)
            self.out = nn.Linear(24, 5)
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Tensor) -> Tensor:
            x = self.down(torch.tanh(self.up(x))) * self.scale
            found: Tensor = self.out(torch.tanh(self.conv(x[:, None])).flatten(1))
            return found

    return Net()


def loss(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["x"]), batch["y"])


def batches() -> list[dict[str, Tensor]]:
    """Learnable records: classes by a fixed projection."""
    generator = torch.Generator().manual_seed(17)
    rule = torch.randn(12, 5, generator=generator)
    found = []
    for _ in range(STEPS):
        x = torch.randn(16, 12, generator=generator)
        found.append({"x": x, "y": (x @ rule).argmax(1)})
    return found


@dataclass
class Run:
    """Losses and the final parameters in binary64."""

    losses: list[float] = field(default_factory=list)
    final: dict[str, np.ndarray] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)


def ours(step: CapturedStep, schedules: Any = None) -> Run:
    assert step.initial_state is not None
    state = {name: array.copy() for name, array in step.initial_state.items()}
    tables = scalar_tables(step.scalars, schedules, STEPS)
    executor, run = Executor(step.program), Run()
    for number, batch in enumerate(batches()):
        scalars = {n: t if isinstance(t, float) else t[number] for n, t in tables.items()}
        arrays = {k: v.numpy() for k, v in batch.items()}
        made = executor.run_step(state, arrays, scalars, (0, number))
        assert made.loss is not None
        run.losses.append(float(made.loss))
        if "metric.grad_norm" in made.outputs:
            run.norms.append(float(made.outputs["metric.grad_norm"]))
    run.final = {name: np.array(array, np.float64) for name, array in state.items()}
    return run


Stepper = Callable[[nn.Module], Callable[[], None]]


def torchs(stepper: Stepper, dtype: torch.dtype, module: nn.Module | None = None) -> Run:
    """`stepper(module)` makes the call after each backward pass."""
    module = (net() if module is None else module).to(dtype)
    run, after = Run(), stepper(module)
    for batch in batches():
        module.zero_grad()
        value = loss(module, {"x": batch["x"].to(dtype), "y": batch["y"]})
        value.backward()  # type: ignore[no-untyped-call]
        after()
        run.losses.append(value.item())
    run.final = {f"param.{n}": p.detach().double().numpy() for n, p in module.named_parameters()}
    return run


def largest(one: Run, other: Run) -> float:
    """The largest difference of two runs' losses."""
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))


def distance(one: Run, other: Run) -> float:
    """The Euclidean distance of the final parameters."""
    return math.hypot(*(float(np.linalg.norm(one.final[n] - v)) for n, v in other.final.items()))


def assert_beside(found: Run, exact: Run, single: Run, learns: bool = True) -> tuple[float, float]:
    """Ours is as near to float64 as torch's float32 is; the two largest differences of losses.

    Sixteen times torch's own error, as in the comparison of the first step, and fifty steps'
    roundings of losses of order one.
    """
    if learns:
        assert exact.losses[-1] < exact.losses[0] - 0.05, "the run learns nothing"
    error, own = largest(found, exact), largest(single, exact)
    assert error <= 16 * own + 50 * 2.0**-23, f"losses differ by {error:.3g}, float32 by {own:.3g}"
    far, own_far = distance(found, exact), distance(single, exact)
    assert far <= 16 * own_far + 50 * 2.0**-22, f"weights: {far:.3g}, float32 {own_far:.3g}"
    return error, own
