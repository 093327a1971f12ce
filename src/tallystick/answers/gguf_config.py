"""The configs of transformers that a GGUF file's metadata gives, each number checked for what it
should be (ANSWERS 12.2).
"""

from __future__ import annotations

from typing import Any

from tallystick.disk.gguf import GgufFile, Value
from tallystick.errors import CorruptFileError, RefusedModelError

EMBEDDING, HEAD = "token_embd.weight", "output.weight"


class GgufFacts:
    """The metadata of the architecture `name`."""

    def __init__(self, name: str, file: GgufFile) -> None:
        self.name, self.file = name, file

    def get(self, key: str) -> Value | None:
        return self.file.metadata.get(f"{self.name}.{key}")

    def whole(self, key: str, default: int | None = None) -> int:
        found = self.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not int or not 0 <= found < 1 << 31:
            raise corrupt(f"{self.name}.{key} is {_shown(found)}, not a whole number")
        return found

    def real(self, key: str, default: float | None = None) -> float:
        found = self.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not float or not abs(found) < float("inf"):
            raise corrupt(f"{self.name}.{key} is {_shown(found)}, not a finite number")
        return found

    def only(self, key: str, *known: Value) -> None:
        """Refuse the file if it says something else than `known` under the key."""
        found = self.get(key)
        if found is not None and found not in known:
            raise refused(
                f"{self.name}.{key} {_shown(found)}", "it is not known here what follows from it"
            )

    def heads(self) -> tuple[int, int]:
        """The width of the model, and the number of heads."""
        heads, width = self.whole("attention.head_count"), self.whole("embedding_length")
        if not heads or width % heads:
            raise corrupt(f"{width} elements cannot be divided among {heads} heads")
        return width, heads

    def sliding(self, every: int) -> list[bool]:
        """Whether the attention of each block slides: all but the last of every so many, unless the
        file says otherwise."""
        key = "attention.sliding_window_pattern"
        count, found = self.whole("block_count"), self.get(key)
        if count > len(self.file.tensors):
            raise corrupt(f"{count} blocks have only {len(self.file.tensors)} tensors")
        if isinstance(found, list):
            if len(found) != count or any(x not in (0, 1) for x in found):
                raise corrupt(f"{self.name}.{key} does not say of each block whether it slides")
            return [bool(x) for x in found]
        every = self.whole(key, every)
        return [every == 0 or i % every < every - 1 for i in range(count)]

    def common(self) -> dict[str, Any]:
        """What every config has."""
        embedding = self.file.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise corrupt(f"it has no matrix {EMBEDDING}")
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


def corrupt(why: str) -> CorruptFileError:
    return CorruptFileError(f"The file does not describe a model: {why}.", "Download it again.")


def refused(what: str, why: str) -> RefusedModelError:
    return RefusedModelError(
        f"The file has {what}: {why}.", "Use the model's directory, as save_pretrained wrote it."
    )


_NO_SCALING = "rope.scaling.yarn_attn_factor", "rope.scaling.attn_factor"


def _scaling(f: GgufFacts) -> dict[str, Any]:
    """How the file scales rotary frequencies. As a factor alone says it, it is linear."""
    kind = f.get("rope.scaling.type")
    if kind == "none":
        return {}
    factor = f.real("rope.scaling.factor", f.real("rope.scale_linear", 1.0))
    for name in _NO_SCALING:
        f.only(name, 1.0)
    if kind is None or kind == "linear":
        return {} if factor in (0.0, 1.0) else {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise refused(
            f"rotary embeddings scaled by {str(kind)[:40]!r}",
            "it is not known here how the file's numbers make the frequencies",
        )
    f.only("rope.scaling.yarn_log_multiplier", 0.0)
    f.only("rope.scaling.yarn_ext_factor", 1.0, -1.0)
    trained = f.whole("rope.scaling.original_context_length", f.whole("context_length"))
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": trained,
        "beta_fast": f.real("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": f.real("rope.scaling.yarn_beta_slow", 1.0),
    }


def _rope(f: GgufFacts) -> dict[str, Any]:
    return {"rope_type": "default", **_scaling(f), "rope_theta": f.real("rope.freq_base", 1e4)}


def _decoder(f: GgufFacts) -> dict[str, Any]:
    """llama, and what is built as it is."""
    width, heads = f.heads()
    head = f.whole("attention.key_length", width // heads)
    if f.whole("attention.value_length", head) != head:
        raise refused("keys and values of different widths", "no family here has them")
    if f.whole("rope.dimension_count", head) != head:
        raise refused("rotary embeddings of a part of a head", f"{f.name} has none of them here")
    return {
        **f.common(),
        "hidden_size": width,
        "intermediate_size": f.whole("feed_forward_length"),
        "num_hidden_layers": f.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": f.whole("attention.head_count_kv", heads),
        "head_dim": head,
        "max_position_embeddings": f.whole("context_length"),
        "rms_norm_eps": f.real("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(f),
    }


def _without_experts(f: GgufFacts) -> dict[str, Any]:
    if f.whole("expert_count", 0):
        raise refused("experts", f"those of {f.name} are not read from GGUF files")
    return _decoder(f)


def llama(f: GgufFacts) -> dict[str, Any]:
    return {
        **_without_experts(f),
        "attention_bias": f.has("blk.0.attn_q.bias"),
        "mlp_bias": f.has("blk.0.ffn_up.bias"),
        "hidden_act": "silu",
    }


def _experts(f: GgufFacts) -> dict[str, Any]:
    f.only("expert_weights_scale", 0.0, 1.0)
    count, used = f.whole("expert_count"), f.whole("expert_used_count")
    if not 0 < used <= count:
        raise corrupt(f"tokens go to {used} of {count} experts")
    router = f.file.tensors.get("blk.0.ffn_gate_inp.weight")
    if router is None or router.shape[0] != count:
        raise corrupt(f"its first block does not choose among {count} experts")
    return {**_decoder(f), "num_experts_per_tok": used}


def mixtral(f: GgufFacts) -> dict[str, Any]:
    """llama with experts."""
    return {
        **_experts(f),
        "num_local_experts": f.whole("expert_count"),
        "hidden_act": "silu",
        "sliding_window": None,
    }


def qwen3_moe(f: GgufFacts) -> dict[str, Any]:
    config = _experts(f)
    share = f.whole("feed_forward_length") // config["num_experts_per_tok"]
    return {
        **config,
        "num_experts": f.whole("expert_count"),
        "moe_intermediate_size": f.whole("expert_feed_forward_length", share),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "hidden_act": "silu",
        "use_sliding_window": False,
    }


def qwen(f: GgufFacts) -> dict[str, Any]:
    return {**_without_experts(f), "hidden_act": "silu", "use_sliding_window": False}


def phi3(f: GgufFacts) -> dict[str, Any]:
    if any(name.startswith("rope_factors") for name in f.file.tensors):
        raise refused(
            "one set of rotary factors for short texts and one for long ones",
            "an answer may not depend on how long its text will be",
        )
    window = f.whole("attention.sliding_window", 0)
    return {
        **_without_experts(f),
        "hidden_act": "silu",
        "sliding_window": window or None,
        "original_max_position_embeddings": f.whole("context_length"),
    }


# -- Gemma -----------------------------------------------------------------------------------------
_GELU = "gelu_pytorch_tanh"
_SLIDING, _FULL = "sliding_attention", "full_attention"


def gemma(f: GgufFacts) -> dict[str, Any]:
    return {**_without_experts(f), "hidden_act": _GELU}


def gemma2(f: GgufFacts) -> dict[str, Any]:
    f.only("rope.freq_base_swa", f.real("rope.freq_base", 1e4))
    return {
        **_without_experts(f),
        "hidden_activation": _GELU,
        "query_pre_attn_scalar": _scaled_by(f, large=46),
        "sliding_window": f.whole("attention.sliding_window", 4096),
        "layer_types": _layer_types(f.sliding(2)),
        "attn_logit_softcapping": f.real("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": f.real("final_logit_softcapping", 30.0),
    }


def gemma3(f: GgufFacts) -> dict[str, Any]:
    window = f.whole("attention.sliding_window", 0)
    config = _without_experts(f)
    near = {"rope_type": "default", "rope_theta": f.real("rope.freq_base_swa", 1e4)}
    return {
        **config,
        "hidden_activation": _GELU,
        "query_pre_attn_scalar": _scaled_by(f, large=62),
        "sliding_window": window or None,
        "layer_types": _layer_types([slides and window > 0 for slides in f.sliding(6)]),
        "rope_parameters": {_SLIDING: near, _FULL: config["rope_parameters"]},
        "attn_logit_softcapping": None,
        "final_logit_softcapping": f.real("final_logit_softcapping", 0.0) or None,
    }


def _scaled_by(f: GgufFacts, large: int) -> int:
    """Whose root divides the products of queries and keys. No key says it: it is the width of a
    head, but in the model of `large` blocks."""
    width, heads = f.heads()
    share = width // heads
    return share if f.whole("block_count") == large else f.whole("attention.key_length", share)


def _layer_types(sliding: list[bool]) -> list[str]:
    return [_SLIDING if slides else _FULL for slides in sliding]


# -- others ----------------------------------------------------------------------------------------
def phi2(f: GgufFacts) -> dict[str, Any]:
    width, heads = f.heads()
    head = width // heads
    turned = f.whole("rope.dimension_count", head)
    part = turned / head
    if not 0 < turned <= head or int(head * part) != turned:
        raise refused(
            f"rotary embeddings of {turned} elements of a head of {head}",
            "transformers computes their number from a quotient that is another one",
        )
    return {
        **f.common(),
        "hidden_size": width,
        "intermediate_size": f.whole("feed_forward_length"),
        "num_hidden_layers": f.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": f.whole("attention.head_count_kv", heads),
        "max_position_embeddings": f.whole("context_length"),
        "layer_norm_eps": f.real("attention.layer_norm_epsilon"),
        "hidden_act": "gelu_new",
        "qk_layernorm": False,
        "rope_parameters": {**_rope(f), "partial_rotary_factor": part},
    }


def gpt2(f: GgufFacts) -> dict[str, Any]:
    width, heads = f.heads()
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
