"""Loops of transformers' Trainer over text: ragged rows, a teacher, adversarial embeddings."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

USUAL: dict[str, Any] = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "remove_unused_columns": False,
    "save_strategy": "no",
    "logging_steps": 10,
    "seed": 5,
}


def decayed(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Trainer's two groups: no weight decay on biases and on the weights of LayerNorm."""
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    free = {n for n, p in model.named_parameters() if id(p) in norms or n.endswith("bias")}
    return [
        {"params": [p for n, p in model.named_parameters() if n not in free], "weight_decay": decay},
        {"params": [p for n, p in model.named_parameters() if n in free], "weight_decay": 0.0},
    ]


def linear_down(warmup: int, total: int):
    def factor(step: int) -> float:
        if step < warmup:
            return step / max(1, warmup)
        return max(0.0, (total - step) / max(1, total - warmup))

    return factor


@grid_case(
    "trainer_gpt2_ragged_tail",
    "Trainer",
    ("weight tying", "dropout", "padding", "num_items_in_batch", "accumulation with a shorter last group",
     "cosine", "warm-up", "no decay on biases and norms", "clipping"),
)
def trainer_gpt2_ragged_tail() -> Loop:
    """HF's run_clm on rows of unequal length; eleven loader batches by three leave a group of two."""
    batch, accumulate, epochs, warmup = 4, 3, 5, 3
    torch.manual_seed(20)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, attn_pdrop=0.0,
                   bos_token_id=0, eos_token_id=0)
    )
    generator = torch.Generator().manual_seed(21)
    rows = []
    for i in range(44):
        start, stride, length = 1 + i % 13, 1 + i % 3, int(torch.randint(5, 16, (), generator=generator))
        rows.append({"input_ids": [1 + (start + stride * k) % 39 for k in range(length)]})
    groups = math.ceil(len(rows) / batch / accumulate)
    updates = groups * epochs

    def collate(items: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        ids = nn.utils.rnn.pad_sequence([torch.tensor(r["input_ids"]) for r in items], batch_first=True)
        mask = (ids != 0).long()
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    def signed(out: Path) -> Any:
        arguments = TrainingArguments(
            str(out), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulate,
            num_train_epochs=epochs, learning_rate=6e-3, lr_scheduler_type="cosine", warmup_steps=warmup,
            weight_decay=0.1, adam_beta2=0.95, max_grad_norm=0.5, **USUAL,
        )
        trainer = tallystick.Trainer(model, arguments, train_dataset=rows, data_collator=collate)
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decayed(model, 0.1), lr=6e-3, betas=(0.9, 0.95), eps=1e-8)

        def cosine(step: int) -> float:
            if step < warmup:
                return step / warmup
            return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (updates - warmup)))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine)
        loader = math.ceil(len(rows) / batch)
        for _ in range(epochs):
            for first in range(0, loader, accumulate):
                group = [next(batches) for _ in range(min(accumulate, loader - first))]
                items = sum(int((b["labels"][:, 1:] != -100).sum()) for b in group)
                optimizer.zero_grad()
                for b in group:
                    logits = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
                    total = F.cross_entropy(
                        logits[:, :-1].flatten(0, 1), b["labels"][:, 1:].flatten(), ignore_index=-100, reduction="sum"
                    )
                    (total / items).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                yield optimizer

    return Loop(model, signed, plain, Order(True, len(rows), batch, epochs, False), updates)


class Bag(nn.Module):
    """Mean of the words' vectors, and a perceptron over it, with the outputs of a HF model."""

    def __init__(self, words: int, width: int, hidden: int, classes: int, drop: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, hidden)
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(hidden, classes)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        there = (input_ids != 0).unsqueeze(-1).to(self.head.weight.dtype)
        mean = (self.embedding(input_ids) * there).sum(1) / there.sum(1).clamp(min=1)
        logits = self.head(self.drop(F.gelu(self.hidden(self.norm(mean)))))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def sentences(count: int, words: int, length: int, classes: int, seed: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, words, (count, length), generator=generator)
    ends = torch.randint(length // 2, length + 1, (count, 1), generator=generator)
    ids = ids.masked_fill(torch.arange(length) >= ends, 0)
    labels = (ids.sum(1) + (ids > words // 2).sum(1)) % classes
    return [{"input_ids": i, "labels": y} for i, y in zip(ids, labels, strict=True)]


@grid_case(
    "trainer_distil_temperature",
    "Trainer",
    ("compute_loss", "teacher outside of the model", "temperature by state.epoch", "accumulation by mean",
     "label smoothing", "weight decay", "linear schedule", "dropout"),
)
def trainer_distil_temperature() -> Loop:
    """HF's distillation guide (DistillationTrainer), with a temperature that falls by state.epoch."""
    batch, accumulate, epochs, classes = 4, 2, 4, 4
    torch.manual_seed(22)
    teacher = Bag(30, 12, 32, classes, 0.1).eval().requires_grad_(False)
    model = Bag(30, 8, 16, classes, 0.1)
    rows = sentences(48, 30, 10, classes, 23)
    per_epoch = len(rows) // batch // accumulate
    updates = per_epoch * epochs

    class DistillationTrainer(tallystick.Trainer):
        def __init__(self, *args: Any, teacher: nn.Module, alpha: float, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.teacher, self.alpha = teacher, alpha

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(input_ids=inputs["input_ids"])
            with torch.no_grad():
                wanted = self.teacher(input_ids=inputs["input_ids"])["logits"]
            temperature = max(1.0, 4.0 - self.state.epoch)
            soft = F.kl_div(
                F.log_softmax(outputs["logits"] / temperature, -1), F.softmax(wanted / temperature, -1),
                reduction="batchmean",
            ) * temperature**2
            hard = F.cross_entropy(outputs["logits"], inputs["labels"], label_smoothing=0.1)
            loss = self.alpha * hard + (1 - self.alpha) * soft
            return (loss, outputs) if return_outputs else loss

    def signed(out: Path) -> Any:
        arguments = TrainingArguments(
            str(out), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulate,
            num_train_epochs=epochs, learning_rate=1e-2, weight_decay=0.01, warmup_steps=2, **USUAL,
        )
        trainer = DistillationTrainer(model, arguments, train_dataset=rows, teacher=teacher, alpha=0.3)
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        guide = copy.deepcopy(teacher).to(model.head.weight.dtype)
        optimizer = torch.optim.AdamW(decayed(model, 0.01), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, linear_down(2, updates))
        done = 0
        for _ in range(updates):
            temperature = max(1.0, 4.0 - done / per_epoch)
            optimizer.zero_grad()
            for _ in range(accumulate):
                b = next(batches)
                logits = model(input_ids=b["input_ids"])["logits"]
                with torch.no_grad():
                    wanted = guide(input_ids=b["input_ids"])["logits"]
                soft = F.kl_div(
                    F.log_softmax(logits / temperature, -1), F.softmax(wanted / temperature, -1), reduction="batchmean"
                ) * temperature**2
                hard = F.cross_entropy(logits, b["labels"], label_smoothing=0.1)
                ((0.3 * hard + 0.7 * soft) / accumulate).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            done += 1
            yield optimizer

    return Loop(model, signed, plain, Order(True, len(rows), batch, epochs, False), updates)



class FGM:
    """The fast gradient method of the competitions: move the embedding along its gradient, and back."""

    def __init__(self, model: nn.Module, epsilon: float = 0.5) -> None:
        self.model, self.epsilon, self.backup = model, epsilon, {}

    def attack(self, name: str = "embedding") -> None:
        for n, p in self.model.named_parameters():
            if p.requires_grad and name in n and p.grad is not None:
                self.backup[n] = p.data.clone()
                norm = torch.norm(p.grad)
                if norm != 0 and not torch.isnan(norm):
                    p.data.add_(self.epsilon * p.grad / norm)

    def restore(self) -> None:
        for n, p in self.model.named_parameters():
            if n in self.backup:
                p.data = self.backup[n]
        self.backup = {}


@grid_case(
    "trainer_fgm_training_step",
    "Trainer",
    ("training_step overridden", "second backward in a step", "condition on state.global_step", "clipping",
     "constant_with_warmup", "last short batch"),
)
def trainer_fgm_training_step() -> Loop:
    """A text competition's Trainer: after eight steps, each step adds an adversarial backward (FGM)."""
    batch, epochs, start, classes = 8, 4, 8, 3
    torch.manual_seed(24)
    model = Bag(26, 8, 16, classes, 0.0)
    rows = sentences(45, 26, 8, classes, 25)
    per_epoch = math.ceil(len(rows) / batch)
    updates = per_epoch * epochs

    class AdversarialTrainer(tallystick.Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = super().training_step(model, inputs, num_items_in_batch)
            if self.state.global_step >= start:
                fgm = FGM(model)
                fgm.attack()
                with self.compute_loss_context_manager():
                    again = self.compute_loss(model, inputs)
                self.accelerator.backward(again)
                fgm.restore()
            return loss

    def signed(out: Path) -> Any:
        arguments = TrainingArguments(
            str(out), per_device_train_batch_size=batch, num_train_epochs=epochs, learning_rate=8e-3,
            lr_scheduler_type="constant_with_warmup", warmup_steps=4, **USUAL,
        )
        trainer = AdversarialTrainer(model, arguments, train_dataset=rows)
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
        for step in range(updates):
            b = next(batches)
            optimizer.zero_grad()
            model(**b)["loss"].backward()
            if step >= start:
                table = model.embedding.weight
                kept = table.detach().clone()
                with torch.no_grad():
                    table.add_(0.5 * table.grad / table.grad.norm())
                model(**b)["loss"].backward()
                with torch.no_grad():
                    table.copy_(kept)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, len(rows), batch, epochs, False), updates)
