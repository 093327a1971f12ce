"""transformers' Trainer, and the SFT, DPO and GRPO trainers of trl, on tiny models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tallystick_bench.scripts.tiny import model, tokenizer

Made = tuple[nn.Module, list[Any]]


def _options(folder: str, workers: int, **more: Any) -> dict[str, Any]:
    plain = {
        "output_dir": folder, "use_cpu": True, "seed": 3, "learning_rate": 1e-3,
        "per_device_train_batch_size": 4, "dataloader_num_workers": workers, "report_to": [],
        "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    return plain | more


def _sentences(count: int) -> list[str]:
    return [f"the number {i} is {('even', 'odd')[i % 2]}. " * (1 + i % 3) for i in range(count)]


def _losses(trainer: Any) -> list[Any]:
    names = ("loss", "grad_norm", "reward", "rewards/margins")
    return [entry.get(n) for entry in trainer.state.log_history for n in names if n in entry]


def _reset() -> None:
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)


def trainer(workers: int) -> Made:
    """transformers' Trainer on GPT-2 with dropout; a run taken up from a checkpoint is the same."""
    import transformers as hf

    def one(folder: str, resume: str | None) -> Any:
        _reset()
        torch.manual_seed(0)
        tokens = tokenizer()
        net = model("gpt2", tokens, folder)
        records = [{"input_ids": tokens(text)["input_ids"]} for text in _sentences(16)]
        options = _options(folder, workers, max_steps=4, save_strategy="steps", save_steps=2)
        made = hf.Trainer(
            net, hf.TrainingArguments(**options), train_dataset=records,
            data_collator=hf.DataCollatorForLanguageModeling(tokens, mlm=False),
        )  # fmt: skip
        made.train(resume_from_checkpoint=resume)
        return made

    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = one(folder, None), one(folder, f"{folder}/checkpoint-2")
    ends = [dict(t.model.named_parameters()) for t in (whole, resumed)]
    if not all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0]):
        raise AssertionError("the run taken up from its checkpoint ends with other weights")
    return whole.model, _losses(whole)


def _trl(kind: str, workers: int, build: Callable[[Any, Any, dict[str, Any]], Any]) -> Made:
    _reset()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        tokens = tokenizer()
        net = model(kind, tokens, folder)
        made = build(net, tokens, _options(folder, workers, bf16=False))
        made.train()
    return net, _losses(made)


def sft(kind: str, workers: int) -> Made:
    """With gradient checkpointing, which is the trainer's default."""

    def build(net: Any, tokens: Any, options: dict[str, Any]) -> Any:
        import datasets
        import trl

        records = datasets.Dataset.from_list([{"text": text} for text in _sentences(16)])
        given = trl.SFTConfig(max_steps=4, max_length=64, **options)
        return trl.SFTTrainer(net, given, train_dataset=records, processing_class=tokens)

    return _trl(kind, workers, build)


def dpo(kind: str, workers: int) -> Made:
    def build(net: Any, tokens: Any, options: dict[str, Any]) -> Any:
        import datasets
        import trl

        texts = ("yes", "no, it is not")
        pairs = [
            {"prompt": f"is {i} even?", "chosen": texts[i % 2], "rejected": texts[1 - i % 2]}
            for i in range(16)
        ]
        given = trl.DPOConfig(max_steps=3, max_length=64, **options)
        records = datasets.Dataset.from_list(pairs)
        return trl.DPOTrainer(net, args=given, train_dataset=records, processing_class=tokens)

    return _trl(kind, workers, build)


def _letters(completions: list[str], **_: Any) -> list[float]:
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]


def grpo(kind: str, workers: int) -> Made:
    """Completions are sampled by the model itself; a divergence from the first model costs."""

    def build(net: Any, tokens: Any, options: dict[str, Any]) -> Any:
        import datasets
        import trl

        records = datasets.Dataset.from_list([{"prompt": f"is {i} even?"} for i in range(16)])
        given = trl.GRPOConfig(
            max_steps=2, num_generations=4, max_completion_length=12, beta=0.04, **options
        )
        return trl.GRPOTrainer(
            net, _letters, args=given, train_dataset=records, processing_class=tokens
        )

    return _trl(kind, workers, build)
