"""Adapters of small models, as peft saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def save_adapter(
    model: Path, directory: Path, dtype: str = "float32", copies: bool = False, **options: Any
) -> Any:
    """A directory of a LoRA of the model in `model` with random matrices; peft's model of both,
    read from there. `options` are LoraConfig's; with `copies` the model's own head is saved too."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    given = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], **options}
    torch.manual_seed(23)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **given))
    for name, parameter in adapted.named_parameters():
        if ".lora_" in name:
            parameter.data = (0.3 * torch.randn(parameter.shape)).to(getattr(torch, dtype))
    adapted.save_pretrained(directory, save_embedding_layers=copies)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    return PeftModel.from_pretrained(plain, directory).eval()


def logits_of_peft(adapted: Any, text: np.ndarray) -> np.ndarray:
    """The logits after each place of `text`, by peft's own forward."""
    import torch

    with torch.no_grad():
        found: np.ndarray = adapted(torch.tensor(text)[None]).logits[0].numpy()
    return found
