"""A GAN: two programs that take turns in one job, each with an optimizer of its own.

    python examples/gan.py [DIRECTORY]

A small DCGAN learns images of CIFAR-10, 16 x 16. The discriminator makes two steps, the generator
one, and so on; every step is committed to. The noise is the job's own, so a provider cannot choose
it. After every 30 steps the run commits to the discriminator's loss on images that it never learnt
from.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from _court import audited, convicted, in_directory
from _material import images
from torch import Tensor, nn

import tallystick

NOISE, BATCH = 16, 16
Batch = dict[str, Tensor]


class Gan(nn.Module):
    """Both nets in one module: its weights are the state of the job."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(NOISE, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
            nn.Conv2d(32, 1, 4, 1, 0), nn.Flatten(0),
        )  # fmt: skip

    def made(self) -> Tensor:
        """Images out of noise."""
        images: Tensor = self.generator(torch.randn(BATCH, NOISE, 1, 1))
        return images


def of_discriminator(gan: Gan, batch: Batch) -> Tensor:
    real = gan.discriminator(batch["x"])
    made = gan.discriminator(gan.made().detach())
    return F.softplus(-real).mean() + F.softplus(made).mean()


def of_generator(gan: Gan, batch: Batch) -> Tensor:
    return F.softplus(-gan.discriminator(gan.made())).mean()


def save(directory: Path, steps: int = 180) -> Path:
    """Write the job to DIRECTORY/job."""
    pixels, _ = images(576)
    x = F.avg_pool2d(pixels / 127.5 - 1, 2)
    gan = Gan().train()
    rule = tallystick.Adam(lr=1e-3, betas=(0.5, 0.999))
    programs = {
        "discriminator": tallystick.capture(
            gan, of_discriminator, {"x": x[:BATCH]}, rule, trains="discriminator"
        ),
        "generator": tallystick.capture(gan, of_generator, {}, rule, trains="generator"),
    }
    tallystick.save_job(
        directory / "job",
        {"x": x[:512]},
        programs=programs,
        schedule=[("discriminator", 2), ("generator", 1)],
        steps=steps,
        seed=7,
        validation={"x": x[512:]},
        evaluate="discriminator",
        evaluate_every=30,
    )
    return directory / "job"


def main(directory: Path) -> None:
    job = save(directory)
    run = tallystick.train(job, directory / "run")  # killed and called again, it goes on
    for name in ("discriminator", "generator"):
        losses = run.losses_of[name]
        print(f"{name}: loss {losses[0]:.3f} -> {losses[-1]:.3f} after {len(losses)} steps")
    print("validation", [round(loss, 3) for _, loss in run.validation])
    audited(run.directory, job)
    for cheat in ("no-augmentation", "false-validation"):  # the noise is left out; a false number
        convicted(cheat, run.directory, job, directory)


if __name__ == "__main__":
    in_directory(main)
