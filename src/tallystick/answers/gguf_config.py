"""What a GGUF file's metadata says of a model, as the config and the names of transformers
(ANSWERS 12.2 to 12.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.disk.gguf import GgufFile, Value
from tallystick.errors import CorruptFileError, RefusedModelError

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
# Factors by which the file divides its rotary frequencies.
ROPE_FACTORS = "rope_freqs.weight"
_BLOCK = re.compile(r"blk\.([0-9]{1,6})\.([a-z_]+)\.(weight|bias)")
_Names = Mapping[str, str]


@dataclass(frozen=True)
class Architecture:
    """An architecture of GGUF. `outer` and `inner` are transformers' names of its modules, by the
    file's: of the whole model, and of each block, which stand below `blocks`. Matrices of
    `turned` modules lie in the file the other way; the rows of `interleaved` ones are in pairs.
    """

    family: str
    config: Callable[[_Facts], dict[str, Any]]
    blocks: str
    outer: _Names
    inner: _Names
    turned: frozenset[str] = frozenset()
    interleaved: frozenset[str] = frozenset()

    def parameter(self, name: str) -> str | None:
        """transformers' name of the file's tensor; None of one that it has not."""
        block = _BLOCK.fullmatch(name)
        if block is None:
            module, _, kind = name.rpartition(".")
            return f"{self.outer[module]}.{kind}" if module in self.outer else None
        number, module, kind = block.groups()
        if module not in self.inner:
            return None
        return f"{self.blocks}.{number}.{self.inner[module]}.{kind}"

    def is_turned(self, name: str) -> bool:
        """Whether a tensor of the file is the transpose of the parameter."""
        block = _BLOCK.fullmatch(name)
        return block is not None and block[2] in self.turned and block[3] == "weight"

    def is_interleaved(self, name: str) -> bool:
        block = _BLOCK.fullmatch(name)
        return block is not None and block[2] in self.interleaved


class _Facts:
    """The metadata of one architecture."""

    def __init__(self, name: str, file: GgufFile) -> None:
        self.name, self.file = name, file

    def get(self, key: str) -> Value | None:
        return self.file.metadata.get(f"{self.name}.{key}")

    def whole(self, key: str, default: int | None = None) -> int:
        found = self.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not int or not 0 <= found < 1 << 31:
            raise _corrupt(f"{self.name}.{key} is {_shown(found)}, and no whole number")
        return found

    def real(self, key: str, default: float | None = None) -> float:
        found = self.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not float or not abs(found) < float("inf"):
            raise _corrupt(f"{self.name}.{key} is {_shown(found)}, and no finite number")
        return found

    def common(self) -> dict[str, Any]:
        """What every config has."""
        embedding = self.file.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise _corrupt(f"it has no matrix {EMBEDDING}")
        return {
            "vocab_size": embedding.shape[0],
            "tie_word_embeddings": HEAD not in self.file.tensors,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }

    def has(self, name: str) -> bool:
        return name in self.file.tensors


def _shown(found: object) -> str:
    return "not there" if found is None else str(found)[:40]


def _corrupt(why: str) -> CorruptFileError:
    return CorruptFileError(f"The file does not describe a model: {why}.", "Fetch it again.")


def _refused(what: str, why: str) -> RefusedModelError:
    return RefusedModelError(
        f"The file has {what}: {why}.", "Use the model's directory, as save_pretrained wrote it."
    )


# -- configs ---------------------------------------------------------------------------------------
def _rope(f: _Facts, width: int) -> dict[str, Any]:
    if f.whole("rope.dimension_count", width) != width:
        raise _refused("rotary embeddings of a part of a head", "no family here has them so")
    kind = f.get("rope.scaling.type")
    if kind is None or kind == "none":
        factor = f.real("rope.scale_linear", 1.0)
        return {} if factor == 1.0 else {"rope_type": "linear", "factor": factor}
    if kind == "linear":
        return {"rope_type": "linear", "factor": f.real("rope.scaling.factor")}
    raise _refused(
        f"rotary embeddings scaled by {str(kind)[:40]!r}",
        "it is not known here how the file's numbers make the frequencies",
    )


def _decoder(f: _Facts) -> dict[str, Any]:
    """llama, and what is built as it is."""
    if f.whole("expert_count", 0):
        raise _refused("experts", "they are not read from GGUF files")
    heads, width = f.whole("attention.head_count"), f.whole("embedding_length")
    if not heads or width % heads:
        raise _corrupt(f"{heads} heads do not share {width} elements")
    head = f.whole("attention.key_length", width // heads)
    if f.whole("attention.value_length", head) != head:
        raise _refused("keys and values of different widths", "no family here has them")
    config = {
        **f.common(),
        "hidden_size": width,
        "intermediate_size": f.whole("feed_forward_length"),
        "num_hidden_layers": f.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": f.whole("attention.head_count_kv", heads),
        "head_dim": head,
        "max_position_embeddings": f.whole("context_length"),
        "rms_norm_eps": f.real("attention.layer_norm_rms_epsilon"),
    }
    rope = {"rope_type": "default", **_rope(f, head), "rope_theta": f.real("rope.freq_base", 1e4)}
    return {**config, "rope_parameters": rope}


def _llama(f: _Facts) -> dict[str, Any]:
    return {
        **_decoder(f),
        "attention_bias": f.has("blk.0.attn_q.bias"),
        "mlp_bias": f.has("blk.0.ffn_up.bias"),
        "hidden_act": "silu",
    }


def _qwen(f: _Facts) -> dict[str, Any]:
    return {**_decoder(f), "hidden_act": "silu", "use_sliding_window": False}


def _phi3(f: _Facts) -> dict[str, Any]:
    if any(name.startswith("rope_factors") for name in f.file.tensors):
        raise _refused(
            "one set of rotary factors for short texts and one for long ones",
            "an answer may not depend on how long its text will be",
        )
    window = f.whole("attention.sliding_window", 0)
    return {
        **_decoder(f),
        "hidden_act": "silu",
        "sliding_window": window or None,
        "original_max_position_embeddings": f.whole("context_length"),
    }


def _gpt2(f: _Facts) -> dict[str, Any]:
    width, heads = f.whole("embedding_length"), f.whole("attention.head_count")
    if not heads or width % heads:
        raise _corrupt(f"{heads} heads do not share {width} elements")
    return {
        **f.common(),
        "n_embd": width,
        "n_layer": f.whole("block_count"),
        "n_head": heads,
        "n_inner": f.whole("feed_forward_length"),
        "n_positions": f.whole("context_length"),
        "layer_norm_epsilon": f.real("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


# -- names -----------------------------------------------------------------------------------------
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INNER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
_NORMED = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_PHI3 = {**_INNER, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_GPT2_OUTER = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f", "output": "lm_head",
}  # fmt: skip
_GPT2_INNER = {
    "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(
        "llama", _llama, "model.layers", _OUTER, _INNER,
        interleaved=frozenset({"attn_q", "attn_k"}),
    ),
    "qwen2": Architecture("qwen2", _qwen, "model.layers", _OUTER, _INNER),
    "qwen3": Architecture("qwen3", _qwen, "model.layers", _OUTER, {**_INNER, **_NORMED}),
    "phi3": Architecture("phi3", _phi3, "model.layers", _OUTER, _PHI3),
    "gpt2": Architecture(
        "gpt2", _gpt2, "transformer.h", _GPT2_OUTER, _GPT2_INNER,
        turned=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
    ),
}  # fmt: skip


def architecture_of(file: GgufFile) -> tuple[Architecture, dict[str, Any]]:
    """The architecture of a file, and its config. Raises RefusedModelError for one that is not
    known, by its name, and CorruptFileError."""
    name = str(file.metadata.get("general.architecture"))
    found = ARCHITECTURES.get(name)
    if found is None:
        raise _refused(
            f"the architecture {name[:40]!r}", f"those known are {', '.join(ARCHITECTURES)}"
        )
    return found, {"model_type": found.family, **found.config(_Facts(name, file))}
