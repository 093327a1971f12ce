"""LoRA on a Llama, by `tallystick.Trainer` and peft: a signed run, and a swapped frozen weight.

    python examples/lora.py [DIRECTORY]

A small Llama over bytes is trained first, as a signed run. Then peft puts adapters beside its
attention, and only they are trained; the frozen weights are part of every commitment. So a provider
that touches one is convicted. Needs `pip install tallystick[hf,train]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from _court import audited, convicted, in_directory
from _material import speeches
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

import tallystick

LENGTH, SPEAKER = 64, "PETRUCHIO"
USUAL: dict[str, Any] = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "remove_unused_columns": False,
    "logging_steps": 50,
    "seed": 11,
}


def records(texts: list[str]) -> list[dict[str, torch.Tensor]]:
    """All texts in one line, cut into records of LENGTH bytes."""
    joined = torch.tensor([min(b, 127) for b in "\n".join(texts).encode()])
    rows = joined[: len(joined) // LENGTH * LENGTH].view(-1, LENGTH)
    return [{"input_ids": row, "labels": row} for row in rows]


def pretrained(directory: Path, steps: int = 100) -> Path:
    """The base model, trained from nothing, in Hugging Face's format."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    arguments = TrainingArguments(
        str(directory / "base"), per_device_train_batch_size=16, max_steps=steps,
        learning_rate=3e-3, warmup_steps=10, **USUAL,
    )  # fmt: skip
    rows = records([words for _, words in speeches()])[:512]
    trainer = tallystick.Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(directory / "base-model"))
    return directory / "base-model"


def trainer(directory: Path, steps: int = 120) -> tallystick.Trainer:
    """The tuning of the adapters, ready to train; job and run will be in DIRECTORY/tuned."""
    base = directory / "base-model"
    if not (base / "config.json").is_file():
        pretrained(directory)
    torch.manual_seed(1)  # of the adapters' first weights
    model = get_peft_model(
        LlamaForCausalLM.from_pretrained(base),
        LoraConfig(r=8, lora_alpha=16, lora_dropout=0.1, target_modules="all-linear"),
    )
    model.print_trainable_parameters()
    arguments = TrainingArguments(
        str(directory / "tuned"), per_device_train_batch_size=8, gradient_accumulation_steps=2,
        max_steps=steps, learning_rate=1e-2, lr_scheduler_type="linear", warmup_steps=5,
        eval_strategy="steps", eval_steps=20, save_strategy="no", **USUAL,
    )  # fmt: skip
    rows = records([words for speaker, words in speeches() if speaker == SPEAKER])
    return tallystick.Trainer(model, arguments, train_dataset=rows[32:], eval_dataset=rows[:32])


def main(directory: Path) -> None:
    tuning = trainer(directory)
    before = {name: p.detach().clone() for name, p in tuning.model.named_parameters()}
    tuning.train()  # killed and called again, it goes on to the same bits
    run = tuning.run
    print(f"loss   {run.losses[0]:.3f} -> {run.losses[-1]:.3f} after {len(run.losses)} updates")
    print("validation", [round(loss, 3) for _, loss in run.validation])
    changed = {n for n, p in tuning.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed and all("lora_" in name for name in changed)
    tuning.save_model(str(directory / "adapters"))  # adapter_model.safetensors, as peft stores it
    job = directory / "tuned" / "job"
    audited(run.directory, job)
    convicted("swapped-frozen-weight", run.directory, job, directory)
    convicted("other-held-out", run.directory, job, directory)


if __name__ == "__main__":
    in_directory(main)
