"""Small models of the families that answers are given with, each with the options it has, and a
plain engine over kept keys and values: one row at a time, with the operators as they are defined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallystick import evaluate
from tallystick.program.executor import Executor
from tallystick.program.ir import Node, Program

VOCABULARY, WINDOW, LONGEST = 48, 5, 64
_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": LONGEST,
}  # fmt: skip
_MIXED = ["sliding_attention", "full_attention"]
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip

# By name: the class of the config, and what differs from the sizes above.
CONFIGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {
        "rope_parameters": _LLAMA3, "attention_bias": True, "mlp_bias": True,
    }),
    "smollm": ("LlamaConfig", {"tie_word_embeddings": True, "head_dim": 12}),
    "yarn": ("LlamaConfig", {"rope_parameters": _YARN}),
    "qwen2": ("Qwen2Config", {
        "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1,
    }),
    "qwen3": ("Qwen3Config", {"head_dim": 16, "attention_bias": True}),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}),
    "gemma": ("GemmaConfig", {"head_dim": 8}),
    "gemma2": ("Gemma2Config", {
        "head_dim": 16, "query_pre_attn_scalar": 9, "sliding_window": WINDOW,
        "layer_types": _MIXED, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
    }),
    "gemma3": ("Gemma3TextConfig", {
        "head_dim": 16, "sliding_window": WINDOW, "layer_types": _MIXED,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }),
    "phi": ("PhiConfig", {
        "qk_layernorm": True, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
        },
    }),
    "phi3": ("Phi3Config", {"sliding_window": WINDOW, "pad_token_id": 0}),
    "gpt2": ("GPT2Config", {"scale_attn_by_inverse_layer_idx": True}),
    "mixtral": ("MixtralConfig", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW,
    }),
    "qwen3_moe": ("Qwen3MoeConfig", {
        "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
        "norm_topk_prob": True,
    }),
}  # fmt: skip


def config_of(name: str, **changes: Any) -> Any:
    """transformers' config of the small model `name`."""
    import transformers

    kind, options = CONFIGS[name]
    return getattr(transformers, kind)(**{**_SIZES, **options, **changes})


def save_model(name: str, directory: Path, shards: str = "1GB", **changes: Any) -> Any:
    """A directory of the small model `name` with random weights; the module."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    module = AutoModelForCausalLM.from_config(config_of(name, **changes), dtype=torch.float32)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    module.save_pretrained(directory, max_shard_size=shards)
    return module


def text_of(length: int, seed: int = 3) -> np.ndarray:
    """Random tokens, i64[length]."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).astype(np.int64)


class PlainEngine:
    """An engine program with kept keys and values: by rows of (sequence, token), each sequence's
    places from 0. `logits` are f32[rows, V]."""

    def __init__(self, program: Program, state: dict[str, np.ndarray]) -> None:
        self.program, self.state = program, state
        self.executor = Executor(program, kernels=self._kernel)
        self.keys: dict[tuple[int, Any], list[np.ndarray]] = defaultdict(list)
        self.values: dict[tuple[int, Any], list[np.ndarray]] = defaultdict(list)
        self.places: dict[Any, int] = defaultdict(int)
        self.rows: list[Any] = []
        self.asked: dict[int, np.ndarray] = {}

    def logits(self, rows: Sequence[tuple[Any, int]]) -> np.ndarray:
        self.rows = [sequence for sequence, _ in rows]
        assert len(set(self.rows)) == len(rows), "a row reads the keys of the rows before it"
        places = [[self.places[sequence]] for sequence in self.rows]
        batch = {
            "token": np.array([[token] for _, token in rows], np.int64),
            "place": np.array(places, np.int64),
        }
        found = self.executor.run_step(self.state, batch).outputs["logits"]
        for sequence in self.rows:
            self.places[sequence] += 1
        return found

    def _kernel(self, index: int, node: Node, spec: Any) -> Callable[..., None] | None:
        if node.op == "tallystick.attention_scores":
            return lambda attrs, inputs, outputs: self._keep(index, inputs)
        if node.op == "tallystick.attention_weights":
            return lambda attrs, inputs, outputs: None
        if node.op == "tallystick.attention_values":
            return lambda attrs, inputs, outputs: self._attend(index, inputs[1], outputs[0])
        return None

    def _keep(self, layer: int, inputs: Sequence[Any]) -> None:
        self.asked[layer] = np.array(inputs[0])
        for row, sequence in enumerate(self.rows):
            self.keys[layer, sequence].append(np.array(inputs[1][row]))

    def _attend(self, index: int, values: np.ndarray, out: np.ndarray) -> None:
        weigh = self.program.nodes[index].inputs[0]
        score = self.program.nodes[weigh.node].inputs[0]
        scoring, weighing = self.program.nodes[score.node], self.program.nodes[weigh.node]
        named = self.program.contract
        for row, sequence in enumerate(self.rows):
            self.values[score.node, sequence].append(np.array(values[row]))
            q = self.asked[score.node][row : row + 1]
            k = np.concatenate(self.keys[score.node, sequence], 1)[None]
            v = np.concatenate(self.values[score.node, sequence], 1)[None]
            first = {"first": self.places[sequence]}
            attrs = [{**node.attrs, **first} for node in (scoring, weighing)]
            s = evaluate("tallystick.attention_scores", q, k, contract=named, **attrs[0])
            p = evaluate("tallystick.attention_weights", s, contract=named, **attrs[1])
            y = evaluate("tallystick.attention_values", p, v, contract=named, **attrs[1])
            out[row] = y[0]
