"""Label smoothing as torch and transformers have it, over fifty steps and with ignored labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import optimizer_runs
import pytest
import torch
import torch.nn.functional as F
from optimizer_runs import BATCH, assert_beside, net, ours, torchs
from torch import Tensor, nn, optim
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.trainer_pt_utils import LabelSmoother

import tallystick
from tallystick.program.capture import capture


def _torchs(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["x"]), batch["y"], label_smoothing=0.1)


def _transformers(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    found: Tensor = LabelSmoother(0.1)({"logits": module(batch["x"])}, batch["y"])
    return found


@pytest.mark.parametrize("smoothed", [_torchs, _transformers])
def test_fifty_steps(smoothed: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """LabelSmoother sums in float32 whatever its input is; the rule is the same."""
        return _torchs(module, batch)

    module = net()
    step = capture(module, smoothed, BATCH, optim.AdamW(module.parameters(), lr=0.01))
    monkeypatch.setattr(optimizer_runs, "loss", wide)

    def stepper(module: nn.Module) -> Callable[[], None]:
        optimizer = optim.AdamW(module.parameters(), lr=0.01)
        return lambda: optimizer.step() and None

    runs = [torchs(stepper, dtype) for dtype in (torch.float64, torch.float32)]
    assert_beside(ours(step), *runs)


def test_a_language_model_with_ignored_labels(tmp_path: Path) -> None:
    """As `Trainer` does it with label_smoothing_factor: labels out of the model's own loss."""
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=8,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    torch.manual_seed(5)
    module = GPT2LMHeadModel(config).train()
    smoother = LabelSmoother(epsilon=0.1)

    def loss(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        outputs = module(input_ids=batch["tokens"])
        found: Tensor = smoother(outputs, batch["labels"], shift_labels=True)
        return found

    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(11, (32, 8), generator=generator)
    labels = torch.where(torch.arange(8) < 5, tokens, -100)
    data = {"tokens": tokens, "labels": labels}
    captured = tallystick.capture(
        module, loss, {k: v[:4] for k, v in data.items()}, tallystick.AdamW(0.01)
    )
    job = captured.save_job(tmp_path / "job", data, steps=6)
    assert "first step" not in job.about
    run = tallystick.train(job, tmp_path / "run")
    assert tallystick.audit(tmp_path / "run", job).accepted
    # The first loss is the smoother's own on the batch of the first step.
    from tallystick.commit.data import batch_columns

    indices = job.commitment.timetable.indices(job.commitment.timetable.at(0))
    first = {k: torch.from_numpy(v) for k, v in batch_columns(job.columns, indices).items()}
    assert run.losses[0] == pytest.approx(loss(module, first).item(), rel=1e-5)
