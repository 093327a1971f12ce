"""Captured steps: a language model, two nets in a step, a spectral norm, a target net."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm


class Block(nn.Module):
    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(drop))
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.drop(self.c_proj(y))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """nanoGPT's model: tied head, dropout."""

    def __init__(self, tokens: int = 24, block: int = 8, width: int = 16) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(block, width)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList([Block(width, 2, 0.1)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, tokens, bias=False)
        self.wte.weight = self.lm_head.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())

    def configure_optimizers(self, decay: float, rate: float) -> torch.optim.AdamW:
        decayed = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW(
            [{"params": decayed, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}],
            lr=rate, betas=(0.9, 0.95),
        )


@grid_case(
    "capture_nanogpt_micro",
    "capture",
    ("weight tying", "groups by dimension", "micro-batches", "warm-up and cosine to a floor", "clipping", "weight EMA",
     "dropout"),
)
def capture_nanogpt_micro() -> Loop:
    """nanoGPT's train.py: get_lr by step, gradient accumulation, two groups, clipping; an EMA of the weights."""
    micro, accumulate, records, epochs = 2, 4, 48, 4
    torch.manual_seed(70)
    model = GPT()
    generator = torch.Generator().manual_seed(71)
    start = torch.randint(0, 24, (records, 1), generator=generator)
    tokens = (start + torch.arange(9) * (1 + start % 3)) % 24
    updates = records // (micro * accumulate) * epochs

    def factor(it: int) -> float:  # get_lr / learning_rate
        if it < 4:
            return (it + 1) / 5
        ratio = (it - 4) / (updates - 4)
        return 0.1 + 0.5 * (1 + math.cos(math.pi * ratio)) * 0.9

    def signed(out: Path) -> Any:
        optimizer = model.configure_optimizers(0.1, 1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        data = {"x": tokens[:, :-1].contiguous(), "y": tokens[:, 1:].contiguous()}
        captured = tallystick.capture(
            model.train(), lambda m, b: m(b["x"], b["y"]), {n: t[: micro * accumulate] for n, t in data.items()},
            optimizer, clip_norm=1.0, ema=0.95, micro_batches=accumulate,
        )
        job = captured.save_job(out / "job", data, steps=updates, seed=3, schedules=scheduler)
        return tallystick.train(job, out / "run", progress=False)

    def plain(model, batches):
        model.train()
        optimizer = model.configure_optimizers(0.1, 1e-2)
        average = [p.detach().clone() for p in model.parameters()]
        for it in range(updates):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * factor(it)
            optimizer.zero_grad(set_to_none=True)
            for _ in range(accumulate):
                b = next(batches)
                (model(b["x"], b["y"]) / accumulate).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for a, p in zip(average, model.parameters(), strict=True):
                    a.mul_(0.95).add_(p, alpha=0.05)
            yield optimizer

    return Loop(model, signed, plain, Order(True, records, micro, epochs, False), updates)


class Wasserstein(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 2))
        self.critic = nn.Sequential(nn.Linear(2, 20), nn.LeakyReLU(0.2), nn.Linear(20, 1, bias=False))


@grid_case(
    "capture_wgan_clamp",
    "capture",
    ("two optimizers in a step", "weights clamped under no_grad after the critic's step", "noise from the data"),
)
def capture_wgan_clamp() -> Loop:
    """WGAN (martinarjovsky): RMSprop for both, the critic's weights are clamped after its step."""
    batch, records, epochs, limit = 8, 56, 4, 0.08
    torch.manual_seed(72)
    model = Wasserstein()
    generator = torch.Generator().manual_seed(73)
    angle = 6.2832 * torch.rand(records, generator=generator)
    data = {"x": torch.stack([angle.cos(), angle.sin()], 1), "z": torch.randn(records, 4, generator=generator)}
    updates = records // batch * epochs

    def optimizers(m: Wasserstein) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        return (
            torch.optim.RMSprop(m.critic.parameters(), lr=5e-3),
            torch.optim.RMSprop(m.generator.parameters(), lr=2e-3),
        )

    def step(m: Wasserstein, b: dict[str, Tensor], update: Any) -> Tensor:
        critic_loss = m.critic(m.generator(b["z"]).detach()).mean() - m.critic(b["x"]).mean()
        update("critic", critic_loss)
        with torch.no_grad():
            for p in m.critic.parameters():
                p.clamp_(-limit, limit)
        update("generator", -m.critic(m.generator(b["z"])).mean())
        return critic_loss

    def signed(out: Path) -> Any:
        of_critic, of_generator = optimizers(model)
        captured = tallystick.capture(
            model.train(), step, {n: t[:batch] for n, t in data.items()},
            {"critic": of_critic, "generator": of_generator},
        )
        job = captured.save_job(out / "job", data, steps=updates, seed=4)
        return tallystick.train(job, out / "run", progress=False)

    def plain(model, batches):
        model.train()
        of = dict(zip(("critic", "generator"), optimizers(model), strict=True))

        def update(name: str, loss: Tensor) -> None:
            of[name].zero_grad()
            loss.backward()
            of[name].step()

        for _ in range(updates):
            step(model, next(batches), update)
            yield of["critic"], of["generator"]

    return Loop(model, signed, plain, Order(True, records, batch, epochs, True), updates)


class SpectralCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = spectral_norm(nn.Linear(5, 20)), spectral_norm(nn.Linear(20, 20))
        self.out = spectral_norm(nn.Linear(20, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.silu(self.second(F.silu(self.first(x))))).squeeze(-1)


@grid_case(
    "capture_spectral_penalty",
    "capture",
    ("spectral norm (power iteration in buffers)", "gradient penalty (double backward)", "hinge loss",
     "ExponentialLR", "drop_last"),
)
def capture_spectral_penalty() -> Loop:
    """SNGAN's discriminator with WGAN-GP's penalty on interpolated points, the shares from the data."""
    batch, records, epochs = 8, 52, 4
    torch.manual_seed(74)
    model = SpectralCritic()
    generator = torch.Generator().manual_seed(75)
    data = {
        "real": 1 + 0.5 * torch.randn(records, 5, generator=generator),
        "fake": torch.randn(records, 5, generator=generator),
        "share": torch.rand(records, 1, generator=generator),
    }
    updates = records // batch * epochs

    def loss(m: SpectralCritic, b: dict[str, Tensor]) -> Tensor:
        hinge = F.relu(1 - m(b["real"])).mean() + F.relu(1 + m(b["fake"])).mean()
        between = (b["share"] * b["real"] + (1 - b["share"]) * b["fake"]).requires_grad_(True)
        (grad,) = torch.autograd.grad(m(between).sum(), between, create_graph=True)
        return hinge + 2.0 * (grad.norm(2, dim=1) - 1).pow(2).mean()

    def signed(out: Path) -> Any:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.0, 0.9))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        captured = tallystick.capture(model.train(), loss, {n: t[:batch] for n, t in data.items()}, optimizer)
        job = captured.save_job(out / "job", data, steps=updates, seed=5, schedules=scheduler)
        return tallystick.train(job, out / "run", progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.0, 0.9))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        for _ in range(updates):
            value = loss(model, next(batches))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, records, batch, epochs, True), updates)


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def net() -> nn.Module:
            return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3))

        self.q, self.target = net(), net()
        self.target.load_state_dict(self.q.state_dict())


@grid_case(
    "capture_dqn_target",
    "capture",
    ("target net copied every k steps by a counter", "huber loss", "gather", "clipping of values"),
)
def capture_dqn_target() -> Loop:
    """cleanrl's dqn.py on a fixed replay buffer: every seventh step the target net is copied."""
    batch, records, epochs, every, gamma = 8, 64, 4, 7, 0.9
    torch.manual_seed(76)
    model = Agent()
    generator = torch.Generator().manual_seed(77)
    state = torch.randn(records, 4, generator=generator)
    data = {
        "observations": state,
        "actions": torch.randint(0, 3, (records, 1), generator=generator),
        "next_observations": state + 0.2 * torch.randn(records, 4, generator=generator),
        "rewards": state[:, 0].clone(),
        "dones": (torch.rand(records, generator=generator) < 0.15).float(),
    }
    updates = records // batch * epochs

    def td_loss(m: Agent, b: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            best = m.target(b["next_observations"]).max(dim=1).values
            wanted = b["rewards"] + gamma * best * (1 - b["dones"])
        return F.smooth_l1_loss(m.q(b["observations"]).gather(1, b["actions"]).squeeze(1), wanted)

    def copy_target(m: Agent) -> None:
        with torch.no_grad():
            for target, param in zip(m.target.parameters(), m.q.parameters(), strict=True):
                target.copy_(param)

    def signed(out: Path) -> Any:
        global_step = [0]

        def loss(m: Agent, b: dict[str, Tensor]) -> Tensor:
            if global_step[0] % every == 0:
                copy_target(m)
            global_step[0] += 1
            return td_loss(m, b)

        captured = tallystick.capture(
            model.train(), loss, {n: t[:batch] for n, t in data.items()},
            torch.optim.Adam(model.q.parameters(), lr=1e-2), clip_value=0.1,
        )
        job = captured.save_job(out / "job", data, steps=updates, seed=6)
        return tallystick.train(job, out / "run", progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.q.parameters(), lr=1e-2)
        for global_step in range(updates):
            b = next(batches)
            if global_step % every == 0:
                copy_target(model)
            optimizer.zero_grad()
            td_loss(model, b).backward()
            nn.utils.clip_grad_value_(model.q.parameters(), 0.1)
            optimizer.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, records, batch, epochs, False), updates)
