"""A model, data and arguments small enough for every test of the adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, CLASSES, RECORDS, BATCH = 5, 3, 24, 4


def gpt2(**given: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=31, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **given,
        )
    )  # fmt: skip


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.scaling = nn.Linear(8, 8), 0.5

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mix(x) * self.scaling
        return out


class Small(nn.Module):
    """A model that transformers' Trainer calls like `gpt2()`, with names of its modules, and with
    a fraction of its operators: for tests that say nothing of the model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        block = nn.ModuleDict({"attn": Attention()})
        self.transformer = nn.ModuleDict(
            {"wte": nn.Embedding(31, 8), "h": nn.ModuleList([block]), "ln_f": nn.LayerNorm(8)}
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Any = None
    ) -> dict[str, Tensor]:
        parts: Any = self.transformer
        x = parts.wte(input_ids)
        x = parts.ln_f(x + parts.h[0].attn(x))
        scores = (x @ parts.wte.weight.t())[:, :-1]
        return {"loss": F.cross_entropy(scores.flatten(0, 1), labels[:, 1:].flatten())}


class Records(list):  # type: ignore[type-arg]
    """Records as a Dataset gives them."""


def sentences(count: int = RECORDS, seed: int = 0) -> list[dict[str, list[int]]]:
    """Token records of several lengths."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for i in range(count):
        length = 4 + i % 5
        found.append({"input_ids": torch.randint(3, 31, (length,), generator=generator).tolist()})
    return found


def padded(records: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """A collator that pads to the longest record of its batch."""
    longest = max(len(r["input_ids"]) for r in records)
    ids = torch.zeros(len(records), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, record in enumerate(records):
        length = len(record["input_ids"])
        ids[row, :length] = torch.tensor(record["input_ids"])
        mask[row, :length] = 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
    }


def arguments(out: Path, **given: Any) -> Any:
    from transformers import TrainingArguments

    usual: dict[str, Any] = {
        "per_device_train_batch_size": BATCH, "max_steps": 6, "learning_rate": 1e-2,
        "report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1,
        "remove_unused_columns": False, "save_strategy": "no", "weight_decay": 0.1,
    }  # fmt: skip
    return TrainingArguments(str(out), **{**usual, **given})


class Net(nn.Module):
    """A classifier with a normalisation and biases."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.norm = nn.Linear(WIDTH, 8), nn.LayerNorm(8)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return out


def points(count: int = RECORDS, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, WIDTH, generator=generator)
    return x, x[:, :CLASSES].argmax(1)
