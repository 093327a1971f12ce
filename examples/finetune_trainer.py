"""Fine-tune a Hugging Face model with `tallystick.Trainer`: pretrained, tuned, early stop, audit.

    python examples/finetune_trainer.py [DIRECTORY]

A small GPT-2 over bytes learns from all of Shakespeare's speeches. The checkpoint is loaded by
`from_pretrained`, as one from a hub would be, and tuned on what one person says. Both trainings are
signed runs. The second accumulates two micro-batches, commits to its validation, and may stop by
it. Needs `pip install tallystick[hf,train]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from _court import audited, convicted, in_directory
from _material import speeches
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    TrainingArguments,
)

import tallystick

LENGTH, SPEAKER = 64, "GLOUCESTER"
USUAL: dict[str, Any] = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "remove_unused_columns": False,
    "logging_steps": 50,
    "seed": 7,
}


def records(texts: list[str]) -> list[dict[str, list[int]]]:
    """Each text's first bytes, as tokens: 0 is padding."""
    return [{"input_ids": [min(b, 127) for b in t.encode()[:LENGTH]]} for t in texts]


def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Padded to the longest record, whose padding counts for nothing."""
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row["input_ids"]) for row in rows], batch_first=True
    )
    mask = (ids != 0).long()
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def pretrained(directory: Path, steps: int = 100) -> Path:
    """The base model, trained from nothing, in Hugging Face's format."""
    torch.manual_seed(0)
    shape = {"vocab_size": 128, "n_positions": LENGTH, "n_embd": 48, "n_layer": 2, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        str(directory / "base"), per_device_train_batch_size=16, max_steps=steps,
        learning_rate=3e-3, warmup_steps=10, **USUAL,
    )  # fmt: skip
    rows = records([words for _, words in speeches() if len(words) >= LENGTH][:512])
    trainer = tallystick.Trainer(model, arguments, train_dataset=rows, data_collator=collate)
    trainer.train()
    trainer.save_model(str(directory / "base-model"))
    return directory / "base-model"


def trainer(directory: Path, steps: int = 120) -> tallystick.Trainer:
    """The fine-tuning, ready to train; its job and run will be in DIRECTORY/tuned."""
    base = directory / "base-model"
    if not (base / "config.json").is_file():
        pretrained(directory)
    model = GPT2LMHeadModel.from_pretrained(base)
    arguments = TrainingArguments(
        str(directory / "tuned"), per_device_train_batch_size=8, gradient_accumulation_steps=2,
        max_steps=steps, learning_rate=2e-3, lr_scheduler_type="cosine", warmup_steps=5,
        weight_decay=0.01, eval_strategy="steps", eval_steps=10, save_strategy="steps",
        save_steps=10, load_best_model_at_end=True, **USUAL,
    )  # fmt: skip
    rows = records([words for speaker, words in speeches() if speaker == SPEAKER])
    return tallystick.Trainer(
        model, arguments, train_dataset=rows[24:], eval_dataset=rows[:24], data_collator=collate,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=3)],
    )  # fmt: skip


def main(directory: Path) -> None:
    tuning = trainer(directory)
    tuning.train()  # killed and called again, it goes on to the same bits
    run = tuning.run
    print(f"loss   {run.losses[0]:.3f} -> {run.losses[-1]:.3f} after {len(run.losses)} updates")
    print("validation", [round(loss, 3) for _, loss in run.validation])
    job = directory / "tuned" / "job"
    audited(run.directory, job)
    convicted("false-fold", run.directory, job, directory)
    convicted("false-validation", run.directory, job, directory)


if __name__ == "__main__":
    in_directory(main)
