"""Parameters that the loss changes in place train as the plain loop does (PROGRAM 5.6)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import UsageError

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(5))
Y = (X[:, 0] > 0).long()
STEPS = 12
Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor]


class Pair(nn.Module):
    """A net, and a frozen copy of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.target = copy.deepcopy(self.body).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.body(x)))


def _loss(net: Any, batch: dict[str, Tensor]) -> Tensor:
    apart = (net.target(batch["x"]) - net.body(batch["x"])).pow(2).mean()
    return F.cross_entropy(net(batch["x"]), batch["y"]) + apart


def clamped(net: Any, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        for parameter in net.body.parameters():
            parameter.clamp_(-0.2, 0.2)
    return _loss(net, batch)


def clamped_data(net: Any, batch: dict[str, Tensor]) -> Tensor:
    for parameter in net.body.parameters():
        parameter.data.clamp_(-0.2, 0.2)
    return _loss(net, batch)


def following(net: Any, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        for one, other in zip(net.target.parameters(), net.body.parameters(), strict=True):
            one.mul_(0.9).add_(other, alpha=0.1)
    return _loss(net, batch)


def following_data(net: Any, batch: dict[str, Tensor]) -> Tensor:
    for one, other in zip(net.target.parameters(), net.body.parameters(), strict=True):
        one.data = one.data * 0.9 + other.data * 0.1
    return _loss(net, batch)


def following_afterwards(net: Any, batch: dict[str, Tensor]) -> Tensor:
    loss = _loss(net, batch)
    with torch.no_grad():
        for one, other in zip(net.target.parameters(), net.body.parameters(), strict=True):
            one.copy_(0.9 * one + 0.1 * other)
    return loss


def loop_of(loss: Loss) -> Loop:
    def signed(out: Path) -> Any:
        net = Pair()
        step = tallystick.capture(
            net, loss, {"x": X[:8], "y": Y[:8]}, tallystick.AdamW(lr=5e-2), clip_norm=1.0
        )
        step.save_job(out / "job", {"x": X, "y": Y}, steps=STEPS)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(net: nn.Module, batches: Any) -> Any:
        optimizer = torch.optim.AdamW(
            [p for p in net.parameters() if p.requires_grad], lr=5e-2, weight_decay=0.01
        )
        while True:
            optimizer.zero_grad()
            loss(net, next(batches)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            yield optimizer

    return Loop(Pair(), signed, plain, Order(True, 48, 8, 2, True), STEPS)


@pytest.mark.parametrize(
    "loss", [clamped, clamped_data, following, following_data, following_afterwards]
)
def test_each_step_is_that_of_the_plain_loop(loss: Loss, tmp_path: Path) -> None:
    case = Case(loss.__name__, "capture", (), lambda: loop_of(loss))
    run = case.make().signed(tmp_path)
    found = compared(case, run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert tallystick.audit(tmp_path / "run", threads=1).accepted


def test_a_loop_without_the_change_is_another_one(tmp_path: Path) -> None:
    """The comparison sees the change: without it the plain loop goes elsewhere."""
    run = loop_of(clamped).signed(tmp_path)
    plain = Case("plain", "capture", (), lambda: loop_of(_loss))
    assert compared(plain, run).outcome == "different"


def halved_at_the_end(net: Any, batch: dict[str, Tensor]) -> Tensor:
    loss = _loss(net, batch)
    with torch.no_grad():
        net.head.weight.mul_(0.5)
    return loss


def test_a_change_after_the_reading_is_refused_as_torch_refuses_it() -> None:
    with pytest.raises(UsageError, match="modified by an inplace operation"):
        tallystick.capture(
            Pair(), halved_at_the_end, {"x": X[:8], "y": Y[:8]}, tallystick.SGD(lr=0.1)
        )


def test_micro_batches_and_committed_validation_are_refused_by_name(tmp_path: Path) -> None:
    batch = {"x": X[:8], "y": Y[:8]}
    with pytest.raises(UsageError, match=r"changes the parameter body\.bias.*micro-batches"):
        tallystick.capture(Pair(), clamped, batch, tallystick.SGD(lr=0.1), micro_batches=2)
    rows = [(x, y) for x, y in zip(X, Y, strict=True)]

    def loss(net: nn.Module, batch: Any) -> Tensor:
        return clamped(net, {"x": batch[0], "y": batch[1]})

    net = Pair()
    with pytest.raises(UsageError, match=r"validation loss changes the parameter body\.bias"):
        tallystick.fit(
            net, loss, rows, torch.optim.SGD([*net.body.parameters(), *net.head.parameters()], 0.1),
            batch_size=8, epochs=1, validation=rows, out=tmp_path, progress=False,
        )  # fmt: skip
