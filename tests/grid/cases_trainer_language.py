"""Language models under transformers' Trainer: accumulation, growing lengths, smoothing."""

from __future__ import annotations

import math

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, default_data_collator

import tallystick

QUIET = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "save_strategy": "no",
    "remove_unused_columns": False,
}


def rows_of_text(count: int, length: int, ignored: int = 0) -> list[dict]:
    """Windows over a text of 32 letters; the first `ignored` labels of a row are a prompt."""
    rows = []
    for n in range(count):
        ids = [(3 * n + k * (1 + n % 5)) % 32 for k in range(length)]
        prompt = ignored + n % 3 if ignored else 0
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return rows


def tiny_gpt2(seed: int, layers: int = 1, dropout: float = 0.1) -> GPT2LMHeadModel:
    """A GPT-2 of about four thousand weights, its head tied to the embedding."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32,
            n_positions=16,
            n_embd=16,
            n_layer=layers,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=0.0,
        )
    )


def decay_groups(model: nn.Module, decay: float) -> list[dict]:
    """The two groups of Trainer.create_optimizer: biases and layer norms do not decay."""
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    named = list(model.named_parameters())
    yes = [p for n, p in named if id(p) not in norms and "bias" not in n]
    no = [p for n, p in named if id(p) in norms or "bias" in n]
    return [{"params": yes, "weight_decay": decay}, {"params": no, "weight_decay": 0.0}]


def shifted_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum over tokens of a causal model's cross-entropy."""
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )


@grid_case(
    "trainer-gpt2-accumulated-cosine",
    "Trainer",
    (
        "gradient accumulation",
        "num_items_in_batch",
        "warm-up",
        "cosine per step",
        "clipping",
        "weight decay groups",
        "weight tying",
        "dropout",
        "shuffle",
    ),
)
def gpt2_accumulated() -> Loop:
    """Follows transformers' run_clm.py: prompts are ignored, three micro-batches make an update."""
    rows, updates = rows_of_text(48, 12, ignored=2), 20

    def loader():
        return DataLoader(rows, batch_size=4, shuffle=True, collate_fn=default_data_collator)

    def signed(out):
        trainer = tallystick.Trainer(
            tiny_gpt2(1),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=4,
                gradient_accumulation_steps=3,
                num_train_epochs=5,
                learning_rate=4e-3,
                lr_scheduler_type="cosine",
                warmup_steps=4,
                weight_decay=0.05,
                max_grad_norm=0.5,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decay_groups(model, 0.05), lr=4e-3)

        def rate(step: int) -> float:
            if step < 4:
                return step / 4
            progress = (step - 4) / (updates - 4)
            return 0.5 * (1 + math.cos(math.pi * progress))

        scheduler = LambdaLR(optimizer, rate)
        for _ in range(updates):
            window = [next(batches) for _ in range(3)]
            # transformers counts every label: this GPT-2 says no loss_type
            tokens = sum(int((b["labels"] != -100).sum()) for b in window)
            optimizer.zero_grad()
            for b in window:
                (
                    shifted_sum(model(input_ids=b["input_ids"]).logits, b["labels"]) / tokens
                ).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(tiny_gpt2(1), signed, plain, Order(True, 48, 4, 5, False), updates, loader)


@grid_case(
    "trainer-gpt2-length-warmup-layer-decay",
    "Trainer",
    (
        "sequence-length warm-up by state.global_step",
        "create_optimizer override",
        "layer-wise rate decay",
        "parameter groups",
        "constant schedule with warm-up",
    ),
)
def gpt2_length_warmup() -> Loop:
    """Follows short-sequence pretraining scripts (Shortformer): 4, then 8, then 12 tokens a row."""
    rows, updates = rows_of_text(40, 12), 24

    def layer_groups(model: nn.Module) -> list[dict]:
        heads = [*model.transformer.ln_f.parameters()]
        groups = [{"params": heads, "lr": 5e-3}]
        for depth, block in enumerate(reversed(model.transformer.h)):
            groups.append({"params": [*block.parameters()], "lr": 5e-3 * 0.7 ** (depth + 1)})
        first = [*model.transformer.wte.parameters(), *model.transformer.wpe.parameters()]
        groups.append({"params": first, "lr": 5e-3 * 0.7 ** (len(model.transformer.h) + 1)})
        return groups

    class ShortFirst(tallystick.Trainer):
        def create_optimizer(self, *given):
            if self.optimizer is None:
                self.optimizer = torch.optim.AdamW(layer_groups(self.model), weight_decay=0.0)
            return self.optimizer

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            length = min(12, 4 + 4 * (self.state.global_step // 8))
            ids = inputs["input_ids"][:, :length]
            outputs = model(input_ids=ids)
            loss = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            return (loss, outputs) if return_outputs else loss

    def loader():
        return DataLoader(rows, batch_size=5, shuffle=True, collate_fn=default_data_collator)

    def signed(out):
        trainer = ShortFirst(
            tiny_gpt2(2, layers=2, dropout=0.0),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=5,
                num_train_epochs=3,
                lr_scheduler_type="constant_with_warmup",
                warmup_steps=3,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(layer_groups(model), weight_decay=0.0)
        scheduler = LambdaLR(optimizer, lambda step: min(1.0, step / 3))
        for step in range(updates):
            ids = next(batches)["input_ids"][:, : min(12, 4 + 4 * (step // 8))]
            logits = model(input_ids=ids).logits
            optimizer.zero_grad()
            F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    model = tiny_gpt2(2, layers=2, dropout=0.0)
    return Loop(model, signed, plain, Order(True, 40, 5, 3, False), updates, loader)


@grid_case(
    "trainer-gpt2-smoothing-remainder",
    "Trainer",
    (
        "label_smoothing_factor",
        "gradient accumulation with a short last window",
        "a last short batch",
        "several epochs",
        "linear schedule",
    ),
)
def gpt2_smoothing() -> Loop:
    """Follows a summarisation fine-tune with label smoothing; eleven micro-batches in fours."""
    rows, epochs, per_epoch = rows_of_text(42, 10), 5, 11
    updates = 3 * epochs  # windows of 4, 4 and 3 micro-batches; the eleventh has two records

    def loader():
        return DataLoader(rows, batch_size=4, shuffle=True, collate_fn=default_data_collator)

    def signed(out):
        trainer = tallystick.Trainer(
            tiny_gpt2(3),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=4,
                gradient_accumulation_steps=4,
                num_train_epochs=epochs,
                learning_rate=3e-3,
                label_smoothing_factor=0.1,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
        )
        trainer.train()
        return trainer.run

    def smoothed_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        log_probs = -F.log_softmax(logits[:, :-1], dim=-1)
        target = labels[:, 1:, None]
        nll = log_probs.gather(-1, target).sum()
        return 0.9 * nll + 0.1 * log_probs.sum() / log_probs.shape[-1]

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(decay_groups(model, 0.0), lr=3e-3)
        scheduler = LambdaLR(optimizer, lambda step: (updates - step) / updates)
        for _ in range(epochs):
            left = per_epoch
            while left:
                window = [next(batches) for _ in range(min(4, left))]
                left -= len(window)
                # transformers counts every label: this GPT-2 says no loss_type
                tokens = sum(b["labels"].numel() for b in window)
                optimizer.zero_grad()
                for b in window:
                    logits = model(input_ids=b["input_ids"]).logits
                    (smoothed_sum(logits, b["labels"]) / tokens).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                yield optimizer

    return Loop(tiny_gpt2(3), signed, plain, Order(True, 42, 4, epochs, False), updates, loader)
