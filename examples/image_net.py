"""An image net with augmentation, validation that is committed to, and an early stop.

    python examples/image_net.py [DIRECTORY]

A residual network learns images of CIFAR-10. The step crops, flips, normalises and mixes them; the
random numbers are the job's, so the augmentation is disputed as any other operator. Two
micro-batches make an update. After every tenth the run validates, and it ends when four passes
were no better than the best one: what ends it is a committed number.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from _court import audited, convicted, in_directory
from _material import images
from torch import Tensor, nn

import tallystick
from tallystick import augment

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Block(8, 16, 2), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).train()  # fmt: skip


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    x, y = augment.normalize(batch["x"], MEAN, STD), batch["y"]
    if not module.training:  # a pass of validation takes the images as they are
        return F.cross_entropy(module(x), y)
    x = augment.horizontal_flip(augment.random_crop(x, 4))
    x, one, other, weight = augment.mixup(x, y, 0.2)
    made = module(x)
    return weight * F.cross_entropy(made, one) + (1 - weight) * F.cross_entropy(made, other)


def save(directory: Path, steps: int = 200, rate: float = 0.1) -> Path:
    """Write the job to DIRECTORY/job."""
    pixels, classes = images(768)
    data = {"x": pixels[:640], "y": classes[:640]}
    captured = tallystick.capture(
        network(),
        loss,
        {name: column[:32] for name, column in data.items()},
        tallystick.SGD(lr="lr", momentum=0.9, weight_decay=5e-4),
        micro_batches=2,
    )
    captured.save_job(
        directory / "job",
        data,
        steps=steps,
        seed=7,
        schedules={"lr": lambda step: rate * min(1.0, (step + 1) / 10)},
        validation={"x": pixels[640:], "y": classes[640:]},
        evaluate_every=10,
        stop_rule=tallystick.StopRule(patience=4),
    )
    return directory / "job"


def main(directory: Path) -> None:
    job = save(directory)
    run = tallystick.train(job, directory / "run")  # killed and called again, it goes on
    print(f"loss   {run.losses[0]:.3f} -> {run.losses[-1]:.3f}")
    print("validation", [round(loss, 3) for _, loss in run.validation])
    print(f"ended after {len(run.losses)} of 200 updates: {run.reason}")
    assert len(run.losses) < 200
    audited(run.directory, job)
    for cheat in ("no-augmentation", "false-stop", "ignored-stop"):
        convicted(cheat, run.directory, job, directory)


if __name__ == "__main__":
    in_directory(main)
