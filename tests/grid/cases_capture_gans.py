"""GANs moved to `tallystick.capture`: programs that take turns, and a step with two optimizers."""

from __future__ import annotations

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F

import tallystick


def batches_of(data: dict[str, torch.Tensor], size: int):
    """One epoch in the order of the records; a rest is left out."""
    count = len(next(iter(data.values())))
    for start in range(0, count - size + 1, size):
        yield {name: column[start : start + size] for name, column in data.items()}


def first(data: dict[str, torch.Tensor], size: int) -> dict[str, torch.Tensor]:
    return {name: column[:size] for name, column in data.items()}


class Gan(nn.Module):
    """Both nets of a GAN in one module."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))
        self.discriminator = nn.Sequential(
            nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )


def ring(count: int, seed: int) -> dict[str, torch.Tensor]:
    """Points of a ring, and a noise vector for each: the noise is part of the records."""
    made = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=made) * 6.2832
    x = torch.stack([angle.cos(), angle.sin()], 1)
    return {"x": x, "z": torch.randn(count, 3, generator=made)}


@grid_case(
    "capture-wgan-clamped-critic",
    "capture",
    (
        "weight clamps under no_grad",
        "n_critic = 3",
        "programs that take turns",
        "two optimizers",
        "RMSprop",
        "shared records",
    ),
)
def wgan() -> Loop:
    """Follows martinarjovsky/WassersteinGAN: the critic is clamped before each of its steps."""
    data = ring(48, 104)
    updates = 24  # 18 of the critic, 6 of the generator

    def net():
        torch.manual_seed(105)
        return Gan()

    def critic_loss(gan, batch):
        with torch.no_grad():
            for p in gan.discriminator.parameters():
                p.clamp_(-0.1, 0.1)
        made = gan.generator(batch["z"]).detach()
        return gan.discriminator(made).mean() - gan.discriminator(batch["x"]).mean()

    def generator_loss(gan, batch):
        return -gan.discriminator(gan.generator(batch["z"])).mean()

    def optimizers(gan):
        return (
            torch.optim.RMSprop(gan.discriminator.parameters(), lr=5e-3),
            torch.optim.RMSprop(gan.generator.parameters(), lr=5e-3),
        )

    def signed(out):
        gan = net().train()
        critic, generator = optimizers(gan)
        noise = {"z": data["z"]}
        programs = {
            "critic": tallystick.capture(
                gan, critic_loss, first(data, 8), critic, trains="discriminator"
            ),
            "generator": tallystick.capture(
                gan, generator_loss, first(noise, 8), generator, trains="generator"
            ),
        }
        tallystick.save_job(
            out / "job",
            programs=programs,
            own_data={"critic": data, "generator": noise},
            schedule=[("critic", 3), ("generator", 1)],
            steps=updates,
            seed=5,
        )
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(model, batches):
        model.train()
        critic, generator = optimizers(model)
        for _ in range(updates // 4):
            for _ in range(3):
                critic.zero_grad()
                critic_loss(model, next(batches)).backward()
                critic.step()
                yield critic, generator
            generator.zero_grad()
            generator_loss(model, next(batches)).backward()
            generator.step()
            yield critic, generator

    return Loop(
        net(), signed, plain, Order(True, 48, 8, 4, True), updates, lambda: batches_of(data, 8)
    )


@grid_case(
    "capture-gan-generator-each-second-step",
    "capture",
    (
        "step function with two optimizers",
        "generator updated if step % 2 == 0",
        "counter in a closure",
        "one-sided label smoothing",
        "instance noise that fades by step",
    ),
)
def gan_second_step() -> Loop:
    """Follows dcgan with n_critic: the generator learns in each second step only."""
    data = ring(48, 106)
    updates = 20  # steps of the discriminator; the generator has ten

    def net():
        torch.manual_seed(107)
        return Gan()

    def of_discriminator(gan, batch, step):
        fade = max(0.0, 1.0 - step / 10)
        shift = 0.2 * fade * batch["z"][:, :2]
        real = gan.discriminator(batch["x"] + shift).squeeze(1)
        made = gan.discriminator(gan.generator(batch["z"]).detach() + shift).squeeze(1)
        return F.binary_cross_entropy_with_logits(
            real, torch.full_like(real, 0.9)
        ) + F.binary_cross_entropy_with_logits(made, torch.zeros_like(made))

    def of_generator(gan, batch):
        made = gan.discriminator(gan.generator(batch["z"])).squeeze(1)
        return F.binary_cross_entropy_with_logits(made, torch.ones_like(made))

    def signed(out):
        it = [0]

        def step(gan, batch, update):
            loss = of_discriminator(gan, batch, it[0])
            update("discriminator", loss)
            if it[0] % 2 == 0:
                update("generator", of_generator(gan, batch))
            it[0] += 1
            return loss

        rules = {
            "discriminator": tallystick.Adam(lr=5e-3, betas=(0.5, 0.999)),
            "generator": tallystick.Adam(lr=2e-3, betas=(0.5, 0.999)),
        }
        captured = tallystick.capture(net().train(), step, first(data, 8), rules)
        captured.save_job(out / "job", data, steps=updates, seed=6)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(model, batches):
        model.train()
        d = torch.optim.Adam(model.discriminator.parameters(), lr=5e-3, betas=(0.5, 0.999))
        g = torch.optim.Adam(model.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
        for step in range(updates):
            batch = next(batches)
            d.zero_grad()
            of_discriminator(model, batch, step).backward()
            d.step()
            if step % 2 == 0:
                g.zero_grad()
                of_generator(model, batch).backward()
                g.step()
            yield d, g

    return Loop(
        net(), signed, plain, Order(True, 48, 8, 4, True), updates, lambda: batches_of(data, 8)
    )
