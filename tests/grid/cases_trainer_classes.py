"""transformers' Trainer with a net of one's own: a plateau by validation, and weighted classes."""

from __future__ import annotations

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from torch.utils.data import DataLoader
from transformers import TrainingArguments, default_data_collator

import tallystick

QUIET = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "save_strategy": "no",
    "remove_unused_columns": False,
}


def points(count: int, seed: int, width: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and the class of each by its three first coordinates."""
    x = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def loader_of(rows: list[dict], batch: int) -> DataLoader:
    return DataLoader(rows, batch_size=batch, shuffle=True, collate_fn=default_data_collator)


class Classifier(nn.Module):
    """A net as Trainer likes it: named inputs, a dict of outputs, a loss with labels."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU())
        self.head = nn.Linear(16, 3)

    def forward(self, x, labels=None):
        logits = self.head(self.body(x))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


@grid_case(
    "trainer-plateau-with-validation",
    "Trainer",
    (
        "reduce_lr_on_plateau",
        "validation each epoch",
        "validation not divisible by the batch",
        "weight decay groups",
        "several epochs",
    ),
)
def plateau() -> Loop:
    """Follows fine-tunes with "reduce_lr_on_plateau": halved where eval_loss stays."""
    x, y = points(40, 29)
    held_x, held_y = points(21, 30)
    held_y = (held_y + 1) % 3  # other labels: the held-out loss soon grows, the rate falls
    rows = [{"x": a, "labels": int(b)} for a, b in zip(x, y, strict=True)]
    held = [{"x": a, "labels": int(b)} for a, b in zip(held_x, held_y, strict=True)]
    epochs, per_epoch = 6, 5

    def net():
        torch.manual_seed(31)
        return Classifier()

    def signed(out):
        trainer = tallystick.Trainer(
            net(),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                per_device_eval_batch_size=8,
                num_train_epochs=epochs,
                learning_rate=2e-2,
                weight_decay=0.1,
                eval_strategy="epoch",
                lr_scheduler_type="reduce_lr_on_plateau",
                lr_scheduler_kwargs={"factor": 0.5, "patience": 0},
                **QUIET,
            ),
            train_dataset=rows,
            eval_dataset=held,
            data_collator=default_data_collator,
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        kind = next(model.parameters()).dtype
        no = {"body.0.bias", "body.1.weight", "body.1.bias", "head.bias"}
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for n, p in model.named_parameters() if n not in no]},
                {
                    "params": [p for n, p in model.named_parameters() if n in no],
                    "weight_decay": 0.0,
                },
            ],
            lr=2e-2,
            weight_decay=0.1,
        )
        scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        for _ in range(epochs):
            for step in range(per_epoch):
                model.train()
                batch = next(batches)
                optimizer.zero_grad()
                model(**batch)["loss"].backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if step == per_epoch - 1:
                    model.eval()
                    with torch.no_grad():
                        held_loss = model(held_x.to(kind), held_y)["loss"].item()
                    scheduler.step(held_loss)
                yield optimizer

    return Loop(
        net(),
        signed,
        plain,
        Order(True, 40, 8, epochs, False),
        epochs * per_epoch,
        lambda: loader_of(rows, 8),
    )


@grid_case(
    "trainer-compute-loss-func-class-weights",
    "Trainer",
    (
        "compute_loss_func",
        "class weights in a closure",
        "counter in a closure",
        "extra loss each fourth call",
        "gradient accumulation",
        "num_items_in_batch",
        "RMSprop",
    ),
)
def weighted_loss_function() -> Loop:
    """Follows imbalanced fine-tunes: class weights, and a z-loss in each fourth micro-batch."""
    x, y = points(48, 32)
    y = torch.where(torch.arange(48) % 3 == 0, y, 0)  # the class 0 is frequent
    rows = [{"x": a, "labels": int(b)} for a, b in zip(x, y, strict=True)]
    weights = (1.0 / torch.bincount(y, minlength=3).clamp(min=1)).mul(16.0)
    updates = 18

    def net():
        torch.manual_seed(33)
        return Classifier()

    def signed(out):
        calls = [0]

        def loss_function(outputs, labels, num_items_in_batch=None):
            logits = outputs["logits"]
            loss = F.cross_entropy(logits, labels, weight=weights, reduction="sum")
            if calls[0] % 4 == 0:
                loss = loss + 0.1 * logits.logsumexp(-1).pow(2).sum()
            calls[0] += 1
            return loss / num_items_in_batch

        trainer = tallystick.Trainer(
            net(),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                max_steps=updates,
                learning_rate=3e-3,
                optim="rmsprop",
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
            compute_loss_func=loss_function,
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        kind = next(model.parameters()).dtype
        optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
        scheduler = LambdaLR(optimizer, lambda step: (updates - step) / updates)
        call = 0
        for _ in range(updates):
            window = [next(batches) for _ in range(2)]
            records = sum(len(b["labels"]) for b in window)
            optimizer.zero_grad()
            for b in window:
                logits = model(b["x"])["logits"]
                loss = F.cross_entropy(
                    logits, b["labels"], weight=weights.to(kind), reduction="sum"
                )
                if call % 4 == 0:
                    loss = loss + 0.1 * logits.logsumexp(-1).pow(2).sum()
                call += 1
                (loss / records).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 48, 4, 3, False), updates, lambda: loader_of(rows, 4)
    )
