"""Parameters that a step function changes in place, before, between and behind its updates (PROGRAM
5.6): each committed state is that of the plain loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError

X = torch.randn(48, 3, generator=torch.Generator().manual_seed(8))
Z = torch.randn(48, 4, generator=torch.Generator().manual_seed(9))
STEPS, LIMIT = 12, 0.1
StepFunction = Callable[[Any, dict[str, Tensor], Any], Tensor]


class Nets(nn.Module):
    """A generator, a critic, and a frozen copy of the generator that follows it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.critic = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.average = copy.deepcopy(self.generator).requires_grad_(False)


def critics(net: Any, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = net.critic(net.generator(batch["z"]).detach()).mean()
    return found - net.critic(batch["x"]).mean()


def clamp(net: Any) -> None:
    with torch.no_grad():
        for p in net.critic.parameters():
            p.clamp_(-LIMIT, LIMIT)


def follow(net: Any) -> None:
    with torch.no_grad():
        for one, other in zip(net.average.parameters(), net.generator.parameters(), strict=True):
            one.lerp_(other, 0.2)


def between(net: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    loss = critics(net, batch)
    update("critic", loss)
    clamp(net)
    update("generator", -net.critic(net.generator(batch["z"])).mean())
    return loss


def through_data(net: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    loss = critics(net, batch)
    update("critic", loss)
    for p in net.critic.parameters():
        p.data.clamp_(-LIMIT, LIMIT)
    update("generator", -net.critic(net.generator(batch["z"])).mean())
    return loss


def before_and_twice(net: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    for _ in range(2):
        clamp(net)
        update("critic", critics(net, batch))
    update("generator", -net.critic(net.generator(batch["z"])).mean())
    return critics(net, batch)


def behind(net: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    """The clamp and the average come last: only the next step reads what they leave."""
    loss = critics(net, batch)
    update("critic", loss)
    apart = (net.average(batch["z"]) - net.generator(batch["z"])).pow(2).mean()
    update("generator", apart - net.critic(net.generator(batch["z"])).mean())
    clamp(net)
    follow(net)
    return loss


def unchanged(net: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    loss = critics(net, batch)
    update("critic", loss)
    update("generator", -net.critic(net.generator(batch["z"])).mean())
    return loss


def loop_of(step: StepFunction, **options: Any) -> Loop:
    def signed(out: Path) -> Any:
        rules = {"critic": tallystick.RMSprop(lr=2e-2), "generator": tallystick.Adam(lr=1e-2)}
        captured = tallystick.capture(Nets(), step, {"x": X[:8], "z": Z[:8]}, rules, **options)
        captured.save_job(out / "job", {"x": X, "z": Z}, steps=STEPS)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(net: Any, batches: Iterator[Any]) -> Iterator[Any]:
        of = {
            "critic": torch.optim.RMSprop(net.critic.parameters(), lr=2e-2),
            "generator": torch.optim.Adam(net.generator.parameters(), lr=1e-2),
        }

        def update(name: str, loss: Tensor) -> None:
            of[name].zero_grad()
            loss.backward(retain_graph=True)
            of[name].step()

        while True:
            step(net, next(batches), update)
            yield list(of.values())

    return Loop(Nets(), signed, plain, Order(True, 48, 8, 2, True), STEPS)


@pytest.mark.parametrize("step", [between, through_data, before_and_twice, behind])
def test_each_step_is_that_of_the_plain_loop(step: StepFunction, tmp_path: Path) -> None:
    case = Case(step.__name__, "capture", (), lambda: loop_of(step))
    run = case.make().signed(tmp_path)
    assert "first step" not in tallystick.load_job(tmp_path / "job").about  # it was compared
    found = compared(case, run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert tallystick.audit(tmp_path / "run", threads=1).accepted


@pytest.mark.parametrize("step", [between, behind])
def test_a_loop_without_the_change_is_another_one(step: StepFunction, tmp_path: Path) -> None:
    run = loop_of(step).signed(tmp_path)
    plain = Case("plain", "capture", (), lambda: loop_of(unchanged))
    assert compared(plain, run).outcome == "different"


def test_an_average_is_taken_of_what_the_change_leaves(tmp_path: Path) -> None:
    loop_of(behind, ema=0.9).signed(tmp_path)
    states = tallystick.load_job(tmp_path / "job").program.state_types
    assert "ema.critic.0.weight" in states


def late(net: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    loss = critics(net, batch)
    clamp(net)
    update("critic", loss)
    update("generator", -net.critic(net.generator(batch["z"])).mean())
    return loss


def test_a_change_after_the_reading_is_refused_as_torch_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="modified by an inplace operation"):
        loop_of(late).signed(tmp_path)
