"""Values and gradients where tensors are empty or hold infinities and NaN (PROGRAM 5.2, 5.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, ones

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD, AdamW
from tallystick_bench.opdb.case import Case, Results
from tallystick_bench.opdb.verdict import same_bits, worst_of

INF, NAN = math.inf, math.nan


def ways(function: Callable[..., Any], *operands: Any, **options: Any) -> tuple[Results, Results]:
    """By torch in float64 and in the block, whose bits the captured program must have."""
    case = Case(function, SimpleNamespace(input=operands[0], args=operands[1:], kwargs=options))
    truth, ours = case.truth(), case.ours()
    assert same_bits(ours, case.captured()) == ""
    assert not ours.arithmetic
    return truth, ours


def wanted(*values: float, shape: tuple[int, ...] | None = None) -> Tensor:
    made = torch.tensor(values, dtype=torch.float32)
    return (made if shape is None else made.reshape(shape)).requires_grad_()


def row(*values: float) -> Tensor:
    return wanted(*values, shape=(1, len(values)))


def _searches(size: int, right: bool) -> tuple[Tensor, ...]:
    """Searches in bounds that end in NaN, hold NaN here and there, or are in no order."""
    given = torch.arange(size, dtype=torch.float32)
    ended = torch.where(given < size // 2, given, NAN)
    spread = torch.where(given % 3 == 0, NAN, given)
    values = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, 3.5, 4.0, 12.0, INF, -INF, NAN])
    whole = (given.to(torch.int64), torch.tensor([[-1, 0, 3], [4, 5, 12]]))
    return (
        *(torch.searchsorted(b, values, right=right) for b in (given, ended, spread, -given)),
        torch.bucketize(values, ended, right=right),
        torch.searchsorted(whole[0], whole[1], right=right, out_int32=True),
        torch.searchsorted(torch.stack([given, -given]), values.repeat(2, 1), right=right),
    )


def _instances(x: Tensor, mean: Tensor, var: Tensor, *scale: Tensor) -> tuple[Tensor, ...]:
    """With running statistics, which the call changes."""
    mean, var = mean.clone(), var.clone()
    return F.instance_norm(x, mean, var, *scale, True, 0.3), mean, var


EDGES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "product of nothing": (torch.prod, (wanted(),)),
    "product along nothing": (torch.prod, (wanted(shape=(3, 0)), 1)),
    "products of nothing": (torch.prod, (wanted(shape=(0, 3)), 1, True)),
    "product of nothing beside": (lambda x, y: x.prod() * y, (wanted(), wanted(2.0, 3.0))),
    "gather by an empty index": (torch.gather, (wanted(1.0, 2.0), 0, torch.zeros(2, 0).long())),
    **{
        f"cdist of broadcast batches, p = {p}": (
            torch.cdist,
            (wanted(*range(4), shape=(2, 1, 1, 2)), wanted(*range(4), shape=(1, 2, 2)), p),
        )
        for p in (0.0, 1.0, 2.0, 3.0)
    },
    "batch_norm by running statistics": (
        F.batch_norm,
        (wanted(*range(24), shape=(2, 3, 4)), ones(3), ones(3) + 1, wanted(1.0, 2.0, 3.0), ones(3)),
    ),
    "instance_norm": (
        _instances,
        (wanted(*range(24), shape=(2, 3, 4)), ones(3), ones(3), wanted(1.0, 2.0, 3.0), ones(3)),
    ),
    **{
        f"extremes and relu of {dtype}": (
            lambda x: (x.min(), x.max(), F.relu(x)),
            (torch.tensor([3, 0, 1]).to(dtype),),
        )
        for dtype in (torch.int64, torch.int32, torch.uint8)
    },
    "relu of what is below zero": (F.relu, (torch.tensor([-(2**63), -1, 0, 5]),)),
    **{
        f"logcumsumexp {values}": (torch.logcumsumexp, (row(*values), 1))
        for values in (
            (1.0, INF, 2.0, 3.0), (INF, 1.0, 2.0, 3.0), (-INF, 1.0, 2.0, -INF), (-INF, -INF),
            (INF, INF, 1.0, 0.0), (1.0, -INF, INF, -INF), (-INF, INF, 1.0, 2.0),
            (1.0, NAN, 2.0, 3.0),
        )
    },
    **{
        f"searchsorted {size} {right}": (_searches, (size, right))
        for size in (0, 1, 2, 3, 4, 5, 8, 13)
        for right in (False, True)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_is_as_in_float64_and_as_captured(name: str) -> None:
    function, operands = EDGES[name]
    truth, ours = ways(function, *operands)
    assert worst_of(ours, truth, 1.3e-6, 1e-5)[0] <= 1
    assert [g is None for g in ours.gradients] == [g is None for g in truth.gradients]


def test_normal_numbers_have_a_gradient_of_zero() -> None:
    """As torch's; an infinite mean has one too."""
    mean, deviation = wanted(0.5, INF, -2.0), wanted(1.0, 2.0, 3.0)
    with tallystick.reproducible(seed=5) as block:
        drawn = torch.normal(mean, deviation)
        torch.autograd.backward(drawn.sum())
        block.draws = 0
        plain = torch.normal(mean.detach(), deviation.detach())
    assert drawn.detach().numpy().tobytes() == plain.numpy().tobytes()
    assert mean.grad is not None and mean.grad.tolist() == [0.0, 0.0, 0.0]
    assert deviation.grad is not None and deviation.grad.tolist() == [0.0, 0.0, 0.0]


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0]))


def named(metric: str) -> Callable[[Any, dict[str, Tensor]], Any]:
    def loss(module: Any, batch: dict[str, Tensor]) -> Any:
        return (module.w * batch["x"]).sum(), {metric: module.w.detach().sum() + 40}

    return loss


def test_a_metric_with_the_name_of_the_clipped_norm_is_refused() -> None:
    """It would be overwritten in silence."""
    batch = {"x": ((2,), "f32")}
    with pytest.raises(UsageError, match=r"metric named grad_norm.*another name"):
        capture(Line(), named("grad_norm"), batch, SGD(0.1), clip_norm=1.0)
    step = capture(Line(), named("grad_norm"), batch, SGD(0.1))
    assert step.initial_state is not None
    x = {"x": torch.ones(2).numpy()}
    found = Executor(step.program).run_step(step.initial_state, x, {"lr": 0.1})
    assert found.outputs["metric.grad_norm"] == 43.0


def test_a_metric_with_the_name_of_one_updates_norm_is_refused() -> None:
    def step(module: Any, batch: dict[str, Tensor], update: Any) -> Any:
        loss = (module.w * batch["x"]).sum()
        update("w", loss)
        return loss, {"grad_norm.0": loss.detach()}

    with pytest.raises(UsageError, match=r"metric named grad_norm\.0"):
        capture(Line(), step, {"x": ((2,), "f32")}, {"w": AdamW(0.1)}, clip_norm=1.0)
