"""Train your own PyTorch model so that anyone can check it.

    python examples/train_and_audit.py [DIRECTORY]

A model becomes a job (program, data, initial weights, contract). A trainer runs the job and signs
the run. An auditor repeats the run with another number of threads, and gets the same bits.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import tallystick


def moons(count: int) -> dict[str, Tensor]:
    """Points of two interleaved half circles, and which of the two each is from."""
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(count, generator=generator) * torch.pi
    label = torch.arange(count) % 2
    x = torch.where(label == 0, torch.cos(angle), 1 - torch.cos(angle))
    y = torch.where(label == 0, torch.sin(angle), 0.5 - torch.sin(angle))
    noise = 0.1 * torch.randn(count, 2, generator=generator)
    return {"point": torch.stack([x, y], dim=1) + noise, "label": label}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["point"]), batch["label"])


def main(directory: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 2))

    # The client: a job fixes everything that the result depends on.
    data, held_out = moons(2000), moons(200)
    example = {name: column[:50] for name, column in data.items()}
    captured = tallystick.capture(model, loss, example, tallystick.AdamW(lr=0.01))
    job = captured.save_job(
        directory / "job", data, steps=200, validation=held_out, evaluate_every=100
    )
    print(f"job     {job.digest.hex()[:16]}  {len(captured.program.nodes)} operators a step")

    # The trainer: a run of the job, signed.
    run = tallystick.train(job, directory / "run", threads=2)
    print(f"run     {run.run_root.hex()[:16]}  loss {run.losses[0]:.3f} -> {run.losses[-1]:.3f}")

    # The auditor: from its own copy of the job, on its own machine.
    report = tallystick.audit(directory / "run", job, threads=1)
    assert report.accepted
    print(
        f"audit   MATCH: {report.losses_compared} losses and {report.checkpoints_compared} "
        "checkpoints are equal to the bit"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
