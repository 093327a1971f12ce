"""Small models of transformers as GGUF files, by the tensor names and the keys of llama.cpp's
converter, written here once more from its description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from answer_models import VOCABULARY
from model.gguf_files import Given, byte_tokens, gguf_bytes

Numbers = np.ndarray
Tensors = Iterator[tuple[str, Numbers]]


@dataclass(frozen=True)
class Form:
    """How the small model `model` becomes a file of `architecture`: changes of its config, and the
    file's name of each parameter behind the number of its block."""

    model: str
    architecture: str
    names: Mapping[str, str]
    keys: Callable[[Any], dict[str, Any]]
    changes: Mapping[str, Any]
    # Norms of the file are those of the model plus one.
    plus_one: bool = False
    # Two rows of a half of a head each, in turn.
    in_pairs: bool = False


_OUTER = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "lm_head.bias": "output.bias",
    "model.final_layernorm.weight": "output_norm.weight",
    "model.final_layernorm.bias": "output_norm.bias",
}  # fmt: skip
_ATTENTION = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
}  # fmt: skip
_MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_LLAMA = {**_ATTENTION, **_MLP, "post_attention_layernorm": "ffn_norm"}


def _sizes(c: Any) -> dict[str, Any]:
    return {
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "block_count": c.num_hidden_layers,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
    }


def _rms(c: Any) -> dict[str, Any]:
    return {**_sizes(c), "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps)}


def _rope(table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"rope.freq_base": float(table["rope_theta"])}
    if table["rope_type"] in ("linear", "yarn"):
        found["rope.scaling.type"] = table["rope_type"]
        found["rope.scaling.factor"] = float(table["factor"])
    if table["rope_type"] == "yarn":
        trained = table["original_max_position_embeddings"]
        found["rope.scaling.original_context_length"] = trained
        for name in ("beta_fast", "beta_slow"):
            if table.get(name) is not None:
                found[f"rope.scaling.yarn_{name}"] = float(table[name])
    return found


def _llama_keys(c: Any) -> dict[str, Any]:
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    wide = {"attention.key_length": head, "attention.value_length": head}
    return {**_rms(c), **wide, "rope.dimension_count": head, **_rope(c.rope_parameters)}


def _mixtral_keys(c: Any) -> dict[str, Any]:
    experts = {
        "expert_count": c.num_local_experts, "expert_used_count": c.num_experts_per_tok,
    }  # fmt: skip
    return {**_llama_keys(c), **experts}


def _qwen3_moe_keys(c: Any) -> dict[str, Any]:
    experts = {
        "expert_count": c.num_experts, "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
    }  # fmt: skip
    return {**_llama_keys(c), **experts}


def _wide(c: Any) -> dict[str, Any]:
    return {"attention.key_length": c.head_dim, "attention.value_length": c.head_dim}


def _gemma_keys(c: Any) -> dict[str, Any]:
    return {**_rms(c), **_wide(c)}


def _gemma2_keys(c: Any) -> dict[str, Any]:
    return {
        **_rms(c),
        **_wide(c),
        "attn_logit_softcapping": float(c.attn_logit_softcapping),
        "final_logit_softcapping": float(c.final_logit_softcapping),
        "attention.sliding_window": c.sliding_window,
    }


def _gemma3_keys(c: Any) -> dict[str, Any]:
    near = float(c.rope_parameters["sliding_attention"]["rope_theta"])
    found = {**_rms(c), **_wide(c), **_rope(c.rope_parameters["full_attention"])}
    return {**found, "rope.freq_base_swa": near, "attention.sliding_window": c.sliding_window}


def _phi2_keys(c: Any) -> dict[str, Any]:
    head = c.hidden_size // c.num_attention_heads
    part = c.rope_parameters["partial_rotary_factor"]
    return {
        **_sizes(c),
        "attention.layer_norm_epsilon": float(c.layer_norm_eps),
        "rope.dimension_count": int(part * head),
    }


_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 24.0,
    "beta_slow": 2.0, "original_max_position_embeddings": 16,
}  # fmt: skip
_LINEAR = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.5}
_NORMED = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_GEMMA2 = {
    **_ATTENTION, **_MLP, "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_PHI2 = {
    **_ATTENTION, "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
}  # fmt: skip
_ROUTED = {**_ATTENTION, "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp"}

# Widths are multiples of 32, so that every row is made of blocks; an epsilon is a number of f32.
_WIDE = {"hidden_size": 64, "intermediate_size": 96, "rms_norm_eps": 2.0**-20}

FORMS: Mapping[str, Form] = {
    "llama": Form("smollm", "llama", _LLAMA, _llama_keys, {"head_dim": 24}, in_pairs=True),
    "llama linear": Form("smollm", "llama", _LLAMA, _llama_keys, {
        "head_dim": 16, "rope_parameters": _LINEAR,
    }, in_pairs=True),
    "llama yarn": Form("yarn", "llama", _LLAMA, _llama_keys, {}, in_pairs=True),
    "qwen2 yarn": Form("qwen2", "qwen2", _LLAMA, _llama_keys, {
        "use_sliding_window": False, "layer_types": None, "rope_parameters": _YARN,
    }),
    "qwen3 linear": Form("qwen3", "qwen3", {**_LLAMA, **_NORMED}, _llama_keys, {
        "attention_bias": False, "rope_parameters": _LINEAR,
    }),
    "gemma": Form("gemma", "gemma", _LLAMA, _gemma_keys, {"head_dim": 24}, plus_one=True),
    "gemma2": Form("gemma2", "gemma2", _GEMMA2, _gemma2_keys, {
        "query_pre_attn_scalar": 16,
    }, plus_one=True),
    "gemma3": Form("gemma3", "gemma3", {**_GEMMA2, **_NORMED}, _gemma3_keys, {
        "query_pre_attn_scalar": 16, "num_hidden_layers": 7, "layer_types": None,
    }, plus_one=True),
    "qwen3moe": Form("qwen3_moe", "qwen3moe", {**_ROUTED, **_NORMED}, _qwen3_moe_keys, {
        "moe_intermediate_size": 32,
    }),
    "phi2": Form("phi", "phi2", _PHI2, _phi2_keys, {
        "qk_layernorm": False, "layer_norm_eps": 2.0**-17,
    }),
    "mixtral": Form("mixtral", "llama", _ROUTED, _mixtral_keys, {
        "sliding_window": None,
    }, in_pairs=True),
}  # fmt: skip


def _in_pairs(array: Numbers, heads: int) -> Numbers:
    """Row 2i+c of each head is row c·(D/2)+i of the model's."""
    halves = array.reshape(heads, 2, -1, *array.shape[1:])
    return np.ascontiguousarray(np.swapaxes(halves, 1, 2)).reshape(array.shape)


def file_tensors(form: Form, module: Any) -> Tensors:
    """The tensors of the file, in numbers."""
    c = module.config
    tied = bool(c.tie_word_embeddings)
    for name, parameter in module.named_parameters():
        array = parameter.detach().numpy()
        if name in _OUTER:
            if not (tied and name.startswith("lm_head")):
                plus = form.plus_one and "norm" in name
                yield _OUTER[name], array + np.float32(1) if plus else array
            continue
        number, _, inner = name.removeprefix("model.layers.").partition(".")
        if inner == "mlp.experts.gate_up_proj":
            half = array.shape[1] // 2
            yield f"blk.{number}.ffn_gate_exps.weight", array[:, :half]
            yield f"blk.{number}.ffn_up_exps.weight", array[:, half:]
            continue
        if inner == "mlp.experts.down_proj":
            yield f"blk.{number}.ffn_down_exps.weight", array
            continue
        inner, _, kind = inner.rpartition(".")
        if form.in_pairs and inner == "self_attn.q_proj":
            array = _in_pairs(array, c.num_attention_heads)
        if form.in_pairs and inner == "self_attn.k_proj":
            array = _in_pairs(array, c.num_key_value_heads)
        if form.plus_one and inner.endswith("norm"):
            array = array + np.float32(1)
        yield f"blk.{number}.{form.names[inner]}.{kind}", array


def q8_0(array: Numbers) -> bytes:
    """Blocks of 32: the scale as f16, and each number by it, to the nearest whole one."""
    rows = array.reshape(-1, 32)
    scale = (np.abs(rows).max(axis=1) / np.float32(127)).astype(np.float16)
    by = np.where(scale == 0, np.float32(1), scale.astype(np.float32))
    whole = np.rint(rows / by[:, None]).clip(-127, 127).astype(np.int8)
    return b"".join(s.tobytes() + w.tobytes() for s, w in zip(scale, whole, strict=True))


def from_q8_0(array: Numbers) -> Numbers:
    """What a matrix is after it was stored as Q8_0."""
    raw = np.frombuffer(q8_0(array), np.uint8).reshape(-1, 34)
    scale = raw[:, :2].copy().view(np.float16).astype(np.float32)
    whole = raw[:, 2:].copy().view(np.int8).astype(np.float32)
    return (scale * whole).reshape(array.shape)


def is_matrix(name: str, array: Numbers) -> bool:
    """Whether a file of Q8_0 has the tensor so: the rest stays F32."""
    return array.ndim > 1 and "ffn_gate_inp" not in name


def given(array: Numbers, kind: str, name: str) -> Given:
    if kind == "q8_0" and is_matrix(name, array):
        return Given("q8_0", array.shape, q8_0(array))
    return Given("f32", array.shape, np.ascontiguousarray(array, "<f4").tobytes())


def metadata_of(form: Form, module: Any) -> dict[str, Any]:
    keys = {f"{form.architecture}.{name}": x for name, x in form.keys(module.config).items()}
    return {"general.architecture": form.architecture, **keys, **byte_tokens(VOCABULARY)}


def write_converted(path: Path, form: Form, module: Any, kind: str) -> None:
    tensors = {name: given(x, kind, name) for name, x in file_tensors(form, module)}
    path.write_bytes(gguf_bytes(metadata_of(form, module), tensors))


def config_changes(form: Form) -> dict[str, Any]:
    return {**_WIDE, **form.changes}
