"""Recipe `llama`: a Llama of any size on bytes of text, or on the tokens of a tokenizer file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.errors import UsageError
from tallystick.job.recipes.base import Built, Recipe, StartingPoint, normal
from tallystick.job.recipes.llama_module import (
    INVERSE_FREQUENCIES,
    inverse_frequencies,
    make_module,
)
from tallystick.job.recipes.settings import setting
from tallystick.job.recipes.starting import read_sizes
from tallystick.job.recipes.text_records import (
    SOURCES,
    TextSettings,
    build_next_token,
    check_next_token,
    next_token_data,
    vocabulary,
)
from tallystick.numerics.types import TensorType
from tallystick.program.update import Optimizers

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LlamaSettings(TextSettings):
    """Keys of `--set`."""

    recipe: ClassVar[str] = "llama"

    n_layer: int = setting(4, "transformer blocks", low=1, high=1000)
    n_head: int = setting(4, "attention heads; divides n_embd", low=1, high=1000)
    n_kv_head: int = setting(2, "heads of keys and values; divides n_head", low=1, high=1000)
    n_embd: int = setting(128, "width", low=2, high=65536)
    intermediate: int = setting(384, "width inside the feed-forward layers", low=1, high=1 << 20)
    block_size: int = setting(64, "tokens per record", low=1, high=1 << 20)
    vocab_size: int = setting(256, "tokens in the vocabulary, at least 256", low=256, high=1 << 24)
    tied: bool = setting(True, "the head shares the embedding's weight")
    norm_eps: float = setting(1e-5, "constant added in RMS norms", low=0)
    attention_dropout: float = setting(0.0, "dropout probability of attention weights", low=0)
    rope_theta: float = setting(10000.0, "base of the rotary positions", low=1)
    rope_factor: float = setting(1.0, "stretch of low frequencies (Llama 3.1); 1 = off", low=1)
    rope_low: float = setting(1.0, "with rope_factor: frequencies below it are stretched", low=0)
    rope_high: float = setting(4.0, "with rope_factor: frequencies above it are kept", low=0)
    rope_original: int = setting(8192, "with rope_factor: context length before stretching", low=1)
    batch_size: int = setting(8, "records per step", low=1, high=1 << 20)
    weight_decay: float = setting(0.1, "applied to matrices only", low=0)
    beta2: float = setting(0.95, "used by Adam, AdamW and LAMB", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.below_one("attention_dropout")
        self.divides("n_head", "n_embd")
        self.divides("n_kv_head", "n_head")
        if self.n_embd // self.n_head % 2:
            raise UsageError(
                f"{self.recipe}: a head has {self.n_embd // self.n_head} numbers, which is not "
                "even.",
                "Choose n_embd and n_head so that their quotient is even.",
            )
        if not self.rope_low < self.rope_high:
            raise UsageError(
                f"{self.recipe}: rope_low is below rope_high.",
                "Change --set rope_low or rope_high.",
            )


PRESETS = {
    "1b": {
        "n_layer": "16",
        "n_head": "32",
        "n_kv_head": "8",
        "n_embd": "2048",
        "intermediate": "8192",
        "vocab_size": "128256",
        "block_size": "2048",
        "rope_theta": "500000",
        "rope_factor": "32",
        "lr": "0.0003",
        "warmup": "200",
        "text_bytes": "0",
    },
    "8b": {
        "n_layer": "32",
        "n_head": "32",
        "n_kv_head": "8",
        "n_embd": "4096",
        "intermediate": "14336",
        "vocab_size": "128256",
        "block_size": "2048",
        "tied": "false",
        "rope_theta": "500000",
        "rope_factor": "8",
        "lr": "0.0003",
        "warmup": "200",
        "text_bytes": "0",
    },
    "small": {
        "n_layer": "8",
        "n_head": "8",
        "n_kv_head": "4",
        "n_embd": "512",
        "intermediate": "1536",
        "block_size": "256",
    },
    "tiny": {
        "n_layer": "2",
        "n_head": "4",
        "n_kv_head": "2",
        "n_embd": "16",
        "intermediate": "32",
        "block_size": "16",
        "batch_size": "4",
    },
}


def initial_state(s: LlamaSettings, types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """Llama's initialisation, a function of slot names, shapes, settings and `seed` alone.

    Matrices and embeddings: normal, 0.02. Norms: 1. The angles of the rotary positions:
    `inverse_frequencies`. The draw id is the slot's place in name order.
    """
    state: dict[str, Array] = {}
    for index, name in enumerate(sorted(types)):
        shape = types[name].shape
        if name.endswith(INVERSE_FREQUENCIES):
            state[name] = inverse_frequencies(s)
        elif len(shape) == 1:
            state[name] = np.ones(shape, dtype=np.float32)
        else:
            state[name] = normal(seed, index, shape, 0.02)
    return state


def on_meta(s: LlamaSettings) -> tuple[nn.Module, Optimizers]:
    """The module without weights, and its optimizer: all that capture needs, whatever the size."""
    import torch

    with torch.device("meta"):
        module = make_module(s)
    return module, s.rule(lambda name, shape: len(shape) == 2 and ".layers." in name)


def build(s: LlamaSettings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Capture the training step, the validation loss and the forward pass. Needs torch."""
    return build_next_token(
        *on_meta(s), s.rates(steps), s, lambda types, seed: initial_state(s, types, seed), seed
    )


_CONFIG = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": "n_kv_head",
    "hidden_size": "n_embd",
    "intermediate_size": "intermediate",
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tied",
    "rms_norm_eps": "norm_eps",
    "attention_dropout": "attention_dropout",
    "rope_theta": "rope_theta",
}
_ROPE = {
    "rope_theta": "rope_theta",
    "factor": "rope_factor",
    "low_freq_factor": "rope_low",
    "high_freq_factor": "rope_high",
    "original_max_position_embeddings": "rope_original",
}
_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


def sizes_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a checkpoint's config. Raises UsageError for another kind of model."""
    # transformers' own values where a config leaves these out; the recipe's are others.
    usual = {"tied": "false", "norm_eps": "1e-06"}
    found = {**usual, **read_sizes(config, "llama", _FIXED, _CONFIG)}
    for key in ("num_hidden_layers", "num_attention_heads", "hidden_size"):
        if type(config.get(key)) is not int:
            raise UsageError(
                f"The checkpoint's config has no number {key}.", "Use the checkpoint of a Llama."
            )
    found.setdefault("n_kv_head", found["n_head"])  # a config from before there were groups
    head = config.get("head_dim")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    if head is not None and (type(head) is not int or head * heads != width):
        raise UsageError(
            "The checkpoint's head_dim is not hidden_size / num_attention_heads, as in this "
            "recipe.",
            "Capture the model itself (docs/tutorials/huggingface.md).",
        )
    # transformers 5 writes rope_parameters; before it was rope_scaling, with the theta outside.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise UsageError(
            "The checkpoint's rope parameters are not a table.", "Use the checkpoint of a Llama."
        )
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise UsageError(
            f"The checkpoint's rotary positions are {kind!r}, but the recipe knows only default "
            "and llama3.",
            "Capture the model itself (docs/tutorials/huggingface.md).",
        )
    names = _ROPE if kind == "llama3" else {"rope_theta": "rope_theta"}
    found |= {setting: repr(rope[key]) for key, setting in names.items() if key in rope}
    return found


STARTING = StartingPoint(
    sizes_of,
    # The model without a head is saved without the prefix.
    lambda name: (name, name.removeprefix("model.")),
    lambda name: False,
)
RECIPE = Recipe(
    "llama",
    "a Llama of any size on the bytes or tokens of a text",
    LlamaSettings,
    SOURCES,
    next_token_data,
    build,
    PRESETS,
    check_next_token,
    derive=lambda given, sources: vocabulary(sources),
    takes=("tokenizer", "checkpoint"),
    starting=STARTING,
)
