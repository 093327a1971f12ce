"""The loop of accelerate: prepare, accumulate, clip_grad_norm_, save_state and load_state."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    """Tokens to three classes, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.layer(self.embedding(tokens)).mean(1))
        return found


def run(workers: int) -> tuple[nn.Module, list[float]]:
    """Two epochs; a third one twice, the second time from the saved state, to the same weights."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import set_seed

    AcceleratorState._reset_state(True)
    set_seed(7)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    records = TensorDataset(torch.randint(50, (24, 6)), torch.randint(3, (24,)))
    loader: Any = DataLoader(records, batch_size=4, shuffle=True, num_workers=workers)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses: list[float] = []

    def epoch() -> None:
        for tokens, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(tokens), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(float(accelerator.gather_for_metrics(loss.detach()).mean()))

    epoch()
    epoch()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        epoch()
        first = losses[-6:]
        accelerator.load_state(folder)
        epoch()
    if losses[-6:] != first:
        raise AssertionError("the loaded state does not continue as the saved one did")
    return accelerator.unwrap_model(model), losses
