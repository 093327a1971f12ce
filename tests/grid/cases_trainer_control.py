"""transformers' Trainer with callbacks that stop the training, or that only log."""

from __future__ import annotations

import math

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import tallystick

QUIET = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "save_strategy": "no",
    "remove_unused_columns": False,
}


def sentences(count: int) -> list[dict]:
    """Rows of eight tokens; the class is the first token's remainder by three."""
    return [
        {
            "input_ids": [(5 * n + k * (n % 7 + 1)) % 32 for k in range(8)],
            "labels": (5 * n) % 32 % 3,
        }
        for n in range(count)
    ]


def tiny_bert(seed: int, dropout: float = 0.1) -> BertForSequenceClassification:
    """A BERT classifier of about four thousand weights."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=0.0,
            num_labels=3,
        )
    )


def decay_groups(model: nn.Module, decay: float) -> list[dict]:
    """The two groups of Trainer.create_optimizer: biases and layer norms do not decay."""
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    named = list(model.named_parameters())
    yes = [p for n, p in named if id(p) not in norms and "bias" not in n]
    no = [p for n, p in named if id(p) in norms or "bias" in n]
    return [{"params": yes, "weight_decay": decay}, {"params": no, "weight_decay": 0.0}]


def loader_of(rows: list[dict], batch: int) -> DataLoader:
    return DataLoader(rows, batch_size=batch, shuffle=True, collate_fn=default_data_collator)


def cross_entropy(model: nn.Module, batch: dict) -> torch.Tensor:
    return F.cross_entropy(model(input_ids=batch["input_ids"]).logits, batch["labels"])


@grid_case(
    "trainer-bert-callback-stops",
    "Trainer",
    (
        "callback that stops the training",
        "control.should_training_stop",
        "dropout",
        "a last short batch",
        "polynomial schedule",
    ),
)
def callback_stops() -> Loop:
    """Follows scripts with a budget callback: it stops at update 17; the rates are for 30."""
    rows, planned, updates = sentences(37), 30, 17

    class Budget(TrainerCallback):
        def __init__(self):
            self.used = 0

        def on_step_end(self, args, state, control, **kwargs):
            self.used += 1
            if self.used >= updates:
                control.should_training_stop = True
            return control

    def signed(out):
        trainer = tallystick.Trainer(
            tiny_bert(13),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                num_train_epochs=6,
                learning_rate=4e-3,
                lr_scheduler_type="polynomial",
                warmup_steps=2,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
            callbacks=[Budget()],
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decay_groups(model, 0.0), lr=4e-3)
        floor, first = 1e-7, 4e-3  # get_polynomial_decay_schedule_with_warmup: lr_end, power 1

        def rate(step: int) -> float:
            if step < 2:
                return step / 2
            left = 1 - (step - 2) / (planned - 2)
            return ((first - floor) * left + floor) / first

        scheduler = LambdaLR(optimizer, rate)
        for _ in range(updates):
            optimizer.zero_grad()
            cross_entropy(model, next(batches)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(
        tiny_bert(13),
        signed,
        plain,
        Order(True, 37, 8, 6, False),
        updates,
        lambda: loader_of(rows, 8),
    )


@grid_case(
    "trainer-bert-callback-only-logs",
    "Trainer",
    (
        "callback that only logs",
        "metrics kept in python lists",
        "best-loss tracking in python",
        "drop_last",
        "cosine with restarts",
    ),
)
def callback_only_logs() -> Loop:
    """Follows scripts with a history callback: it counts and keeps, and changes nothing."""
    rows, updates = sentences(45), 20

    class History(TrainerCallback):
        seen = 0

        def __init__(self):
            self.lines, self.best = [], float("inf")

        def on_step_end(self, args, state, control, **kwargs):
            History.seen += args.train_batch_size
            if state.global_step % 5 == 0:
                self.lines.append(f"step {state.global_step}: {History.seen} records")

        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in (logs or {}):
                self.best = min(self.best, float(logs["loss"]))

    def signed(out):
        trainer = tallystick.Trainer(
            tiny_bert(14),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                num_train_epochs=4,
                learning_rate=4e-3,
                lr_scheduler_type="cosine_with_restarts",
                lr_scheduler_kwargs={"num_cycles": 2},
                dataloader_drop_last=True,
                logging_steps=4,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
            callbacks=[History()],
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decay_groups(model, 0.0), lr=4e-3)

        def rate(step: int) -> float:
            progress = step / updates
            if progress >= 1.0:
                return 0.0
            return 0.5 * (1 + math.cos(math.pi * ((2 * progress) % 1.0)))

        scheduler = LambdaLR(optimizer, rate)
        for _ in range(updates):
            optimizer.zero_grad()
            cross_entropy(model, next(batches)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(
        tiny_bert(14),
        signed,
        plain,
        Order(True, 45, 8, 4, True),
        updates,
        lambda: loader_of(rows, 8),
    )
