"""peft's methods around a tiny Llama, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tallystick_bench.coverage.case import Case, library
from tallystick_bench.coverage.hf_text import build, tokens, whole_call

_PROJECTIONS = {"target_modules": ["q_proj", "v_proj"]}
_PROMPT = {"num_virtual_tokens": 3}

# Name: class of the config, and its arguments.
_METHODS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "lora": ("LoraConfig", {"r": 4, **_PROJECTIONS}),
    "rslora": ("LoraConfig", {"r": 4, "use_rslora": True, **_PROJECTIONS}),
    "dora": ("LoraConfig", {"r": 4, "use_dora": True, **_PROJECTIONS}),
    "pissa": ("LoraConfig", {"r": 4, "init_lora_weights": "pissa", **_PROJECTIONS}),
    "lora all layers": ("LoraConfig", {"r": 4, "target_modules": "all-linear",
                                       "modules_to_save": ["lm_head"]}),
    "lora embedding": ("LoraConfig", {"r": 4, "target_modules": ["embed_tokens"]}),
    "ia3": ("IA3Config", {"target_modules": ["k_proj", "v_proj", "down_proj"],
                          "feedforward_modules": ["down_proj"]}),
    "adalora": ("AdaLoraConfig", {"init_r": 4, "target_r": 2, "total_step": 100, "tinit": 10,
                                  "tfinal": 10, **_PROJECTIONS}),
    "prefix tuning": ("PrefixTuningConfig", _PROMPT),
    "prefix projection": ("PrefixTuningConfig", {**_PROMPT, "prefix_projection": True,
                                                 "encoder_hidden_size": 16}),
    "prompt tuning": ("PromptTuningConfig", _PROMPT),
    "p-tuning": ("PromptEncoderConfig", {**_PROMPT, "encoder_hidden_size": 16}),
    "p-tuning lstm": ("PromptEncoderConfig", {
        **_PROMPT, "encoder_hidden_size": 16, "encoder_reparameterization_type": "LSTM",
        "encoder_num_layers": 1, "encoder_dropout": 0.0}),
    "loha": ("LoHaConfig", {"r": 4, **_PROJECTIONS}),
    "lokr": ("LoKrConfig", {"r": 4, **_PROJECTIONS}),
    "lokr decomposed": ("LoKrConfig", {"r": 2, "decompose_both": True, **_PROJECTIONS}),
    "vera": ("VeraConfig", {"r": 4, "target_modules": ["q_proj", "o_proj"]}),
    "oft": ("OFTConfig", {"oft_block_size": 8, "use_cayley_neumann": False, **_PROJECTIONS}),
    "oft neumann": ("OFTConfig", {"oft_block_size": 8, "use_cayley_neumann": True,
                                  **_PROJECTIONS}),
    "boft": ("BOFTConfig", {"boft_block_size": 8, **_PROJECTIONS}),
    "hra": ("HRAConfig", {"r": 4, **_PROJECTIONS}),
    "layernorm tuning": ("LNTuningConfig", {"target_modules": ["input_layernorm"]}),
    "bone": ("MissConfig", {"r": 4, **_PROJECTIONS}),
    "vblora": ("VBLoRAConfig", {"r": 2, "num_vectors": 12, "vector_length": 8, "topk": 2,
                                **_PROJECTIONS}),
    "randlora": ("RandLoraConfig", {"r": 4, "target_modules": ["q_proj", "o_proj"]}),
    "road": ("RoadConfig", {"group_size": 8, **_PROJECTIONS}),
    "shira": ("ShiraConfig", {"r": 2, **_PROJECTIONS}),
    "trainable tokens": ("TrainableTokensConfig", {"token_indices": [6, 7, 9],
                                                   "target_modules": ["embed_tokens"]}),
    "adaption prompt": ("AdaptionPromptConfig", {"adapter_len": 3, "adapter_layers": 1}),
    "delora": ("DeloraConfig", {"r": 4, **_PROJECTIONS}),
}  # fmt: skip
_DRAWN_DROPOUT: Mapping[str, Any] = {"r": 4, "lora_dropout": 0.1, **_PROJECTIONS}


def _wrapped(config: str, given: Mapping[str, Any]) -> nn.Module:
    peft = library("peft")
    inner = build("llama", "AutoModelForCausalLM", num_key_value_heads=4)
    made = getattr(peft, config)(task_type="CAUSAL_LM", **given)
    module: nn.Module = peft.get_peft_model(inner, made)
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        # An adapter begins at zero, where half of its gradients are zero too.
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter += 0.02 * torch.randn(parameter.shape, generator=drawn)
    return module.train()


def cases() -> Iterator[Case]:
    """Every method that this version of peft has."""
    peft = library("peft")
    for name, (config, given) in _METHODS.items():
        if not hasattr(peft, config):
            continue

        def made(config: str = config, given: Mapping[str, Any] = given) -> nn.Module:
            return _wrapped(config, given)

        yield Case("peft", name, made, whole_call, tokens)
    yield Case("peft", "lora dropout", lambda: _wrapped("LoraConfig", _DRAWN_DROPOUT), whole_call,
               tokens, drawn=True)  # fmt: skip
