"""transformers' Trainer with callbacks that change numbers: unfreezing, decay, averages."""

from __future__ import annotations

import copy

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
    "trainer-bert-gradual-unfreezing",
    "Trainer",
    (
        "freezing in on_train_begin",
        "gradual unfreezing in on_epoch_begin",
        "state.epoch",
        "dropout",
        "linear schedule",
        "clipping",
    ),
)
def gradual_unfreezing() -> Loop:
    """Follows ULMFiT-style scripts: the head, the encoder from epoch 1, embeddings from 2."""
    rows, updates = sentences(48), 24

    class Unfreeze(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            model.bert.requires_grad_(False)

        def on_epoch_begin(self, args, state, control, model=None, **kwargs):
            if round(state.epoch) == 1:
                model.bert.encoder.requires_grad_(True)
                model.bert.pooler.requires_grad_(True)
            elif round(state.epoch) == 2:
                model.bert.embeddings.requires_grad_(True)

    def signed(out):
        trainer = tallystick.Trainer(
            tiny_bert(11),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                num_train_epochs=4,
                learning_rate=5e-3,
                weight_decay=0.01,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
            callbacks=[Unfreeze()],
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decay_groups(model, 0.01), lr=5e-3)
        scheduler = LambdaLR(optimizer, lambda step: (updates - step) / updates)
        model.bert.requires_grad_(False)
        for epoch in range(4):
            if epoch == 1:
                model.bert.encoder.requires_grad_(True)
                model.bert.pooler.requires_grad_(True)
            elif epoch == 2:
                model.bert.embeddings.requires_grad_(True)
            for _ in range(6):
                optimizer.zero_grad()
                cross_entropy(model, next(batches)).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                yield optimizer

    return Loop(
        tiny_bert(11),
        signed,
        plain,
        Order(True, 48, 8, 4, False),
        updates,
        lambda: loader_of(rows, 8),
    )


@grid_case(
    "trainer-bert-decay-and-rate-by-callback",
    "Trainer",
    (
        "weight_decay changed by callback",
        "lr halved by callback",
        "constant schedule",
        "max_grad_norm=0",
    ),
)
def decay_by_callback() -> Loop:
    """Follows DINO's weight-decay schedule, by a callback that writes the groups."""
    rows, updates = sentences(40), 20

    class DecayRamp(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
            optimizer.param_groups[0]["weight_decay"] = 0.01 + 0.2 * state.global_step / updates
            if state.global_step == 10:
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] * 0.5

    def signed(out):
        trainer = tallystick.Trainer(
            tiny_bert(12, dropout=0.0),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                max_steps=updates,
                learning_rate=4e-3,
                weight_decay=0.01,
                lr_scheduler_type="constant",
                max_grad_norm=0.0,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
            callbacks=[DecayRamp()],
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decay_groups(model, 0.01), lr=4e-3)
        scheduler = LambdaLR(optimizer, lambda step: 1.0)  # it sets base_lr again after each step
        for step in range(updates):
            optimizer.param_groups[0]["weight_decay"] = 0.01 + 0.2 * step / updates
            if step == 10:
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] * 0.5
            optimizer.zero_grad()
            cross_entropy(model, next(batches)).backward()
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(
        tiny_bert(12, dropout=0.0),
        signed,
        plain,
        Order(True, 40, 8, 4, False),
        updates,
        lambda: loader_of(rows, 8),
    )


@grid_case(
    "trainer-bert-mean-teacher-callback",
    "Trainer",
    (
        "teacher EMA updated in on_step_end",
        "teacher outside of the module",
        "consistency weight by state.global_step",
        "compute_loss override",
        "no_grad",
    ),
)
def mean_teacher() -> Loop:
    """Follows Mean Teacher scripts: a copy, averaged by a callback, gives soft targets."""
    rows, updates = sentences(40), 20

    class Ema(TrainerCallback):
        def __init__(self, teacher):
            self.teacher = teacher

        def on_step_end(self, args, state, control, model=None, **kwargs):
            with torch.no_grad():
                for kept, new in zip(self.teacher.parameters(), model.parameters(), strict=True):
                    kept.mul_(0.9).add_(new, alpha=0.1)

    class Consistent(tallystick.Trainer):
        teacher = None

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(input_ids=inputs["input_ids"])
            with torch.no_grad():
                soft = self.teacher(input_ids=inputs["input_ids"]).logits.softmax(-1)
            weight = min(1.0, self.state.global_step / 10)
            loss = F.cross_entropy(outputs.logits, inputs["labels"])
            loss = loss + weight * F.mse_loss(outputs.logits.softmax(-1), soft)
            return (loss, outputs) if return_outputs else loss

    def signed(out):
        model = tiny_bert(15, dropout=0.0)
        teacher = copy.deepcopy(model).eval().requires_grad_(False)
        trainer = Consistent(
            model,
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                num_train_epochs=4,
                learning_rate=4e-3,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
            callbacks=[Ema(teacher)],
        )
        trainer.teacher = teacher
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        teacher = copy.deepcopy(model).eval().requires_grad_(False)
        optimizer = torch.optim.AdamW(decay_groups(model, 0.0), lr=4e-3)
        scheduler = LambdaLR(optimizer, lambda step: (updates - step) / updates)
        for step in range(updates):
            batch = next(batches)
            logits = model(input_ids=batch["input_ids"]).logits
            with torch.no_grad():
                soft = teacher(input_ids=batch["input_ids"]).logits.softmax(-1)
            loss = F.cross_entropy(logits, batch["labels"])
            loss = loss + min(1.0, step / 10) * F.mse_loss(logits.softmax(-1), soft)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            with torch.no_grad():
                for kept, new in zip(teacher.parameters(), model.parameters(), strict=True):
                    kept.mul_(0.9).add_(new, alpha=0.1)
            yield optimizer

    return Loop(
        tiny_bert(15, dropout=0.0),
        signed,
        plain,
        Order(True, 40, 8, 4, False),
        updates,
        lambda: loader_of(rows, 8),
    )
