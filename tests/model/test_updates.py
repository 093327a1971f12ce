"""Several optimizers in one step (PROGRAM 5.16): a GAN, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adam,
    AdamW,
    Lion,
    ParameterGroup,
    ParameterGroups,
)

STEPS = 100
RECORDS = np.random.default_rng(0).standard_normal((STEPS, 6, 4)).astype(np.float32)
OPTIMIZERS = {
    "discriminator": AdamW(lr=0.01, betas=(0.5, 0.99), weight_decay=0.1),
    "generator": Adam(lr=0.02, betas=(0.6, 0.999)),
}


class Gan(nn.Module):
    """With running statistics in the generator and a mask in the discriminator."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.generator = nn.Sequential(
            nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)
        )
        self.discriminator = nn.Sequential(
            nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Dropout(dropout), nn.Linear(6, 1)
        )


def judged(module: Any, x: Tensor, truth: float) -> Tensor:
    found = module.discriminator(x)
    return F.binary_cross_entropy_with_logits(found, torch.full_like(found, truth))


def gan_step(module: Any, batch: dict[str, Tensor], update: Any) -> Any:
    real = batch["x"]
    fake = module.generator(torch.randn(real.shape[0], 3))
    d_loss = judged(module, real, 1.0) + judged(module, fake.detach(), 0.0)
    update("discriminator", d_loss)
    g_loss = judged(module, fake, 1.0)
    update("generator", g_loss)
    return d_loss + g_loss, {"d": d_loss, "g": g_loss}


BATCH = {"x": ((6, 4), "f32")}


def trained(module: nn.Module, steps: int, **options: Any) -> tuple[list[float], dict[str, Any]]:
    step = capture(module, gan_step, BATCH, OPTIMIZERS, **options)
    assert step.initial_state is not None
    state, losses, executor = step.initial_state, [], Executor(step.program)
    scalars = {name: float(rate) for name, rate in step.scalars.items()}
    for number in range(steps):
        found = executor.run_step(state, {"x": RECORDS[number]}, scalars, (7, number))
        state, losses = found.state, [*losses, float(found.loss)]
    return losses, state


def test_a_gan_has_the_bits_of_stock_optimizers_in_reproducible() -> None:
    """One hundred steps of torch's own loop, with its AdamW and Adam."""
    losses, state = trained(Gan(), STEPS)
    module = Gan()
    d_rule, g_rule = OPTIMIZERS.values()
    d = torch.optim.AdamW(
        module.discriminator.parameters(), lr=0.01, betas=d_rule.betas, weight_decay=0.1
    )
    g = torch.optim.Adam(module.generator.parameters(), lr=0.02, betas=g_rule.betas)
    eager = []
    with tallystick.reproducible("ordered/1", seed=7) as block:
        for number in range(STEPS):
            real = torch.from_numpy(RECORDS[number])
            fake = module.generator(torch.randn(real.shape[0], 3))
            d.zero_grad()
            d_loss = judged(module, real, 1.0) + judged(module, fake.detach(), 0.0)
            d_loss.backward()
            d.step()
            g.zero_grad()
            g_loss = judged(module, fake, 1.0)
            g_loss.backward()
            g.step()
            eager.append((d_loss + g_loss).item())
            block.next_step()
    assert losses == eager and losses[0] != losses[-1]
    for name, value in (dict(module.named_parameters()) | dict(module.named_buffers())).items():
        kind = "buffer" if "running" in name or "num_batches" in name else "param"
        assert state[f"{kind}.{name}"].tobytes() == value.detach().numpy().tobytes(), name


def test_slots_scalars_and_outputs_are_named_by_the_optimizer() -> None:
    step = capture(Gan(), gan_step, BATCH, OPTIMIZERS, clip_norm=1.0, outputs_grads=True)
    assert set(step.scalars) == {"lr.discriminator", "lr.generator"}
    slots = {n for n in step.program.state_types if n.startswith("opt.beta")}
    assert slots == {f"opt.beta{i}_power.{g}" for i in (1, 2) for g in OPTIMIZERS}
    outputs = {name for name, _ in step.program.outputs}
    assert {"metric.d", "metric.g", "metric.grad_norm.0", "metric.grad_norm.1"} <= outputs
    assert "grad.0.discriminator.0.weight" in outputs and "grad.1.generator.0.weight" in outputs


def test_a_group_may_be_updated_more_than_once() -> None:
    """Two steps of the critic for one of the generator; its beta powers advance twice."""

    def step(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
        for _ in range(2):
            fake = module.generator(torch.randn(6, 3))
            update("discriminator", judged(module, fake.detach(), 0.0))
        loss = judged(module, module.generator(torch.randn(6, 3)), 1.0)
        update("generator", loss)
        return loss

    captured = capture(Gan(), step, BATCH, OPTIMIZERS)
    assert captured.initial_state is not None
    scalars = {name: float(rate) for name, rate in captured.scalars.items()}
    state = Executor(captured.program).run_step(
        captured.initial_state, {"x": RECORDS[0]}, scalars, (7, 0)
    ).state  # fmt: skip
    assert float(state["opt.beta1_power.discriminator"]) == 0.25
    assert float(state["opt.beta1_power.generator"]) == 0.6


def test_sgd_of_one_parameter_beside_a_submodule() -> None:
    """As in soft actor-critic: the temperature is a parameter with its own optimizer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.Linear(4, 1)
            self.log_alpha = nn.Parameter(torch.zeros(()))

    def step(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
        out = module.actor(batch["x"]).mean()
        update("actor", out * module.log_alpha.exp().detach())
        update("log_alpha", module.log_alpha.exp() * out.detach())
        return out

    rules = {"actor": SGD(lr=0.5, momentum=0.9), "log_alpha": SGD(lr=0.25)}
    captured = capture(Net(), step, BATCH, rules)
    assert captured.initial_state is not None
    rates = {"lr.actor": 0.5, "lr.log_alpha": 0.25}
    found = Executor(captured.program).run_step(
        captured.initial_state, {"x": RECORDS[0]}, rates, None
    )  # fmt: skip
    assert float(found.state["param.log_alpha"]) == np.float32(-0.25) * np.float32(found.loss)


def loss_first(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    loss = judged(module, module.generator(batch["x"][:, :3]), 1.0)
    update("generator", loss)
    return loss


def unknown(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    update("critic", judged(module, batch["x"], 1.0))
    return judged(module, batch["x"], 1.0)


def detached(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    loss = judged(module, module.generator(batch["x"][:, :3]).detach(), 1.0)
    update("generator", loss)
    return loss


def vector(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
    update("discriminator", module.discriminator(batch["x"]))
    return judged(module, batch["x"], 1.0)


@pytest.mark.parametrize(
    ("step", "optimizers", "words"),
    [
        (loss_first, OPTIMIZERS, "never updates discriminator"),
        (unknown, OPTIMIZERS, "'critic', which is not an optimizer"),
        (detached, OPTIMIZERS, "depends on no parameter of generator"),
        (vector, OPTIMIZERS, "update 0 .discriminator. is not a scalar"),
        (gan_step, {"generator": SGD(0.1)}, "discriminator.0.bias belongs to no optimizer"),
        (gan_step, OPTIMIZERS | {"generator.0": SGD(0.1)}, "belongs to several optimizers"),
        (gan_step, OPTIMIZERS | {"critic": SGD(0.1)}, "belongs to the optimizer 'critic'"),
    ],
)
def test_refusals(step: Any, optimizers: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        capture(Gan(), step, BATCH, optimizers)


def test_the_interface_trains_and_audits_a_gan(tmp_path: Path) -> None:
    """`save_job` compares both updates' gradients with float64; evaluation draws, updates none."""
    captured = tallystick.capture(Gan(dropout=0.25), gan_step, BATCH, OPTIMIZERS)
    records = {"x": RECORDS.reshape(-1, 4)}
    job = captured.save_job(
        tmp_path / "job", records, steps=5, validation={"x": records["x"][:12]}, evaluate_every=5
    )
    assert "first step" not in job.about
    run = tallystick.train(job, tmp_path / "run")
    assert tallystick.audit(tmp_path / "run", job).accepted
    assert run.validation and np.isfinite(run.validation[-1][1])


@pytest.mark.parametrize("stock", [True, False])
def test_other_optimizers_in_a_step_with_several(stock: bool, tmp_path: Path) -> None:
    """torch's instances are read group by group; compositions stand where `update` was called."""
    module = Gan()
    given: dict[str, Any] = {"generator": Lion(1e-3), "discriminator": LAMB(1e-2)}
    if stock:
        given = {
            "generator": torch.optim.RMSprop(module.generator.parameters(), lr=1e-3),
            "discriminator": torch.optim.Adagrad(module.discriminator.parameters(), lr=1e-2),
        }
    captured = tallystick.capture(module, gan_step, BATCH, given, clip_norm=1.0, ema=0.9)
    assert {"lr.generator", "lr.discriminator", "ema"} == set(captured.step.scalars)
    job = captured.save_job(tmp_path / "job", {"x": RECORDS.reshape(-1, 4)}, steps=5)
    assert "first step" not in job.about
    tallystick.train(job, tmp_path / "run")
    assert tallystick.audit(tmp_path / "run", job).accepted


def test_parameter_groups_in_a_step_with_several_are_refused() -> None:
    groups = ParameterGroups({"all": ParameterGroup(SGD(0.1))})
    with pytest.raises(UsageError, match="has parameter groups"):
        capture(Gan(), gan_step, BATCH, OPTIMIZERS | {"generator": groups})


def test_a_first_step_that_differs_in_a_later_update_names_the_module(tmp_path: Path) -> None:
    class Odd(Gan):
        def forward(self, x: Tensor) -> Tensor:
            return self.generator(x) * (2.0 if x.is_meta else 1.0)

    def step(module: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
        loss = judged(module, batch["x"], 1.0)
        update("discriminator", loss)
        second = judged(module, module(batch["x"][:, :3]), 1.0)
        update("generator", second)
        return loss

    captured = tallystick.capture(Odd(), step, BATCH, OPTIMIZERS)
    with pytest.raises(UsageError, match=r"update 1.*the output of module Odd is the first"):
        captured.save_job(tmp_path / "job", {"x": RECORDS.reshape(-1, 4)}, steps=5)
